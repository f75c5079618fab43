"""Rows of a table that cannot be used: what is wrong with each, and one message about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kmcl.errors import InputError

SHOWN_KINDS = 8
SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class RowProblem:
    """A problem in one row.

    line:    counts from 1, in a file with the header as the first line
    message: what is wrong with this row
    kind:    what rows with the same problem have in common; the message itself if empty
    value:   what the row has there, as an example in a message about several rows
    column:  the column with the problem, if it is in one
    is_whole_column: whether the problem is that of most rows, of which `line` is the first
    """

    line: int
    message: str
    kind: str = ""
    value: str = ""
    column: str = ""
    is_whole_column: bool = False


class RowError(InputError):
    """Rows of a table that cannot be used; `problems` has them all, the message a line per kind.

    advice: what the user can do about it, at the end of the message
    """

    def __init__(
        self, source: Path | str, problems: Sequence[RowProblem], unit: str = "line", advice: str = ""
    ) -> None:
        self.source = source
        self.problems = tuple(problems)
        self.unit = unit
        self.advice = advice
        super().__init__(self._message())

    def with_advice(self, advice: str) -> Self:
        return type(self)(self.source, self.problems, self.unit, advice)

    @property
    def summary(self) -> list[str]:
        """A sentence for each kind of problem."""
        kinds: dict[str, list[RowProblem]] = {}
        for problem in self.problems:
            kinds.setdefault(problem.kind or problem.message, []).append(problem)
        lines = [self._describe(kind, members) for kind, members in list(kinds.items())[:SHOWN_KINDS]]
        more = len(kinds) - len(lines)
        return [*lines, f"and {more} more kinds of problems"] if more else lines

    def _describe(self, kind: str, problems: Sequence[RowProblem]) -> str:
        if len(problems) == 1:
            return f"{self.unit} {problems[0].line}: {problems[0].message}"
        other = next((problem for problem in problems if problem.value != problems[0].value), problems[1])
        examples = [
            f"{shown_value(problem.value)} ({self.unit} {problem.line})"
            if problem.value
            else f"{self.unit} {problem.line}"
            for problem in (problems[0], other)
        ]
        return f"{kind}: {len(problems)} rows, such as {' and '.join(examples)}"

    def _message(self) -> str:
        lines = self.summary
        if len(lines) > 1:
            advice = [self.advice] if self.advice else []
            return "\n  ".join([f"{self.source} cannot be used:", *lines, *advice])
        separator = " " if len(self.problems) == 1 else ": "
        return f"{self.source}{separator}{lines[0]}" + (f"; {self.advice}" if self.advice else "")


def shown_value(value: str) -> str:
    """A cell for a message, shortened."""
    cut = value if len(value) <= SHOWN_CHARACTERS else f"{value[: SHOWN_CHARACTERS - 1]}…"
    return repr(cut)
