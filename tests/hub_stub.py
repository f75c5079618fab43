"""As much of the model hub's HTTP interface, on loopback, as publishing and fetching a small model takes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "c0ffee" * 6 + "cafe"
REPOSITORY = "somebody/digits"


@dataclass
class StubHub:
    """What was published, and with what token."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tokens: list[str | None] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""


@contextmanager
def running_hub() -> Iterator[StubHub]:
    hub = StubHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._serve(with_body=False)

        def do_GET(self) -> None:
            self._serve(with_body=True)

        def do_POST(self) -> None:
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            hub.tokens.append(self.headers.get("Authorization"))
            if self.path == "/api/repos/create":
                hub.created.append(json.loads(body))
                self._json({"url": f"{hub.address}/{REPOSITORY}"})
            elif self.path == "/api/validate-yaml":
                self._json({"errors": [], "warnings": []})
            elif self.path.startswith(f"/api/models/{REPOSITORY}/preupload/main"):
                names = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
                self._json({"files": modes})
            elif self.path.startswith(f"/api/models/{REPOSITORY}/commit/main"):
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "header":
                        hub.summary = line["value"]["summary"]
                    else:
                        hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                address = f"{hub.address}/{REPOSITORY}/commit/{COMMIT}"
                self._json({"success": True, "commitOid": COMMIT, "commitUrl": address})
            else:
                self._send(404, b"", {})

        def _serve(self, with_body: bool) -> None:
            parts = self.path.strip("/").split("/")
            if self.path == "/":
                self._send(200, b"", {})
            elif self.path.startswith(f"/api/models/{REPOSITORY}"):
                self._json({"id": REPOSITORY, "sha": COMMIT, "siblings": []})
            elif "/".join(parts[:2]) != REPOSITORY:
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            elif parts[-1] not in hub.files:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            else:
                content = hub.files[parts[-1]]
                headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                self._send(200, content, headers, with_body)

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool = True) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
