"""Rows that are read from a file: those that are wanted, and no memory for the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kmcl.storage.file_rows import FileRows

ROWS = np.random.default_rng(0).normal(size=(50, 3, 4)).astype("<f2")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ROWS.tofile(tmp_path / "rows")
    return tmp_path / "rows"


@pytest.mark.parametrize("has_pread", [True, False])
def test_rows_are_those_of_the_array(file: Path, monkeypatch: pytest.MonkeyPatch, has_pread: bool):
    if not has_pread:  # as on Windows
        monkeypatch.delattr(os, "pread", raising=False)
    rows = FileRows(file, 50, (3, 4), ROWS.dtype)
    indices = np.array([49, 0, 7, 7])
    taken = rows.take(indices, axis=0)
    np.testing.assert_array_equal(taken, ROWS[indices])
    assert taken.flags.writeable
    np.testing.assert_array_equal(np.asarray(rows), ROWS)
    np.testing.assert_array_equal(np.concatenate([rows, rows]), np.concatenate([ROWS, ROWS]))
    assert rows.take(np.array([], dtype=np.int64)).shape == (0, 3, 4)
    assert (len(rows), rows.shape, rows.dtype) == (50, ROWS.shape, ROWS.dtype)


def test_rows_that_are_not_there_are_refused(file: Path):
    rows = FileRows(file, 50, (3, 4), ROWS.dtype)
    for index in (-1, 50):
        with pytest.raises(IndexError, match=f"row {index} of 50"):
            rows.take(np.array([index]))
    with pytest.raises(ValueError, match="axis must be 0; got 1"):
        rows.take(np.array([0]), axis=1)
    file.write_bytes(ROWS.tobytes()[:-3])
    with pytest.raises(OSError, match=r"rows: row 49 is cut off"):
        rows.take(np.array([3, 49]))


def test_reading_a_large_file_takes_no_memory_of_its_size(tmp_path: Path):
    """256 MB, read row by row in another process; its memory grows by less than a tenth of that."""
    resource = pytest.importorskip("resource")
    assert resource is not None
    program = """
import resource, sys
import numpy as np
from pathlib import Path
from kmcl.storage.file_rows import FileRows
path = Path(sys.argv[1])
with path.open("wb") as file:
    file.truncate(2**28)
rows = FileRows(path, 2**12, (2**15,), np.dtype("<f2"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for indices in np.array_split(np.random.default_rng(0).permutation(2**12), 64):
    assert not rows.take(indices).any()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "large")], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) < 0.1 * 2**28
