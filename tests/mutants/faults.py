"""Faults that can be planted in a source file, one at a time: what a slip of the hand looks like.

An operator, a constant, a condition, a dropped call, a dropped argument, the wrong one of two similar names
(min for max). Each replaces one piece of text. Docstrings, annotations, `__all__`, imports, what a `raise`
says and `strict` of a zip, which guards against our own errors, are left alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from mutants.replacements import CASTS, MISTAKEN, OPERATORS, other_constants


@dataclass(frozen=True)
class Mutant:
    """One fault in one file.

    file:         below the folder of the package
    line:         of the fault, from 1
    before:       the source lines it is on, stripped
    after:        the same with the fault
    source:       the whole mutated file
    first, last:  lines whose tests can notice: the statement's, or the function's for its defaults;
                  0 and 0 for what runs when the module is imported
    occurrence:   0, or how many mutants of the file have the same text before this one
    """

    file: str
    line: int
    before: str
    after: str
    source: bytes
    first: int
    last: int
    occurrence: int

    @property
    def compiles(self) -> bool:
        try:
            compile(self.source, self.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True

    @property
    def identity(self) -> str:
        """Stays the same when other lines of the file change."""
        return hashlib.sha1(
            f"{self.file}\n{self.before}\n{self.after}\n{self.occurrence}".encode()
        ).hexdigest()[:8]


@dataclass(frozen=True)
class _Edit:
    start: int
    stop: int
    text: bytes
    node: ast.AST


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines. A few do not compile: `Mutant.compiles` tells."""
    planted = _Planter(source)
    planted.visit(planted.tree)
    found: dict[bytes, Mutant] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for edit in planted.edits:
        mutated = source[: edit.start] + edit.text + source[edit.stop :]
        if mutated in found:
            continue
        begin = source.rfind(b"\n", 0, edit.start) + 1
        end = source.find(b"\n", edit.stop)
        end = len(source) if end < 0 else end
        after = source[begin : edit.start] + edit.text + source[edit.stop : end]
        first, last = planted.region(edit.node)
        text = (_one_line(source[begin:end]), _one_line(after))
        seen[text] += 1
        found[mutated] = Mutant(
            file=file,
            line=source.count(b"\n", 0, edit.start) + 1,
            before=text[0],
            after=text[1],
            source=mutated,
            first=first,
            last=last,
            occurrence=seen[text] - 1,
        )
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.after))


class _Planter(ast.NodeVisitor):
    """Collects the edits of a source file."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self.edits: list[_Edit] = []
        self.line_starts = [0]
        for line in source.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.imported = {
            (alias.asname or alias.name).split(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.Assert):
            return
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return
        for edit in self._edits_of(node):
            self.edits.append(edit)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_documentation(child):
                    self.visit(child)

    def region(self, node: ast.AST) -> tuple[int, int]:
        statement = node
        while not isinstance(statement, ast.stmt):
            statement = self.parents[statement]
        if isinstance(statement, ast.FunctionDef):  # its defaults or decorators
            return statement.lineno, statement.end_lineno or 0
        function: ast.AST | None = statement
        while function is not None and not isinstance(function, ast.FunctionDef):
            function = self.parents.get(function)
        if function is None:
            return 0, 0
        last = statement.end_lineno or 0
        if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
            last = max(statement.lineno, statement.body[0].lineno - 1)
        return statement.lineno, last

    def _edits_of(self, node: ast.AST) -> Iterator[_Edit]:
        match node:
            case ast.BinOp(left, operator, right) | ast.AugAssign(left, operator, right):
                yield from self._operator(node, left, operator, right)
                if isinstance(node, ast.AugAssign):
                    yield from self._operator(node, left, operator, right, (b"",))
            case ast.BoolOp(operator, values):
                for left, right in pairwise(values):
                    yield from self._operator(node, left, operator, right)
            case ast.Compare(left, operators, comparators):
                for left, operator, right in zip(
                    [node.left, *comparators], operators, comparators, strict=False
                ):
                    yield from self._operator(node, left, operator, right)
            case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
                yield self._replace(node, b"(" + self._text(operand) + b")")
            case ast.If(test) | ast.IfExp(test) | ast.While(test):
                yield self._replace(test, b"True")
                yield self._replace(test, b"False")
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield self._replace(test, b"True")
                    yield self._replace(test, b"False")
            case ast.Constant(value):
                for text in other_constants(value):
                    yield self._replace(node, text)
            case ast.JoinedStr():
                yield self._replace(node, b'""')
            case ast.Expr(ast.Call()):
                yield self._replace(node, b"pass")
            case ast.Call():
                yield from self._calls(node)
            case ast.Name(name) | ast.Attribute(attr=name) if name in MISTAKEN:
                stop = self._stop(node)
                yield _Edit(stop - len(name), stop, MISTAKEN[name].encode(), node)
            case ast.Break():
                yield self._replace(node, b"continue")
            case ast.Continue():
                yield self._replace(node, b"break")

    def _operator(
        self,
        node: ast.AST,
        left: ast.AST,
        operator: ast.AST,
        right: ast.AST,
        others: tuple[bytes, ...] | None = None,
    ) -> Iterator[_Edit]:
        if type(operator) not in OPERATORS:
            return
        written, mistaken = OPERATORS[type(operator)]
        start = self.source.find(written.encode(), self._stop(left), self._start(right))
        if start < 0:
            return
        for other in others if others is not None else tuple(text.encode() for text in mistaken):
            yield _Edit(start, start + len(written), other, node)

    def _calls(self, node: ast.Call) -> Iterator[_Edit]:
        """The call dropped, its object or its only argument kept; each keyword argument dropped."""
        function = node.func
        if isinstance(function, ast.Attribute) and self._root(function) not in self.imported | {
            "super",
            "cls",
        }:
            yield self._replace(node, b"(" + self._text(function.value) + b")")
        elif (
            len(node.args) == 1
            and not node.keywords
            and not isinstance(node.args[0], ast.Starred)
            and not (isinstance(function, ast.Name) and function.id in CASTS)
        ):
            yield self._replace(node, b"(" + self._text(node.args[0]) + b")")
        for keyword in node.keywords:
            if keyword.arg not in (None, "strict"):
                start, stop = self._start(keyword), self._stop(keyword)
                rest = self.source[stop:]
                stop += len(rest) - len(rest.lstrip())
                if self.source[stop : stop + 1] == b",":
                    stop += 1
                    yield _Edit(start, stop, b"", keyword)
                else:
                    yield _Edit(start, self._stop(keyword), b"", keyword)

    def _root(self, node: ast.expr) -> str:
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
            if isinstance(node, ast.Call):
                return ""
        return node.id if isinstance(node, ast.Name) else ""

    def _replace(self, node: ast.AST, text: bytes) -> _Edit:
        return _Edit(self._start(node), self._stop(node), text, node)

    def _text(self, node: ast.AST) -> bytes:
        return self.source[self._start(node) : self._stop(node)]

    def _start(self, node: ast.AST) -> int:
        return self.line_starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _stop(self, node: ast.AST) -> int:
        return self.line_starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def _is_documentation(node: ast.AST) -> bool:
    """A string that stands alone, or the list of public names."""
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())
