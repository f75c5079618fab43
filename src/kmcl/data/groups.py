"""Groups of images, such as those of a patient. An image with a blank group is in none: it is by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Split

Groups = Sequence[str] | npt.NDArray[np.str_]


def has_groups(groups: Groups | None) -> bool:
    """Whether any image is in a group."""
    return groups is not None and bool(_is_named(groups).any())


def named_groups(groups: Groups | None) -> list[str]:
    """The groups that there are, each once, sorted."""
    return [] if groups is None else np.unique(np.asarray(groups)[_is_named(groups)]).tolist()


def units_of_rows(groups: Groups | None, num_rows: int) -> npt.NDArray[np.int64]:
    """N numbers of units: of the groups, sorted by name, then of each image that is in none."""
    if groups is None:
        return np.arange(num_rows)
    named = _is_named(groups)
    names, unit_of_named = np.unique(np.asarray(groups)[named], return_inverse=True)
    units = np.empty(num_rows, dtype=np.int64)
    units[named] = unit_of_named.reshape(-1)
    units[~named] = len(names) + np.arange(num_rows - len(unit_of_named))
    return units


def join_groups(splits: Iterable[Split]) -> npt.NDArray[np.str_] | None:
    """The groups of all rows, one split after the other; None where no image is in a group."""
    parts = [np.full(len(split), "") if split.groups is None else split.groups for split in splits]
    joined = np.concatenate([np.zeros(0, dtype=np.str_), *parts])
    return joined if has_groups(joined) else None


def group_name(value: object) -> str:
    """What a JSON file says of an image's group, as text: nothing where it says null."""
    return "" if value is None else str(value).strip()


def _is_named(groups: Groups) -> npt.NDArray[np.bool_]:
    named: npt.NDArray[np.bool_] = np.char.strip(np.asarray(groups, dtype=np.str_)) != ""
    return named
