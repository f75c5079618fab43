"""The token of a service: which paths ask for it, how a request gives it, and how OpenAPI describes both."""

from __future__ import annotations

import base64
import hmac
from typing import Any

from starlette.datastructures import Headers

from kmcl.serving.service.errors import ServiceError
from kmcl.serving.service.openapi import refusal

LABEL_STUDIO = frozenset({"/health", "/setup", "/predict", "/webhook", "/versions"})
GUARDED = ("/v1/", "/metrics")
SCHEME = "token"


def asks_for_token(path: str) -> bool:
    return path.startswith(GUARDED) or path in LABEL_STUDIO


def check_token(token: str, path: str, headers: Headers) -> None:
    """Refuse a request to a path that asks for the token without it."""
    if not asks_for_token(path):
        return
    given = _given_token(headers.get("authorization", ""), accepts_basic=path in LABEL_STUDIO)
    # In constant time, so that the duration does not reveal how much of a wrong token was right.
    if given is None or not hmac.compare_digest(given, token.encode()):
        raise ServiceError(
            401,
            "unauthorized",
            "a token is required: Authorization: Bearer TOKEN",
            {"WWW-Authenticate": "Bearer"},
        )


def _given_token(header: str, accepts_basic: bool) -> bytes | None:
    """The token of a request: a bearer token, or a password, which is all that Label Studio can send."""
    kind, _, given = header.partition(" ")
    if kind.lower() == "bearer":
        return given.strip().encode()
    if kind.lower() == "basic" and accepts_basic:
        try:
            return base64.b64decode(given.strip(), validate=True).partition(b":")[2]
        except ValueError:
            return None
    return None


def declare_token(document: dict[str, Any]) -> None:
    """Add the token to the OpenAPI document of a service with one; Label Studio's routes are not in it."""
    document["components"]["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "description": "the token of `kmcl serve`, KMCL_TOKEN"}
    }
    for path, operations in document["paths"].items():
        if asks_for_token(path):
            for operation in operations.values():
                operation["security"] = [{SCHEME: []}]
                operation["responses"]["401"] = refusal(401)
