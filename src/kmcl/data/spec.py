"""The dataset spec: the text that names a dataset: on the command line, in Python and in saved settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmcl.data.recognition import TABLE_SUFFIXES, recognise
from kmcl.errors import InputError, suggest
from kmcl.home_folder import expand_home


@dataclass(frozen=True)
class DatasetSpec:
    """A parsed dataset spec: `voc2007:/data/VOCdevkit` has kind `voc2007` and location `/data/VOCdevkit`."""

    kind: str
    location: Path | None

    def __str__(self) -> str:
        return self.kind if self.location is None else f"{self.kind}:{self.location}"


def short_name(spec: str) -> str:
    """What runs and studies of the data are named by: `labels` of `table:data/labels.csv`."""
    return Path(spec.split(":", 1)[-1]).stem or spec


def parse_dataset_spec(spec: str, kinds: Iterable[str]) -> DatasetSpec:
    """Split a dataset spec into kind and location; raises InputError for a kind that is not among `kinds`.

    A path alone is enough where what it is can be seen: `labels.csv` is a table, `photos` a folder per label.
    """
    known = sorted(kinds)
    text = spec.strip()
    if not text:
        raise InputError(
            f"the dataset spec is empty; it is one of {', '.join(known)}, as in table:labels.csv"
        )
    kind, colon, location = text.partition(":")
    if kind in known:
        if colon and not location:
            raise InputError(f"dataset spec {spec!r} names no location after the colon, as in {kind}:PATH")
        return DatasetSpec(kind, expand_home(location) if location else None)
    if text.lower().endswith(TABLE_SUFFIXES):
        return DatasetSpec("table", expand_home(text))
    if found := recognise(expand_home(text)):
        if found.kind in known:
            return DatasetSpec(found.kind, found.location)
        raise InputError(f"{text} {found.text}")
    raise InputError(
        f"unknown kind of dataset {kind!r} in {spec!r}{suggest(kind, known)}; known are {', '.join(known)}"
    )
