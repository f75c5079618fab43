"""Rows of text with their numbers: the type, and how they are read from CSV and TSV files."""

from __future__ import annotations

import codecs
import csv
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import ImageStore
from kmcl.data.files import require_file
from kmcl.data.readers.compact_rows import CompactRows
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.data.recognition import require_table
from kmcl.errors import InputError

PARQUET_SUFFIXES = (".parquet", ".pq")
TAB_SUFFIXES = (".tsv", ".tab")


@dataclass(frozen=True)
class TableRows:
    """A table's header and its rows, each as long as the header.

    path:   the file, or None for a DataFrame
    lines:  the number of each row for messages: its line in the file, its place in the DataFrame from 1, or
            in another file without lines from 0
    stored: columns that hold the images themselves instead of their paths
    kind:   what the file is, for messages
    unannotated: of columns of label names, the places of the rows of which nothing is known
    refused: the numbers of the rows that cannot be used
    """

    path: Path | None
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]
    stored: Mapping[str, ImageStore] = field(default_factory=dict)
    kind: str = "table"
    unannotated: Mapping[str, frozenset[int]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set, compare=False)

    @property
    def has_lines(self) -> bool:
        return self.path is not None and self.kind == "table"

    @property
    def title(self) -> str:
        """Its name in messages."""
        return "DataFrame" if self.path is None else f"{self.kind} {self.path}"

    @property
    def header_title(self) -> str:
        """Prefix of messages about its columns."""
        return f"{self.title} line 1" if self.has_lines else self.title

    def refuse(self, problems: Sequence[RowProblem], advice: str = "") -> None:
        """Refuse the rows with these problems, see `refuse_rows`; of whole columns, no row."""
        if problems:
            self.refused.update(problem.line for problem in problems if not problem.is_whole_column)
            unit = "line" if self.has_lines else "row"
            refuse_rows(RowError(self.path or "DataFrame", problems, unit, advice))

    def usable_rows(self) -> npt.NDArray[np.int64]:
        """The places of the rows that were not refused; InputError if there is none."""
        usable = np.flatnonzero(~np.isin(self.lines, list(self.refused)))
        if not len(usable):
            raise InputError(f"{self.title} has no row that can be used")
        return usable

    def column(self, name: str) -> list[str]:
        position = self.header.index(name)
        if isinstance(self.rows, CompactRows):
            return [cell.strip() for cell in self.rows.column(position)]
        return [row[position].strip() for row in self.rows]


def read_rows(path: Path, encoding: str = "utf-8") -> TableRows:
    """Read a table; the suffix distinguishes Parquet from text; the delimiter of a .csv file is taken from
    its header.
    """
    require_table(path)
    require_file(path, "table")
    if path.suffix.lower() in PARQUET_SUFFIXES:
        from kmcl.data.readers.parquet import read_parquet

        return read_parquet(path)
    with _open_text(path, encoding) as text:
        return _read_delimited(path, text)


def _read_delimited(path: Path, text: TextIO) -> TableRows:
    """Line by line: the text of a large table is never in memory as a whole."""
    reader = csv.reader(text, delimiter=_delimiter(path, text))
    rows = CompactRows()
    lines = array("q")
    problems: list[RowProblem] = []
    header: tuple[str, ...] | None = None
    try:
        for row in reader:
            if not any(map(str.strip, row)):
                continue
            if header is None:
                header = check_header(f"table {path} line {reader.line_num}", row)
                continue
            # A trailing delimiter is harmless; a missing or additional value shifts columns.
            while len(row) > len(header) and not row[-1].strip():
                row.pop()
            if len(row) != len(header):
                message = f"{len(row)} values where the header has {len(header)}"
                kind = f"another number of values than the {len(header)} of the header"
                problems.append(RowProblem(reader.line_num, message, kind))
                continue
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"table {path} line {reader.line_num}: {error}") from error
    if problems:
        refuse_rows(RowError(path, problems))
    if header is None:
        raise InputError(f"table {path} is empty")
    if not rows:
        raise InputError(f"table {path} has a header but no rows")
    return TableRows(path, header, rows, lines)


@contextmanager
def _open_text(path: Path, encoding: str) -> Iterator[TextIO]:
    """The text of a file; InputError if it cannot be read, then or later, or is not in its encoding."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InputError(f"encoding={encoding!r} of table {path} is not a known encoding") from None
    try:
        with path.open("rb") as file:
            if encoding == "utf-8" and file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise InputError(f"table {path} line 1 is UTF-16; save it as UTF-8 or give encoding=utf-16")
        name = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
        with path.open(encoding=name, newline="") as text:
            yield text
    except OSError as error:
        raise InputError(f"table {path} cannot be read: {error.strerror}") from error
    except UnicodeError:
        raise _encoding_error(path, encoding) from None


def _encoding_error(path: Path, encoding: str) -> InputError:
    """Which line is not in the encoding: the whole file is decoded again, since blocks know no lines."""
    content = path.read_bytes()
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return InputError(
            f"table {path} line {line}: byte 0x{content[error.start]:02x} is not {encoding}; save it as "
            "UTF-8 or give encoding=latin-1 (or what it was saved in)"
        )
    return InputError(f"table {path} is not {encoding}; save it as UTF-8")


def _delimiter(path: Path, text: TextIO) -> str:
    if path.suffix.lower() in TAB_SUFFIXES:
        return "\t"
    lines = [*islice((line for line in text if line.strip()), 2)] or [""]
    text.seek(0)
    # Spreadsheets of many countries write semicolons into what they call CSV. The name of a label may have
    # more of them than there are columns, but then the row below has none.
    return max(",;\t", key=lambda sign: (min(line.count(sign) for line in lines), lines[0].count(sign)))


def check_header(place: str, cells: Sequence[str]) -> tuple[str, ...]:
    header = [cell.strip() for cell in cells]
    while header and not header[-1]:
        header.pop()
    if "" in header:
        raise InputError(f"{place}: column {header.index('') + 1} has no name")
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise InputError(f"{place}: column {repeated[0]!r} stands twice in the header")
    return tuple(header)
