"""The names of columns that the reader of tables takes for something other than a label."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from kmcl.errors import InputError

IMAGE_COLUMNS = (
    *("image", "path", "file", "filename", "file_name", "image_path", "filepath", "image_file", "image_name"),
    *("image_id", "imageid", "image index"),
)
SPLIT_COLUMNS = ("split",)
GROUP_COLUMNS = ("group", "patient", "patient_id", "patientid", "patient id")
NAME_COLUMNS = ("labels", "finding labels")
UNKNOWN_COLUMNS = ("unknown_labels",)
SOURCE_COLUMNS = ("source",)
"""Taken only where the option `sources` is given."""


def usual_column(header: Sequence[str], usual: Sequence[str]) -> str | None:
    """The column that has the first of the usual names that occur, in whatever case."""
    by_lower_case = {name.lower(): name for name in reversed(header)}
    return next((by_lower_case[name] for name in usual if name in by_lower_case), None)


def columns_beside(labels: Sequence[str], has_groups: bool) -> list[str]:
    """The columns of a written table before those of its labels: `image`, `split`, perhaps `group`.

    There is a column of groups also where it is blank and a label `patient` would be taken for it otherwise.
    InputError with the label that a reader would still take for another column.
    """
    require_names(labels)
    has_groups = has_groups or usual_column(labels, GROUP_COLUMNS) is not None
    columns = [IMAGE_COLUMNS[0], SPLIT_COLUMNS[0], *([GROUP_COLUMNS[0]] if has_groups else [])]
    taken = {
        usual_column([*columns, *labels], usual)
        for usual in (IMAGE_COLUMNS, SPLIT_COLUMNS, GROUP_COLUMNS, NAME_COLUMNS, UNKNOWN_COLUMNS)
    }
    lost = next((label for label in labels if label in taken), None)
    if lost is not None:
        raise InputError(
            f"a label called {lost!r} cannot be written to a table, whose reader takes such a column for "
            "something else; rename it, or write coco:, labelstudio: or hf: with kmcl data convert"
        )
    return columns


def require_names(labels: Sequence[str]) -> None:
    """InputError with a label that readers would not give back as it is: they strip names."""
    for label in labels:
        if label != label.strip() or not label or any(unicodedata.category(sign) == "Cc" for sign in label):
            raise InputError(
                f"a label called {label!r} cannot be written: a name must not be empty, begin or end with a "
                "space, or have line breaks, tabs and other control characters; rename it"
            )
