"""The page at `/`: static files of this package."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/saliency.js": ("saliency.js", "text/javascript; charset=utf-8"),
    "/cards.js": ("cards.js", "text/javascript; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}


def add_page(application: FastAPI) -> None:
    """Serve the page's files, read once."""
    folder = files("kmcl.serving.service") / "page"
    for path, (name, media_type) in PAGE_FILES.items():
        application.add_route(
            path, _answer_with((folder / name).read_bytes(), media_type), include_in_schema=False
        )


def _answer_with(content: bytes, media_type: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return answer
