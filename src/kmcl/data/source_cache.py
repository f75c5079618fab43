"""What was computed from large source files, kept in the user's cache folder until the files change."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[np.generic]]


def cache_folder() -> Path:
    """KMCL_CACHE, or `kmcl` in the platform's folder for caches (XDG_CACHE_HOME, else ~/.cache)."""
    if chosen := os.environ.get("KMCL_CACHE"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "kmcl"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "kmcl"
    return Path("~/.cache/kmcl").expanduser()


def fingerprint(sources: Sequence[Path], version: str) -> str:
    """A key that changes with the place, size or time of a source, or with the version of what reads it."""
    digest = hashlib.sha256(version.encode())
    for source in sources:
        state = source.stat()
        digest.update(f"\0{source.resolve()}\0{state.st_size}\0{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:24]


def cached_arrays(name: str, sources: Sequence[Path], version: str, compute: Callable[[], Arrays]) -> Arrays:
    """The arrays that `compute` returns, from the cache when `sources` are unchanged.

    Neither an unreadable cache file nor a folder that cannot be written is an error: the arrays are then
    computed anew.
    """
    path = cache_folder() / "sources" / f"{name}-{fingerprint(sources, version)}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        pass
    arrays = compute()
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return arrays


def write_atomically(path: Path, write: Callable[[str], None]) -> bool:
    """Let `write` fill a temporary file beside `path`, then move it there; False if the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-", suffix=path.suffix)
        os.close(handle)
    except OSError:
        return False
    try:
        write(temporary)
        os.replace(temporary, path)
    except OSError:
        return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True
