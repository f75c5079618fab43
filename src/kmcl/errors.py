"""The one error that means "the input is wrong", as opposed to "the program is wrong"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LONGEST_VALUE = 80
LONGEST_NAME = 255
"""Bytes of a file name on common file systems: a longer one names no file, so it may be cut."""
LONGEST_MESSAGE = 2000


class InputError(ValueError):
    """Invalid input from the user; the message says what is wrong, where, and what is accepted.

    The command line prints the message alone and exits with status 2. Write it for the user who has to
    correct the input: name the file, the line, the argument, the value that was found. Long values are cut
    (`shorten`).
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message))


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, otherwise nothing."""
    near = difflib.get_close_matches(name[:LONGEST_NAME], list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def shorten(message: str) -> str:
    """Cut quoted values at 80 characters (paths at 255), words without a slash at 255, and the whole at 2000.

    Values come from files, which can hold anything.
    """
    message = _QUOTED.sub(_cut, message)
    message = _WORD.sub(r"\1…", message)
    if len(message) > LONGEST_MESSAGE:
        tail = LONGEST_MESSAGE // 4
        message = f"{message[: LONGEST_MESSAGE - tail - 3]} … {message[-tail:]}"
    return message


def _cut(quoted: re.Match[str]) -> str:
    quote, value = quoted.groups()
    is_path = "/" in value or "\\" in value
    if len(value) <= (LONGEST_NAME if is_path else LONGEST_VALUE):
        return quoted[0]
    return f"{quote}{value[:LONGEST_VALUE]}…{quote}"


# A quote beside a letter on its outer side is an apostrophe.
_QUOTED = re.compile(r"(?<!\w)(['\"])((?:(?!\1(?!\w)).)*)\1(?!\w)", re.DOTALL)
_WORD = re.compile(rf"([^\s/\\]{{{LONGEST_VALUE}}})[^\s/\\]{{{LONGEST_NAME - LONGEST_VALUE},}}")


class TrainingError(RuntimeError):
    """Ends a training that can be continued; its notes say how."""


class LostProcessError(TrainingError):
    """Another process of a training ended, or cannot be reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"another process of this training was lost ({reason}); its own messages, on its machine, say why"
        )
