"""Rows of text with their line numbers, from CSV, TSV and Parquet files that people made by hand."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kmcl.data.files import require_file
from kmcl.errors import InputError

PARQUET_SUFFIXES = (".parquet", ".pq")
TAB_SUFFIXES = (".tsv", ".tab")
SHOWN_PROBLEMS = 3


@dataclass(frozen=True)
class RowProblem:
    """What is wrong in one row; `line` counts from 1 with the header as the first line."""

    line: int
    message: str


class RowError(InputError):
    """Rows of a file that cannot be used: the message shows the first, `problems` has them all."""

    def __init__(self, path: Path, problems: Sequence[RowProblem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        shown = "; ".join(f"line {p.line}: {p.message}" for p in self.problems[:SHOWN_PROBLEMS])
        rest = len(self.problems) - SHOWN_PROBLEMS
        super().__init__(f"{path} {shown}" + (f"; and {rest} more" if rest > 0 else ""))


@dataclass(frozen=True)
class TableRows:
    """A file's header and its rows, each as long as the header; `lines` has their line numbers."""

    path: Path
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        position = self.header.index(name)
        return [row[position].strip() for row in self.rows]


def read_rows(path: Path, encoding: str = "utf-8") -> TableRows:
    """Read a table; the suffix tells Parquet from text, the header line the delimiter of a .csv file."""
    require_file(path, "table")
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return _read_parquet(path)
    text = _read_text(path, encoding)
    if not text.strip():
        raise InputError(f"table {path} is empty")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(path, text))
    rows: list[list[str]] = []
    lines: list[int] = []
    problems: list[RowProblem] = []
    header: tuple[str, ...] | None = None
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = _checked_header(path, row, reader.line_num)
                continue
            # A trailing delimiter is harmless; a missing or additional value shifts columns.
            while len(row) > len(header) and not row[-1].strip():
                row.pop()
            if len(row) != len(header):
                message = f"{len(row)} values where the header has {len(header)}"
                problems.append(RowProblem(reader.line_num, message))
                continue
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"table {path} line {reader.line_num}: {error}") from error
    if problems:
        raise RowError(path, problems)
    if header is None or not rows:
        raise InputError(f"table {path} has a header but no rows")
    return TableRows(path, header, rows, lines)


def _read_text(path: Path, encoding: str) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"table {path} cannot be read: {error.strerror}") from error
    if encoding == "utf-8" and content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"table {path} line 1 is UTF-16; save it as UTF-8 or give encoding=utf-16")
    try:
        return content.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise InputError(f"encoding={encoding!r} of table {path} is not a known encoding") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x}"
        raise InputError(
            f"table {path} line {line}: {found} is not {encoding}; save it as UTF-8 or give "
            "encoding=latin-1 (or what it was saved in)"
        ) from None


def _delimiter(path: Path, text: str) -> str:
    if path.suffix.lower() in TAB_SUFFIXES:
        return "\t"
    first_line = next(line for line in text.splitlines() if line.strip())
    # Spreadsheets of many countries write semicolons into what they call CSV.
    return max(",;\t", key=first_line.count)


def _checked_header(path: Path, cells: Sequence[str], line: int) -> tuple[str, ...]:
    header = [cell.strip() for cell in cells]
    while header and not header[-1]:
        header.pop()
    if "" in header:
        raise InputError(f"table {path} line {line}: column {header.index('') + 1} has no name")
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise InputError(f"table {path} line {line}: column {repeated[0]!r} stands twice in the header")
    return tuple(header)


def _read_parquet(path: Path) -> TableRows:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise InputError(f"reading {path} needs a Parquet engine: pip install pyarrow") from None
    except Exception as error:
        raise InputError(f"table {path} is not a readable Parquet file: {error}") from error
    header = _checked_header(path, [str(name) for name in frame.columns], 1)
    if frame.empty:
        raise InputError(f"table {path} has no rows")
    columns = [
        [
            "" if missing else str(value)
            for value, missing in zip(frame[name], frame[name].isna(), strict=True)
        ]
        for name in frame.columns
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    # Parquet has no lines; rows are numbered as if the header were the first.
    return TableRows(path, header, rows, list(range(2, len(rows) + 2)))
