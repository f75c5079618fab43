"""Facts of the labels that are stored with a model, as files from anybody may hold them."""

from __future__ import annotations

import math

from kmcl.data.companions import Companions
from kmcl.errors import InputError

Bands = tuple[tuple[float, ...], ...]
"""For each label the numbers of its probability band, see `kmcl.evaluation.probability_bands`."""

NUMBERS_PER_BAND = 8


def check_label_facts(bands: Bands | None, companions: Companions | None, num_labels: int) -> None:
    """Refuse bands and companions of wrong types, lengths and ranges."""
    for name, rows in (("bands", bands), ("companions", companions)):
        if rows is not None and len(rows) != num_labels:
            raise InputError(f"{name} must be one row for each of {num_labels} labels; got {len(rows)}")
    for row in bands or ():
        if len(row) != NUMBERS_PER_BAND:
            raise InputError(f"bands must be {NUMBERS_PER_BAND} numbers for each label; got {len(row)}")
        for value in row:
            if type(value) not in (int, float) or not math.isfinite(value):
                raise InputError(f"bands must be finite numbers; got {value!r}")
        if row[-1] <= 0:
            raise InputError(f"bands must end with a deviation above 0; got {row[-1]!r}")
    for pair in (pair for row in companions or () for pair in row):
        if len(pair) != 2 or type(pair[0]) is not int or not 0 <= pair[0] < num_labels:
            raise InputError(f"companions must be an index of a label and a share; got {pair!r}")
        if type(pair[1]) not in (int, float) or not 0 <= pair[1] <= 1:
            raise InputError(f"shares of companions must be between 0 and 1; got {pair[1]!r}")


def read_label_facts(values: dict[str, object]) -> tuple[Bands | None, Companions | None]:
    """The two as JSON gives them, lists instead of tuples; TypeError where they are no lists."""
    bands, companions = values.get("bands"), values.get("companions")
    rows = None if bands is None else tuple(map(tuple, bands))  # type: ignore[call-overload]
    pairs = None if companions is None else tuple(tuple(map(tuple, row)) for row in companions)  # type: ignore[attr-defined]
    return rows, pairs
