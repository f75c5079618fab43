"""Disk space for cached features: announced where it is a lot, and a message where there is too little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from kmcl.errors import InputError
from kmcl.storage.atomic import WriteError, free_bytes, require_space
from kmcl.storage.chunk_file import ChunkFile

ANNOUNCED_BYTES = 2 * 10**9
"""Splits that need more disk space than this are announced."""
ADVICE = (
    "free some space and resume: what was computed stays; or start with fewer --cached-views, "
    "a smaller --image-size, more --frozen-stages or another --cache-dir"
)


@contextmanager
def advising_on_space() -> Iterator[None]:
    """Add what can be done about a full disk to its error; a folder that is refused is an InputError."""
    try:
        yield
    except WriteError as error:
        error.advice = ADVICE
        if error.is_full:
            raise
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error


def announce_space(console: Console, name: str, files: Sequence[ChunkFile]) -> None:
    """Print how much disk space the features of a split need if it is a lot; refuse what cannot fit."""
    num_bytes = sum(file.num_missing_bytes for file in files)
    path = next((file.path for file in files if file.num_missing_bytes), files[0].path)
    with advising_on_space():
        require_space(path, num_bytes)
    if num_bytes > ANNOUNCED_BYTES:
        console.print(
            f"the cached features of {name} will take {num_bytes / 1e9:.1f} GB in {path.parent} "
            f"({free_bytes(path) / 1e9:.1f} GB free)",
            soft_wrap=True,
            highlight=False,
        )
