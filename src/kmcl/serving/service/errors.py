"""Error responses of the service: a status, and JSON of one shape."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from kmcl.errors import shorten


class ServiceError(Exception):
    """An error response.

    code:    an identifier for programs
    message: a sentence for people
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        message = shorten(message)
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        body = json.dumps({"error": {"code": self.code, "message": self.message}})
        return Response(body, self.status, self.headers, media_type="application/json")


def retry_later(code: str, message: str, seconds: int, status: int = 429) -> ServiceError:
    """An error response that tells the client when to retry."""
    return ServiceError(status, code, message, {"Retry-After": str(max(1, seconds))})


CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 422: "invalid_request"}
"""For errors that the framework itself raises."""
