"""The word that names a dataset everywhere: on the command line, in Python and in saved settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmcl.errors import InputError

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq")


@dataclass(frozen=True)
class DatasetWord:
    """A parsed word: `voc2007:/data/VOCdevkit` has kind `voc2007` and location `/data/VOCdevkit`."""

    kind: str
    location: Path | None

    def __str__(self) -> str:
        return self.kind if self.location is None else f"{self.kind}:{self.location}"


def parse_dataset_word(word: str, kinds: Iterable[str]) -> DatasetWord:
    """Split a word into kind and location, refusing a kind that is not among `kinds`.

    A path to a table (`labels.csv`) needs no `table:` before it.
    """
    known = sorted(kinds)
    text = word.strip()
    if not text:
        raise InputError(
            f"the dataset word is empty; it is one of {', '.join(known)}, as in table:labels.csv"
        )
    kind, colon, location = text.partition(":")
    if kind in known:
        if colon and not location:
            raise InputError(f"dataset word {word!r} names no place after the colon, as in {kind}:PATH")
        return DatasetWord(kind, Path(location).expanduser() if location else None)
    if text.lower().endswith(TABLE_SUFFIXES):
        return DatasetWord("table", Path(text).expanduser())
    raise InputError(
        f"unknown kind of dataset {kind!r} in {word!r}{suggest(kind, known)}; known are {', '.join(known)}"
    )


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` where a known name is near, otherwise nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
