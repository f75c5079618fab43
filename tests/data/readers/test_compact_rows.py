"""Rows in little memory are the rows that were appended."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kmcl.data.readers.compact_rows import CompactRows

CELLS = st.sampled_from(["0", "1", "", "10", "-1", "x", "✓", "photo.jpg", " 1"])


def compact(rows: list[tuple[str, ...]]) -> CompactRows:
    kept = CompactRows()
    for row in rows:
        kept.append(list(row))
    return kept


@given(st.integers(1, 5).flatmap(lambda width: st.lists(st.tuples(*[CELLS] * width), max_size=6)))
def test_rows_and_columns_are_those_appended(rows: list[tuple[str, ...]]):
    kept = compact(rows)
    assert list(kept) == rows
    assert [kept[place] for place in range(len(kept))] == rows
    assert kept[1:] == rows[1:]
    assert [kept.column(place) for place in range(len(rows[0]) if rows else 0)] == [
        list(column) for column in zip(*rows, strict=True)
    ]


def test_a_cell_of_a_0_1_column_takes_a_byte():
    tracemalloc.start()
    kept = compact([("a.jpg", *"01" * 500)] * 200)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 200
    assert size < 200 * (1000 + 250)
