"""The one error that means "the input is wrong", as opposed to "the program is wrong"."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, where and what would do.

    The command line prints the message alone and ends with status 2. Write it for the person who has
    to mend the input: name the file, the line, the argument, the value that was found.
    """
