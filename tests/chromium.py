"""Headless Chromium driven over its DevTools protocol, as a person's hands: pointer, keys, files."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Chromium:
    """One page in one browser.

    messages: what the page logged, and errors it threw
    requests: addresses it asked for
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        from websockets.sync.client import connect

        profile = self.folder / "profile"
        self._process = subprocess.Popen(
            [
                str(CHROMIUM),
                *OPTIONS,
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self._port(profile / "DevToolsActivePort")
        targets = json.load(urlopen(f"http://127.0.0.1:{port}/json/list"))
        page = next(target for target in targets if target["type"] == "page")
        self._socket = self._open.enter_context(
            connect(page["webSocketDebuggerUrl"], max_size=None, proxy=None)
        )
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.command(f"{domain}.enable")
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._process.terminate()
        self._process.wait(20)

    def _port(self, file: Path) -> int:
        for _ in range(600):
            if file.is_file() and (text := file.read_text()).count("\n"):
                return int(text.split("\n")[0])
            time.sleep(0.05)
        raise TimeoutError("Chromium did not open its port")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                return message["result"]
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(one.get("value")) for one in values["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(values["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        result = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 30) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.evaluate(expression):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {expression}; {self.messages}")

    def open(self, address: str, width: int, height: int, *, dark: bool = False) -> None:
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def choose_files(self, selector: str, paths: list[Path]) -> None:
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def place(self, expression: str) -> tuple[float, float]:
        """The middle of an element, scrolled into view."""
        x, y = self.evaluate(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return x, y

    def hover(self, expression: str) -> None:
        x, y = self.place(expression)
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, expression: str) -> None:
        x, y = self.place(expression)
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        picture = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
