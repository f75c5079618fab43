"""Finding problems of a dataset: every image is decoded, every row checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset, Split
from kmcl.data.groups import named_groups
from kmcl.data.readers.registry import read_usable_rows
from kmcl.data.readers.row_problems import RowError
from kmcl.data.target_pairs import count_images
from kmcl.data.vectors import feature_dim, feature_dim_of, take_vectors
from kmcl.errors import InputError, shorten

ProblemKind = Literal[
    "unusable row",
    "unreadable image",
    "duplicate row",
    "image in two splits",
    "group in two splits",
    "label without positive",
]

EXAMPLES = 20
"""Of the rows with the same problem, in the summary; the list of problems has all."""
CHUNK = 256  # images in flight: enough for the threads, few enough to fit in memory


@dataclass(frozen=True)
class Problem:
    """One problem.

    line:  in the label file, if it has lines; row: the position in the split, from 0.
    file:  of a row that cannot be used
    """

    kind: ProblemKind
    message: str
    split: str | None = None
    row: int | None = None
    line: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class CheckReport:
    """The problems found in a dataset, and how many images were decoded to find them.

    summary: about rows that cannot be used, a sentence for each kind of problem, and what to do; the other
             problems are those of the remaining rows
    notes:   what the reader left out or took for granted, no problem by itself
    """

    name: str
    num_images: int
    problems: tuple[Problem, ...]
    summary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_refused(self) -> int:
        """Problems of rows that cannot be used."""
        return sum(problem.kind == "unusable row" for problem in self.problems)

    @property
    def is_summary_complete(self) -> bool:
        """Whether `summary` has every row that cannot be used."""
        return self.num_refused <= EXAMPLES


Progress = Callable[[int, int], None]
"""Called with the number of images done and their total."""


def check_spec(
    spec: str, options: Mapping[str, object], num_threads: int = 2, progress: Progress | None = None
) -> CheckReport:
    """Open a dataset and check it; rows that cannot be used are listed, other bad input is an InputError."""
    dataset, errors, failure = read_usable_rows(spec, options)
    if dataset is not None:
        report = check_dataset(dataset, num_threads, progress)
    else:
        notes = () if failure is None else (f"the other rows were not checked: {failure}",)
        report = CheckReport(spec, 0, (), notes=notes)
    if not errors:
        return report
    # The positives of a label may be in the rows that are left out.
    others = [problem for problem in report.problems if problem.kind != "label without positive"]
    return replace(
        report,
        name=str(errors[0].source) if len(errors) == 1 else report.name,
        problems=(*(problem for error in errors for problem in _unusable_rows(error)), *others),
        summary=tuple(sentence for error in errors for sentence in _summary(error, len(errors) > 1)),
    )


def _unusable_rows(error: RowError) -> Iterator[Problem]:
    for problem in error.problems:
        message = f"{problem.place}: {problem.message}" if problem.place else problem.message
        line = None if problem.place else problem.line
        yield Problem("unusable row", shorten(message), line=line, file=str(error.source))


def _summary(error: RowError, is_one_of_several: bool) -> list[str]:
    sentences = [*error.sentences(EXAMPLES), *([error.advice] if error.advice else [])]
    return [f"{error.source}: {sentence}" for sentence in sentences] if is_one_of_several else sentences


def check_dataset(dataset: Dataset, num_threads: int = 2, progress: Progress | None = None) -> CheckReport:
    """Decode every image and look for problems that affect training or evaluation."""
    total = sum(len(split) for split in dataset.splits.values())
    problems: list[Problem] = []
    seen: dict[bytes, tuple[str, int]] = {}
    done = 0
    with ThreadPoolExecutor(num_threads) as pool:
        for name, split in dataset.splits.items():
            for start in range(0, len(split), CHUNK):
                rows = range(start, min(start + CHUNK, len(split)))
                for row, result in zip(rows, pool.map(lambda r: _digest(split, r), rows), strict=True):  # noqa: B023
                    problems.extend(_image_problems(dataset, name, row, result, seen))
                done += len(rows)
                if progress is not None:
                    progress(done, total)
    problems.extend(_duplicate_rows(dataset))
    problems.extend(_shared_groups(dataset))
    problems.extend(_labels_without_positive(dataset))
    return CheckReport(dataset.name, total, tuple(problems), notes=dataset.notes)


def _digest(split: Split, row: int) -> bytes | InputError:
    """A hash of the decoded pixels, so that the same picture is found in different files or formats; or of
    the numbers of a feature vector.
    """
    pixels: npt.NDArray[Any]
    try:
        if feature_dim_of(split.images) is None:
            pixels = split.images.load(row)
        else:
            pixels = take_vectors(split.images, np.array([row]))
    except InputError as error:
        return error
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def _image_problems(
    dataset: Dataset, name: str, row: int, result: bytes | InputError, seen: dict[bytes, tuple[str, int]]
) -> Iterator[Problem]:
    if isinstance(result, InputError):
        yield _problem(dataset, "unreadable image", str(result), name, row)
        return
    other_name, other_row = seen.setdefault(result, (name, row))
    if other_name != name:
        image = dataset.splits[name].images.name(row)
        other = dataset.splits[other_name].images.name(other_row)
        noun = "image" if feature_dim(dataset) is None else "row"
        message = f"{noun} {image} has the same content as {other} of {other_name}"
        yield _problem(dataset, "image in two splits", message, name, row)


def _problem(dataset: Dataset, kind: ProblemKind, message: str, name: str, row: int) -> Problem:
    lines = dataset.splits[name].lines
    return Problem(kind, message, name, row, None if lines is None else int(lines[row]))


def _duplicate_rows(dataset: Dataset) -> Iterator[Problem]:
    first_places: dict[str, tuple[str, int]] = {}
    for name, split in dataset.splits.items():
        for row in range(len(split)):
            image = split.images.name(row)
            first_name, first_row = first_places.setdefault(image, (name, row))
            if (first_name, first_row) == (name, row):
                continue
            same = np.array_equal(dataset.splits[first_name].targets[first_row], split.targets[row])
            labels = "the same labels" if same else "other labels"
            message = f"image {image} is listed again with {labels} ({first_name} row {first_row})"
            yield _problem(dataset, "duplicate row", message, name, row)


def _shared_groups(dataset: Dataset) -> Iterator[Problem]:
    first_split: dict[str, str] = {}
    for name, split in dataset.splits.items():
        if split.groups is None:
            continue
        groups, rows = np.unique(split.groups, return_index=True)
        row_of = dict(zip(groups.tolist(), rows.tolist(), strict=True))
        for group in named_groups(split.groups):
            other = first_split.setdefault(group, name)
            if other != name:
                message = f"group {group!r} has images in {other} and in {name}"
                yield _problem(dataset, "group in two splits", message, name, row_of[group])


def _labels_without_positive(dataset: Dataset) -> Iterator[Problem]:
    for name, split in dataset.splits.items():
        for label, num_images in zip(dataset.labels, count_images(split.targets), strict=True):
            if not num_images:
                yield Problem("label without positive", f"label {label!r} has no positive in {name}", name)
