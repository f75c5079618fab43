"""Arrays computed from large source files, cached in the user's cache folder until the files change."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.storage.archives import ARCHIVE_ERRORS
from kmcl.storage.atomic import replacing
from kmcl.storage.s3 import S3Object

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


def fingerprint(sources: Sequence[Path | S3Object], version: str) -> str:
    """A key that changes with the path, size or time of a source, or with the version of its reader."""
    digest = hashlib.sha256(version.encode())
    for source in sources:
        digest.update(_state(source).encode())
    return digest.hexdigest()[:24]


def _state(source: Path | S3Object) -> str:
    if isinstance(source, S3Object):
        return f"\0{source}\0{source.size}\0{source.version}"
    state = source.stat()
    return f"\0{source.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"


def cached_arrays(
    name: str, sources: Sequence[Path | S3Object], version: str, compute: Callable[[], Arrays]
) -> Arrays:
    """The arrays that `compute` returns, from the cache when `sources` are unchanged.

    Neither an unreadable cache file nor a folder that cannot be written is an error: the arrays are then
    computed again.
    """
    path = cache_folder() / "sources" / f"{name}-{fingerprint(sources, version)}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except ARCHIVE_ERRORS:
        pass
    arrays = compute()
    try_to_write(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return arrays


def try_to_write(path: Path, write: Callable[[Path], None]) -> bool:
    """Let `write` fill a temporary file that then replaces `path`; False if it cannot be written."""
    try:
        with replacing(path) as temporary:
            write(temporary)
    except OSError:
        return False
    return True
