"""Rows that cannot be used: what is wrong with each, and one message about those of all stages of reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from kmcl.errors import InputError

SHOWN_KINDS = 8
SHOWN_EXAMPLES = 2
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
    place:   where it is, if that is no line of the source: in a file of one image, or a task with an id
    """

    line: int
    message: str
    kind: str = ""
    value: str = ""
    column: str = ""
    is_whole_column: bool = False
    place: str = ""


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

    def sentences(self, num_examples: int = SHOWN_EXAMPLES) -> list[str]:
        """One for each of the first kinds of problems, with so many of its rows at most."""
        kinds: dict[str, list[RowProblem]] = {}
        for problem in self.problems:
            kinds.setdefault(problem.kind or problem.message, []).append(problem)
        lines = [
            self._describe(kind, members, num_examples)
            for kind, members in list(kinds.items())[: max(SHOWN_KINDS, num_examples)]
        ]
        more = len(kinds) - len(lines)
        return [*lines, f"and {more} more kinds of problems"] if more else lines

    def _describe(self, kind: str, problems: Sequence[RowProblem], num_examples: int) -> str:
        if len(problems) == 1:
            return f"{self._place(problems[0])}: {problems[0].message}"
        distinct: dict[str, RowProblem] = {}
        repeated = [one for one in problems if distinct.setdefault(one.value, one) is not one]
        chosen = [*distinct.values(), *repeated][:num_examples]
        examples = [
            f"{shown_value(problem.value)} ({self._place(problem)})"
            if problem.value
            else self._place(problem)
            for problem in sorted(chosen, key=lambda problem: problem.line)
        ]
        such_as = " such as" if len(problems) > num_examples else ""
        listed = " and ".join([", ".join(examples[:-1]), examples[-1]])
        noun = "places" if problems[0].place else "rows"
        return f"{kind}: {len(problems):,} {noun},{such_as} {listed}"

    def _place(self, problem: RowProblem) -> str:
        return problem.place or f"{self.unit} {problem.line}"

    def _message(self) -> str:
        lines = self.sentences()
        if len(lines) > 1:
            advice = [self.advice] if self.advice else []
            return "\n  ".join([f"{self.source} cannot be used:", *lines, *advice])
        separator = " " if len(self.problems) == 1 else ": "
        return f"{self.source}{separator}{lines[0]}" + (f"; {self.advice}" if self.advice else "")


def shown_value(value: str) -> str:
    """A cell for a message, shortened."""
    cut = value if len(value) <= SHOWN_CHARACTERS else f"{value[: SHOWN_CHARACTERS - 1]}…"
    return repr(cut)


_collected: ContextVar[list[RowError] | None] = ContextVar("collected row errors", default=None)


@contextmanager
def collected_row_errors() -> Iterator[list[RowError]]:
    """Inside, `refuse_rows` leaves errors in this list instead of raising the first of them."""
    errors: list[RowError] = []
    token = _collected.set(errors)
    try:
        yield errors
    finally:
        _collected.reset(token)


def refuse_rows(error: RowError) -> None:
    """Raise the error, or leave it to who collects those of all stages; then go on without the rows."""
    errors = _collected.get()
    if errors is None:
        raise error
    errors.append(error)


def by_source(errors: Sequence[RowError]) -> tuple[RowError, ...]:
    """One error for each file, with its problems in the order of the rows."""
    parts: dict[tuple[str, str], list[RowError]] = {}
    for error in errors:
        parts.setdefault((str(error.source), error.unit), []).append(error)
    return tuple(
        RowError(
            of_source[0].source,
            sorted((one for error in of_source for one in error.problems), key=lambda one: one.line),
            unit,
            "; ".join(dict.fromkeys(error.advice for error in of_source if error.advice)),
        )
        for (_, unit), of_source in parts.items()
    )
