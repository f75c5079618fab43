"""libtiff, which decodes compressed TIFF files for Pillow, without its messages on standard error."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
from functools import cache
from importlib import import_module
from pathlib import Path

import PIL


@cache
def silence_libtiff() -> bool:
    """Stop libtiff from printing warnings and errors; False where its library is not found.

    It writes to the file descriptor itself, past `sys.stderr`, and names no file but "tempfile.tif". Nothing
    is lost: Pillow raises for what cannot be decoded.
    """
    import_module("PIL._imaging")  # loads the library, so that the one below is the same
    for path in _candidates():
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(path)
            library.TIFFSetWarningHandler(None)
            library.TIFFSetErrorHandler(None)
            return True
    return False


def _candidates() -> list[str]:
    """Where Pillow's wheels for Linux and macOS keep it, then the system's; on Windows there is no file."""
    package = Path(PIL.__file__).parent
    bundled = [*package.with_name("pillow.libs").glob("libtiff*"), *package.glob(".dylibs/libtiff*")]
    system = ctypes.util.find_library("tiff")
    return [*map(str, bundled), *([system] if system else [])]
