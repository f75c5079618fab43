"""The real Label Studio, where it is installed: started on loopback, and used by its HTTP interface.

KMCL_LABEL_STUDIO names its program, which needs an environment of its own: python -m venv ENV, then
ENV/bin/pip install label-studio, then KMCL_LABEL_STUDIO=ENV/bin/label-studio.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

PROGRAM = os.environ.get("KMCL_LABEL_STUDIO") or shutil.which("label-studio")
USER, PASSWORD = "person@example.org", "correct-horse-1"
LEGACY = "0123456789abcdef0123456789abcdef01234567"


class LabelStudio:
    """A running server, as its first user sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, path: str, values: Any = None, method: str | None = None) -> Any:
        body = None if values is None else json.dumps(values).encode()
        return json.loads(self._send(path, body, {"Content-Type": "application/json"}, method))

    def download(self, path: str) -> bytes:
        return self._send(path, None, {})

    def _send(
        self, path: str, body: bytes | None, headers: Mapping[str, str], method: str | None = None
    ) -> bytes:
        request = Request(self.url + path, body, {**headers, "Authorization": f"Token {LEGACY}"})
        request.method = method or ("GET" if body is None else "POST")
        try:
            with urlopen(request, timeout=600) as response:
                return bytes(response.read())
        except URLError as error:
            told = error.read()[:2000] if hasattr(error, "read") else ""
            raise AssertionError(f"{path}: {error} {told}") from error

    def personal_token(self) -> str:
        return str(self.call("/api/token/", {})["token"])

    def create_project(self, interface: str, title: str = "scenes") -> int:
        return int(self.call("/api/projects", {"title": title, "label_config": interface})["id"])

    def upload(self, project: int, images: list[Path]) -> None:
        """Each image becomes a task."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{number}"; filename="{image.name}"\r\n'
            "Content-Type: image/png\r\n\r\n".encode()
            + image.read_bytes()
            + b"\r\n"
            for number, image in enumerate(images)
        ]
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        self._send(f"/api/projects/{project}/import", body, kind)

    def connect_backend(self, project: int, url: str, password: str) -> dict[str, Any]:
        values = {
            "project": project,
            "url": url,
            "title": "kmcl",
            "auth_method": "BASIC_AUTH",
            "basic_auth_user": "label-studio",
            "basic_auth_pass": password,
        }
        return dict(self.call("/api/ml/", values))

    def retrieve_predictions(self, project: int) -> None:
        """What the button in the list of tasks does for all of them."""
        path = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
        self.call(path, {"selectedItems": {"all": True, "excluded": []}})

    def tasks(self, project: int) -> list[dict[str, Any]]:
        """All tasks, with their predictions and annotations."""
        path = f"/api/tasks?project={project}&fields=all&page_size=500"
        return list(self.call(path)["tasks"])

    def export(self, project: int) -> bytes:
        return self.download(f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_label_studio(folder: Path, port: int, seconds: float = 1800) -> Iterator[LabelStudio]:
    """A new server with its database below the folder."""
    assert PROGRAM is not None
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    command = [str(PROGRAM), "start", "--no-browser", "--port", str(port), "--internal-host", "127.0.0.1"]
    command += ["--data-dir", str(folder / "data"), "--username", USER, "--password", PASSWORD]
    command += ["--user-token", LEGACY, "--enable-legacy-api-token"]
    settings = {
        "HOME": str(home),
        "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
        "SENTRY_DSN": "",
        # A backend on this machine, and the webhook that is made for it.
        "ML_BLOCK_LOCAL_IP": "false",
        "SSRF_PROTECTION_ENABLED": "false",
    }
    environment = {**os.environ, **settings}
    environment.pop("PYTHONPATH", None)
    studio = LabelStudio(f"http://127.0.0.1:{port}")
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
        try:
            wait_for(studio.url + "/health", process, seconds, folder / "log.txt")
            yield studio
        finally:
            process.terminate()
            process.wait(60)


def wait_for(url: str, process: subprocess.Popen[Any], seconds: float, log: Path) -> None:
    """Until something answers at the address."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(url, timeout=10).close()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no answer from {url}: {log.read_text(errors='replace')[-3000:]}")
