"""A server that gives files as Label Studio does: below /data/, to those who have a token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LEGACY = "0123456789abcdef0123456789abcdef01234567"
PERSONAL = "eyJh.eyJ0.c2ln"


class StudioServer:
    """files: by path and query. asked: the paths that were asked for, with their Authorization.

    accesses: access tokens that are valid; a personal access token gets a further one.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.accesses: list[str] = []
        self.num_refreshed = 0
        self.slow: Callable[[], None] = lambda: None

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address, while it runs."""
        studio = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                header = self.headers.get("Authorization")
                studio.asked.append((self.path, header))
                studio.slow()
                if header not in (f"Token {LEGACY}", *(f"Bearer {access}" for access in studio.accesses)):
                    self.answer(401, b"")
                elif self.path in studio.redirects:
                    self.send_response(302)
                    self.send_header("Location", studio.redirects[self.path])
                    self.end_headers()
                elif self.path in studio.files:
                    self.answer(200, studio.files[self.path])
                else:
                    self.answer(404, b"")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/api/token/refresh/" or body != {"refresh": PERSONAL}:
                    self.answer(401, b'{"detail": "Token is invalid"}')
                    return
                studio.num_refreshed += 1
                studio.accesses = [f"access-{studio.num_refreshed}"]
                self.answer(200, json.dumps({"access": studio.accesses[0]}).encode())

            def answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
