"""Word vectors for the names of labels, from a text file as GloVe's."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from kmcl.errors import InputError


@lru_cache(maxsize=1)  # their width is needed to build the head, before the head reads them
def read_word_vectors(path: Path, labels: tuple[str, ...]) -> tuple[list[list[float]], ...]:
    """For each label the vectors of the words of its name; a line of the file is a word and its numbers.

    A label gets the vector of its whole name alone if the file has one.
    """
    names = {label: (label.lower(), *re.findall(r"[^\W_]+", label.lower())) for label in labels}
    wanted = {word for words in names.values() for word in words}
    found: dict[str, list[float]] = {}
    width = None
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.rstrip().partition(" ")
                if word.lower() not in wanted or word.lower() in found:
                    continue
                found[word.lower()] = vector = _numbers(path, number, word, numbers)
                width = len(vector) if width is None else width
                if len(vector) != width:
                    raise InputError(
                        f"{path}, line {number}: {word!r} has {len(vector)} numbers; others have {width}"
                    )
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    vectors = {label: [found[word] for word in words if word in found] for label, words in names.items()}
    missing = [label for label, known in vectors.items() if not known]
    if missing:
        raise InputError(f"{path}: has no vector for the words of label {', '.join(map(repr, missing))}")
    return tuple([found[label.lower()]] if label.lower() in found else vectors[label] for label in labels)


def _numbers(path: Path, line: int, word: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split()]
    except ValueError:
        raise InputError(f"{path}, line {line}: what follows {word!r} are not all numbers") from None
    if not numbers:
        raise InputError(f"{path}, line {line}: no numbers follow {word!r}")
    return numbers
