"""What a piece of source is mistaken for: operators, names, constants."""

from __future__ import annotations

import ast

OPERATORS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("/",)),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("/",)),
    ast.Mod: ("%", ("//",)),
    ast.Pow: ("**", ("*",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.And: ("and", ("or",)),
    ast.Or: ("or", ("and",)),
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
}
"""How an operator is written, and what it is mistaken for."""

SIMILAR = [
    ("min", "max"),
    ("any", "all"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("floor", "ceil"),
    ("left", "right"),
]
MISTAKEN = {name: other for pair in SIMILAR for name, other in (pair, pair[::-1])}

CASTS = {
    "int",
    "float",
    "bool",
    "str",
    "tuple",
    "list",
    "dict",
    "set",
    "cast",
    "iter",
    "super",
    "repr",
    "type",
}
"""Calls that are not dropped: most only change the type of a value."""


def other_constants(value: object) -> list[bytes]:
    if isinstance(value, bool):
        return [str(not value).encode()]
    if isinstance(value, int):
        return [f"{value + 1}".encode(), f"{value - 1}".encode()]
    if isinstance(value, float):
        return [f"{2 * value + (value == 0)!r}".encode(), f"{value / 2!r}".encode()][: 2 if value else 1]
    return [b'""'] if isinstance(value, str) and value else []
