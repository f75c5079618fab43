"""Asking the Label Studio server for a file: one server, named at the start, and no other.

http.client follows no redirect and uses no proxy, so that nothing a task names can lead elsewhere.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kmcl.errors import InputError

DATA = "/data/"
"""Below this Label Studio serves uploads and local files, and nothing that a request could change."""
PORTS = {"http": 80, "https": 443}
LONGEST_ANSWER = 2**16
"""Bytes of an answer about tokens."""
CHUNK = 2**16


class ImageError(Exception):
    """Why the image of a task could not be read; the message is for people."""


class LabelStudioHost:
    """A Label Studio server.

    url:   its address, with a path where it is not at the root of its host
    token: of a user: a personal access token, or the legacy token of older versions; None to send none
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = _split(url)
        if parts is None or parts.scheme not in PORTS or not parts.hostname or parts.username is not None:
            raise InputError(f"the address of Label Studio must be http://HOST or https://HOST; got {url!r}")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise InputError("the token of Label Studio must be visible ASCII characters")
        self._origin = _origin(parts)
        self._path = parts.path.rstrip("/")
        self._token = None if token is None else token.strip()
        self._access: str | None = None
        self._lock = threading.Lock()

    def get(self, reference: str, max_bytes: int, seconds: float) -> bytes:
        """The content of a file that a task names by a path or an address; ImageError says why not."""
        path = self._checked_path(reference)
        end = time.monotonic() + seconds
        used = self._authorization(None, end)
        status, content = self._request("GET", path, used, None, max_bytes, end)
        if status == 401 and used is not None:  # access tokens last for minutes
            used = self._authorization(used, end)
            status, content = self._request("GET", path, used, None, max_bytes, end)
        if status in (401, 403):
            raise ImageError(
                f"Label Studio answered {status}: give a token of a user who may see the project"
            )
        if 300 <= status < 400:
            raise ImageError("Label Studio answered with a redirect, which is not followed")
        if status != 200:
            raise ImageError(f"Label Studio answered {status}")
        return content

    def _checked_path(self, reference: str) -> str:
        """The path to ask for: of this server, below its data, and without a way out of it."""
        parts = _split(reference)
        if parts is None:
            raise ImageError("its address is not valid")
        if (parts.scheme or parts.netloc) and _origin(parts) != self._origin:
            raise ImageError("its image is on another server than the Label Studio that was named")
        segments = unquote(unquote(parts.path)).replace("\\", "/").split("/")
        if not parts.path.startswith(self._path + DATA) or "." in segments or ".." in segments:
            raise ImageError(f"its image is not below {DATA} of Label Studio")
        query = f"?{quote(parts.query, safe='%=&/:+,;@~-._!$()*')}" if parts.query else ""
        return quote(parts.path, safe="%/:+,;=@~-._!$&()*") + query

    def _authorization(self, refused: str | None, end: float) -> str | None:
        """The value of the header Authorization; a new one where the last was refused."""
        if self._token is None:
            return None
        if self._token.count(".") != 2:  # no JSON web token
            return f"Token {self._token}"
        with self._lock:
            if self._access is None or self._access == refused:
                self._access = self._new_access(end)
            return self._access

    def _new_access(self, end: float) -> str:
        body = json.dumps({"refresh": self._token}).encode()
        path = f"{self._path}/api/token/refresh/"
        status, content = self._request("POST", path, None, body, LONGEST_ANSWER, end)
        try:
            access = json.loads(content)["access"] if status == 200 else None
        except (ValueError, KeyError, TypeError, RecursionError):
            access = None
        if not (isinstance(access, str) and access.isascii() and access.isprintable()):
            raise ImageError(f"Label Studio does not accept the token (status {status})")
        return f"Bearer {access}"

    def _request(
        self,
        method: str,
        path: str,
        authorization: str | None,
        body: bytes | None,
        max_bytes: int,
        end: float,
    ) -> tuple[int, bytes]:
        headers: Mapping[str, str] = {
            "Connection": "close",
            **({} if authorization is None else {"Authorization": authorization}),
            **({} if body is None else {"Content-Type": "application/json"}),
        }
        scheme, host, port = self._origin
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        connection = kind(host, port, timeout=_remaining(end))
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if response.status != 200:
                return response.status, b""
            return 200, _content(response, max_bytes, end)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ImageError(f"Label Studio did not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()


def _content(response: http.client.HTTPResponse, max_bytes: int, end: float) -> bytes:
    content = bytearray()
    while True:
        part = response.read1(CHUNK)
        if not part:
            return bytes(content)
        content += part
        if len(content) > max_bytes:
            raise ImageError(f"the file has more than {max_bytes:,} bytes")
        _remaining(end)


def _remaining(end: float) -> float:
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise ImageError("Label Studio did not answer in time")
    return seconds


def _split(address: str) -> SplitResult | None:
    """The parts of an address; None where it is none."""
    try:
        address.encode()  # JSON can have halves of characters
        parts = urlsplit(address)
        parts.port  # noqa: B018  # is parsed when it is asked for
    except ValueError:
        return None
    return parts


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    scheme = parts.scheme.lower()
    return scheme, parts.hostname or "", parts.port or PORTS.get(scheme)
