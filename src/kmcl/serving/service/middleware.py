"""Middleware: token, limits on the number and size of requests, security headers, metrics.

A request that is refused because of its headers is refused without reading its body. A body of unknown or
wrongly declared length is counted while it is received, and refused where it exceeds the limit.
"""

from __future__ import annotations

import asyncio
import hmac
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kmcl.serving.service.errors import ServiceError, retry_later
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.settings import ServiceSettings

PREDICT = "/v1/predict"
GUARDED = ("/v1/", "/metrics")

DRAIN_SECONDS = 1.0

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
        limited = LimitedBody(receive, self._settings.max_body_bytes, self._held)
        is_prediction = scope["path"] == PREDICT and scope["method"] == "POST"
        try:
            headers = Headers(scope=scope)
            self._check_token(scope["path"], headers)
            limited.check_declared(headers.get("content-length"))
            if is_prediction and self._num_requests >= self._settings.max_requests:
                raise retry_later(
                    "too_many_requests", f"{self._num_requests} requests are being processed", 1
                )
        except ServiceError as error:
            await limited.drain()
            await error.response()(scope, receive, send)
            return

        async def send_drained(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                await limited.drain()
            await send(message)

        self._num_requests += is_prediction
        try:
            await self._application(scope, limited, send_drained if is_prediction else send)
        finally:
            self._num_requests -= is_prediction
            limited.release()

    def _check_token(self, path: str, headers: Headers) -> None:
        token = self._settings.token
        if token is None or not path.startswith(GUARDED):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        # In constant time, so that the duration does not reveal how much of a wrong token was right.
        is_right = hmac.compare_digest(given.strip().encode(), token.encode())
        if kind.lower() != "bearer" or not is_right:
            raise ServiceError(
                401,
                "unauthorized",
                "a token is required: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )


class HeldBytes:
    """How many bytes of all bodies are in memory; used by the event loop only."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.now = 0


class LimitedBody:
    """A `receive` that raises where a body, or all bodies together, exceed the limit."""

    def __init__(self, receive: Receive, max_bytes: int, held: HeldBytes) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._held = held
        self._own_held = 0
        self._num_bytes = 0
        self._ended = False
        self._drained = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._count(message)
        if self._num_bytes > self._max_bytes:
            await self.drain()
            raise self._too_large()
        self._own_held += len(message.get("body", b""))
        self._held.now += len(message.get("body", b""))
        if self._held.now > self._held.most:
            raise retry_later("too_many_bytes", "too many bytes are being received at once", 1)
        return message

    def release(self) -> None:
        """Call when the body is no longer in memory."""
        self._held.now -= self._own_held
        self._own_held = 0

    def check_declared(self, content_length: str | None) -> None:
        if content_length is None:
            return
        if not (content_length.isascii() and content_length.isdigit()):
            raise ServiceError(400, "bad_request", "Content-Length must be a number")
        if int(content_length[:20]) > self._max_bytes:
            raise self._too_large()

    async def drain(self) -> None:
        """Read and discard the rest of the body, at most the size limit again and at most for a second.

        A client that is still sending would see a closed connection instead of the response.
        """
        if self._drained:
            return
        self._drained = True
        most = self._num_bytes + self._max_bytes
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._ended and self._num_bytes <= most:
                    self._count(await self._receive())
        except TimeoutError:
            return

    def _count(self, message: Message) -> None:
        self._num_bytes += len(message.get("body", b""))
        self._ended = message["type"] == "http.disconnect" or not message.get("more_body", False)

    def _too_large(self) -> ServiceError:
        megabytes = self._max_bytes / 2**20
        return ServiceError(413, "body_too_large", f"a request may have at most {megabytes:g} MiB")
