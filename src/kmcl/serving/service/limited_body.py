"""The body of a request, bounded in size and time while it is received."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Message, Receive

from kmcl.serving.service.errors import ServiceError, retry_later
from kmcl.serving.service.settings import ServiceSettings

DRAIN_SECONDS = 1.0
GRACE_SECONDS = 5.0
"""A body may begin this much later than the minimum rate demands: a handshake, a busy phone."""


class HeldBytes:
    """How many bytes of all bodies are in memory; used by the event loop only."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.now = 0


class LimitedBody:
    """A `receive` that raises where a body, or all bodies together, exceed the limit, or one is too slow."""

    def __init__(self, receive: Receive, settings: ServiceSettings, held: HeldBytes) -> None:
        self._receive = receive
        self._max_bytes = settings.max_body_bytes
        self._min_rate = settings.min_body_rate
        self._begin = time.monotonic()
        self._held = held
        self._own_held = 0
        self._num_bytes = 0
        self._ended = False
        self._drained = False

    async def __call__(self) -> Message:
        message = await self._receive_in_time()
        self._count(message)
        if self._num_bytes > self._max_bytes:
            await self.drain()
            raise self._too_large()
        self._own_held += len(message.get("body", b""))
        self._held.now += len(message.get("body", b""))
        if self._held.now > self._held.most:
            raise retry_later("too_many_bytes", "too many bytes are being received at once", 1)
        return message

    async def _receive_in_time(self) -> Message:
        """The next part, as long as the average since the first byte stays above the minimum rate."""
        if self._ended:
            return await self._receive()
        due = self._begin + GRACE_SECONDS + self._num_bytes / self._min_rate
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                return await self._receive()
        except TimeoutError:
            self._drained = True  # it would only send as slowly
            raise ServiceError(
                408,
                "too_slow",
                f"the body came with less than {self._min_rate:,} bytes per second",
                {"Connection": "close"},
            ) from None

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
