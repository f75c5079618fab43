"""Middleware: host, token, limits on the number and size of requests, security headers, metrics.

A request that is refused because of its headers is refused without reading its body. A body of unknown or
wrongly declared length is counted while it is received, and refused where it exceeds the limit.
"""

from __future__ import annotations

import time
from collections import Counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kmcl.serving.service.errors import ServiceError, retry_later
from kmcl.serving.service.hosts import check_host
from kmcl.serving.service.limited_body import HeldBytes, LimitedBody
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.settings import ServiceSettings
from kmcl.serving.service.token import LABEL_STUDIO, check_token

COUNTED = frozenset({"/v1/predict", *LABEL_STUDIO})
"""Paths whose POST requests are limited in number."""

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ServiceMiddleware:
    """ASGI middleware; see the module."""

    def __init__(
        self, application: ASGIApp, settings: ServiceSettings, metrics: ServiceMetrics, routes: frozenset[str]
    ) -> None:
        self._application = application
        self._settings = settings
        self._metrics = metrics
        self._routes = routes
        self._num_requests = 0
        self._num_by_address: Counter[str] = Counter()
        self._held = HeldBytes(settings.max_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 499  # the client disconnected before the response

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        try:
            await self._answer(scope, receive, send_counted)
        finally:
            path = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.count_request(path, status, time.perf_counter() - begin)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        limited = LimitedBody(receive, self._settings, self._held)
        address = scope["client"][0] if scope.get("client") else ""
        is_counted = scope["path"] in COUNTED and scope["method"] == "POST"
        try:
            headers = Headers(scope=scope)
            check_host(headers.get("host"), self._settings.allowed_hosts)
            if self._settings.token is not None:
                check_token(self._settings.token, scope["path"], headers)
            limited.check_declared(headers.get("content-length"))
            if is_counted:
                self._check_number(address)
        except ServiceError as error:
            await limited.drain()
            await error.response()(scope, receive, send)
            return

        async def send_drained(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                await limited.drain()
            await send(message)

        self._num_requests += is_counted
        self._num_by_address[address] += is_counted
        try:
            await self._application(scope, limited, send_drained if is_counted else send)
        finally:
            self._num_requests -= is_counted
            self._num_by_address[address] -= is_counted
            if not self._num_by_address[address]:
                del self._num_by_address[address]
            limited.release()

    def _check_number(self, address: str) -> None:
        """Refuse a request that is one too many, of all or of its address."""
        if self._num_requests >= self._settings.max_requests:
            raise retry_later("too_many_requests", f"{self._num_requests} requests are being processed", 1)
        own = self._num_by_address[address]
        if own >= self._settings.max_requests_per_address:
            raise retry_later(
                "too_many_requests", f"{own} requests of this address are being processed, its share", 1
            )
