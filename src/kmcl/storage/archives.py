"""What reading a damaged .npz archive raises, by numpy, zipfile, zlib, and the parser of numpy's headers."""

from __future__ import annotations

import zipfile
import zlib
from tokenize import TokenError

ARCHIVE_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, SyntaxError, TokenError),
)
"""RuntimeError: an entry that says it is encrypted, or compressed in an unknown way. MemoryError: an array
that says it is larger than memory. SyntaxError and TokenError: a header that is no Python.
"""
