"""Rows of a table in little memory: those of 0/1 columns take a byte for a cell instead of eight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

Row = tuple[str, ...]


class CompactRows(Sequence[Row]):
    """Rows of equal length, to which more can be appended.

    The first row says from which column on all cells are single characters. Of rows like it, these cells are
    stored as one string; other rows are stored as they are.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Row, str]] = []
        self._num_first: int | None = None

    def append(self, row: Sequence[str]) -> None:
        if self._num_first is None:
            longer = [place for place, cell in enumerate(row) if len(cell) != 1]
            self._num_first = longer[-1] + 1 if longer else 0
        first, last = tuple(row[: self._num_first]), row[self._num_first :]
        joined = "".join(last)
        is_like_first = len(joined) == len(last) and "" not in last
        self._rows.append((first, joined) if is_like_first else (tuple(row), ""))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [(*first, *joined) for first, joined in self._rows[place]]
        first, joined = self._rows[place]
        return (*first, *joined)

    def __iter__(self) -> Iterator[Row]:
        return ((*first, *joined) for first, joined in self._rows)

    def column(self, place: int) -> list[str]:
        """The cells of one column, without taking the others apart."""
        return [
            first[place] if place < len(first) else joined[place - len(first)] for first, joined in self._rows
        ]
