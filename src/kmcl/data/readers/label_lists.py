"""Cells that hold a list of label names: `['cat', 'dog']`, as Python, JSON, numpy and pandas write one."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# numpy writes no comma between the names.
_LIST = re.compile(rf"\s*(?:(?:{_QUOTED})(?:\s*,\s*|\s+|\s*$))*")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}


def write_list(names: Sequence[object]) -> str:
    """A list as the text of a cell, which `parse_list` reads whatever characters the names have."""
    return repr([str(name) for name in names])


def is_list_column(cells: Sequence[str]) -> bool:
    """Whether the cells of a column hold lists: any of them one with quotes, or each of them `[a, b]`.

    A single `[a]` among other cells is a label's name.
    """
    filled = [cell for cell in cells if cell]
    return any(_is_quoted_list(cell) for cell in filled) or (
        bool(filled) and all(cell[0] == "[" and parse_list(cell) is not None for cell in filled)
    )


def parse_list(cell: str) -> list[str] | None:
    """The names in a list; None if the cell is not a list."""
    if len(cell) < 2 or _BRACKETS.get(cell[0]) != cell[-1]:
        return None
    inside = cell[1:-1].strip()
    if _LIST.fullmatch(inside):
        names = [_unquote(text) for text in re.findall(_QUOTED, inside)]
        return [name.strip() for name in names if name.strip()]
    if cell[0] != "[" or any(sign in inside for sign in "[]'\""):
        return None
    return [name for name in (part.strip() for part in inside.split(",")) if name]


def _is_quoted_list(cell: str) -> bool:
    return (cell == "[]" or "'" in cell or '"' in cell) and parse_list(cell) is not None


def _unquote(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):  # such as an unfinished escape sequence
        return text[1:-1]
