"""What reading a damaged .npz archive raises, by numpy, zipfile and zlib."""

from __future__ import annotations

import zipfile
import zlib

ARCHIVE_ERRORS = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""RuntimeError: an entry that says it is encrypted, or compressed in an unknown way."""
