"""The one error that means "the input is wrong", as opposed to "the program is wrong"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Invalid input from the user; the message says what is wrong, where, and what is accepted.

    The command line prints the message alone and exits with status 2. Write it for the user who has to
    correct the input: name the file, the line, the argument, the value that was found.
    """


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, otherwise nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
