"""Damaged headers of arrays raise what readers of archives expect."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from kmcl.storage.archives import ARCHIVE_ERRORS

SOUND = "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 28), }"


def archive_with(header: str) -> io.BytesIO:
    """An .npz file of which only the description of its array is damaged; the checksums are right."""
    padded = header.encode("latin-1").ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(6 * 28)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", content)
    buffer.seek(0)
    return buffer


def test_a_sound_header():
    assert np.load(archive_with(SOUND))["a"].shape == (6, 28)


@pytest.mark.parametrize(
    "header",
    [
        "{'desf[5i\x890\xb1qn\x80 (6, 28), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 28",
        "  {\n 1\n  }\n 2",
        "[" * 110,
        SOUND.replace("6, 28", "6, 9999999999999"),
        SOUND.replace("6, 28", "6, 29"),
        SOUND.replace("|u1", "|u3"),
        SOUND.replace("'shape'", "'shade'"),
    ],
)
def test_damaged_headers(header: str):
    with pytest.raises(ARCHIVE_ERRORS):
        np.load(archive_with(header))["a"]
