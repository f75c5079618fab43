"""Connections to the service: bounds on the size and time of headers, and on connections per address.

uvicorn bounds headers only with its slower parser, where they end in a 400, and has no time limit for them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kmcl.serving.service.settings import MEGABYTE, ServiceSettings

DRAIN_SECONDS = 1.0
DRAIN_BYTES = 4 * MEGABYTE


def limited_protocol(settings: ServiceSettings) -> Any:
    """What uvicorn calls for every connection (its option `http`)."""
    return partial(LimitedProtocol, settings=settings, num_by_address=Counter())


class LimitedProtocol(HttpToolsProtocol):
    """One connection. A client that exceeds a limit gets the common error response, and is disconnected."""

    def __init__(
        self, *arguments: Any, settings: ServiceSettings, num_by_address: Counter[str], **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._settings = settings
        self._num_by_address = num_by_address
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._num_header_bytes = 0
        self._in_headers = True
        self._in_body = False
        self._refused = False
        self._num_drained = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()
        if self.client is None:
            return
        self._address = self.client[0]
        self._num_by_address[self._address] += 1
        most = self._settings.max_connections_per_address
        if self._num_by_address[self._address] > most:
            self._refuse(429, "too_many_connections", f"an address may have at most {most} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._address is not None:
            self._num_by_address[self._address] -= 1
            if not self._num_by_address[self._address]:
                del self._num_by_address[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._num_drained += len(data)
            if self._num_drained > DRAIN_BYTES:
                self.transport.abort()
            return
        if self._in_headers:
            self._num_header_bytes += len(data)
        is_answered = self.cycle is not None and self.cycle.response_complete
        if self._in_headers or (self._in_body and is_answered):
            self._start_timer()  # uvicorn stops its own when anything arrives, be it an empty line
        super().data_received(data)
        if self._in_headers and self._num_header_bytes > self._settings.max_header_bytes:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._start_timer()

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        self._in_headers, self._in_body = False, True
        self._num_header_bytes = 0
        self._stop_timer()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._settings.max_header_bytes:
            self._refuse_headers()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._in_headers, self._in_body = True, False
        self._stop_timer()
        super().on_message_complete()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._settings.header_seconds, self._run_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_out(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # a request is being answered; then the connection ends
        elif self._num_header_bytes and not self._in_body:
            seconds = self._settings.header_seconds
            self._refuse(408, "timeout", f"receiving the headers took longer than {seconds:g} s")
        else:
            self.transport.close()

    def _refuse_headers(self) -> None:
        most = self._settings.max_header_bytes
        self._refuse(431, "headers_too_large", f"the headers of a request may have at most {most:,} bytes")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer; discard for a moment what the client is still sending, so that it gets the answer."""
        self._refused = True
        self._stop_timer()
        body = json.dumps({"error": {"code": code, "message": message}}).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if status == 429:
            lines.append("Retry-After: 1")
        if self.transport.is_closing():
            return
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.write_eof()
        self.loop.call_later(DRAIN_SECONDS, self.transport.close)
