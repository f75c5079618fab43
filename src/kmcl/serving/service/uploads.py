"""Reading the images of a multipart request."""

from __future__ import annotations

from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from kmcl.serving.service.errors import ServiceError

FIELD = "images"
LONGEST_NAME = 200


class Upload(NamedTuple):
    name: str
    content: bytes


async def read_uploads(request: Request, max_images: int) -> list[Upload]:
    """All parts of the field `images`, at least one, each an image whether it has a file name or not."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind.lower() != b"multipart/form-data":
        raise ServiceError(
            415,
            "unsupported_body",
            f"the body must be multipart/form-data with files in the field {FIELD!r}; "
            f"got {kind.decode(errors='replace')[:LONGEST_NAME] or 'no Content-Type'}",
        )
    if not options.get(b"boundary"):
        raise _broken("its Content-Type has no boundary")
    parts = _Parts(max_images)
    try:
        parser = MultipartParser(options[b"boundary"], parts.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise _broken(str(error)) from None
    if not parts.uploads:
        raise ServiceError(422, "no_images", f"the body has no file in the field {FIELD!r}")
    return parts.uploads


class _Parts:
    """Receives the parts from the parser."""

    def __init__(self, max_images: int) -> None:
        self.uploads: list[Upload] = []
        self._max_images = max_images
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._name = ""
        self._content = bytearray()

    def callbacks(self) -> dict[str, object]:
        names = ("part_begin", "part_data", "part_end", "header_field", "header_value", "header_end")
        return {f"on_{name}": getattr(self, name) for name in (*names, "headers_finished")}

    def part_begin(self) -> None:
        self._disposition = b""
        self._content = bytearray()

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def header_end(self) -> None:
        if self._header[0].lower() == b"content-disposition":
            self._disposition = bytes(self._header[1])
        self._header = (bytearray(), bytearray())

    def headers_finished(self) -> None:
        """Refuse an unexpected part as soon as its headers are known."""
        _, options = parse_options_header(self._disposition)
        field = options.get(b"name", b"").decode(errors="replace")
        if field != FIELD:
            raise ServiceError(
                422, "unknown_field", f"the body may have no field but {FIELD!r}; got {field[:50]!r}"
            )
        if len(self.uploads) == self._max_images:
            raise ServiceError(
                413, "too_many_images", f"a request may have at most {self._max_images} images"
            )
        name = options.get(b"filename", b"").decode(errors="replace")
        self._name = name[:LONGEST_NAME] or f"image {len(self.uploads) + 1}"

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self._content.extend(memoryview(data)[start:end])

    def part_end(self) -> None:
        self.uploads.append(Upload(self._name, bytes(self._content)))


def _broken(reason: str) -> ServiceError:
    return ServiceError(400, "broken_body", f"the body is not a valid multipart form: {reason}")
