"""Splitting a dataset so that the labels' proportions are preserved (iterative stratification)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Split
from kmcl.data.groups import units_of_rows
from kmcl.data.readers.options import CutOptions, DrawOptions, ReaderOptions
from kmcl.data.selection import divide_in_place, select_parts, take_subset
from kmcl.data.target_pairs import Counts, present_pairs
from kmcl.errors import InputError


def stratify(
    targets: npt.NDArray[np.int8],
    fractions: Sequence[float],
    seed: int,
    groups: npt.NDArray[np.str_] | None = None,
) -> npt.NDArray[np.int64]:
    """Assign every row to one part so that each part holds its fraction of every label.

    The iterative stratification of Sechidis, Tsoumakas and Vlahavas (2011): the rarest label that still has
    unassigned rows goes first; each of its rows goes to the part that lacks most of that label, then to the
    part that lacks most rows, then to one at random. Here the unit is a group, counted with all its rows, so
    a patient's images stay together; large groups are assigned before small ones, which can still balance the
    parts.

    targets:   N x L; only 1 counts as carrying a label.
    fractions: one per part, summing to 1.
    returns:   N numbers of parts.
    """
    rng = np.random.default_rng(seed)
    unit_of_row = units_of_rows(groups, len(targets))
    num_units = int(unit_of_row.max(initial=-1)) + 1
    size_of_unit = np.bincount(unit_of_row, minlength=num_units)
    carried = _count_labels(targets, unit_of_row, num_units)

    parts = range(len(fractions))
    wanted_rows = [fraction * len(targets) for fraction in fractions]
    wanted_labels = np.outer(carried.remaining, fractions).tolist()
    part_of_unit = np.full(num_units, -1, dtype=np.int64)
    tie_breaks = rng.random((num_units, len(fractions))).reshape(-1).data
    shuffled = rng.permutation(num_units)
    # The arithmetic below runs once per unit on a few labels: plain numbers are faster than arrays there, and
    # memoryviews give them one at a time, where lists would hold millions.
    remaining = carried.remaining.tolist()
    sizes, starts, labels, counts = (
        part.data for part in (size_of_unit, carried.starts, carried.labels, carried.counts)
    )

    def assign(unit: int, part: int) -> None:
        wanted_rows[part] -= sizes[unit]
        for place in range(starts[unit], starts[unit + 1]):
            label, count = labels[place], counts[place]
            wanted_labels[label][part] -= count
            remaining[label] -= count

    by_label = carried.by_label(shuffled)
    while any(remaining):
        label = min((count, label) for label, count in enumerate(remaining) if count)[1]
        places = by_label(label)
        places = places[part_of_unit[carried.units[places]] < 0]
        units = carried.units[places[np.argsort(-carried.counts[places], kind="stable")]]
        wanted = wanted_labels[label]
        chosen = []
        for unit in units.tolist():
            most = max(wanted)
            if wanted.count(most) == 1:
                part = wanted.index(most)
            else:
                first = unit * len(fractions)
                part = max(parts, key=lambda p: (wanted[p], wanted_rows[p], tie_breaks[first + p]))
            assign(unit, part)
            chosen.append(part)
        part_of_unit[units] = chosen
    unlabelled = shuffled[part_of_unit[shuffled] < 0]
    for unit in unlabelled[np.argsort(-size_of_unit[unlabelled], kind="stable")].tolist():
        first = unit * len(fractions)
        part = max(parts, key=lambda p: (wanted_rows[p], tie_breaks[first + p]))
        wanted_rows[part] -= sizes[unit]
        part_of_unit[unit] = part
    return part_of_unit[unit_of_row]


class _Carried(NamedTuple):
    """How many rows of each unit carry each label, where any do: one entry for each such unit and label.

    units, labels, counts: of the entries, in order of units, then labels
    starts:    the first entry of each unit, and the number of entries
    remaining: rows that carry each label
    """

    units: Counts
    labels: Counts
    counts: Counts
    starts: Counts
    remaining: Counts

    def by_label(self, order: npt.NDArray[np.int64]) -> Callable[[int], npt.NDArray[np.int64]]:
        """The entries of a label, its units in the given order."""
        place_of_unit = np.empty(len(order), dtype=np.int64)
        place_of_unit[order] = np.arange(len(order))
        entries = np.lexsort((place_of_unit[self.units], self.labels))
        ends = np.cumsum(np.bincount(self.labels, minlength=len(self.remaining)))
        return lambda label: entries[ends[label - 1] if label else 0 : ends[label]]


def _count_labels(
    targets: npt.NDArray[np.int8], unit_of_row: npt.NDArray[np.int64], num_units: int
) -> _Carried:
    num_labels = targets.shape[1]
    units, labels = present_pairs(targets)
    remaining = np.bincount(labels, minlength=num_labels)
    counts = np.ones(len(units), dtype=np.int64)
    if not np.array_equal(unit_of_row, np.arange(num_units)):  # several rows may be one unit
        keys, counts = np.unique(unit_of_row[units] * num_labels + labels, return_counts=True)
        units, labels = np.divmod(keys, max(num_labels, 1))
    starts = np.searchsorted(units, np.arange(num_units + 1))
    return _Carried(units, labels, counts, starts, remaining)


def cut_split(split: Split, fractions: Sequence[float], seed: int, *, in_place: bool = False) -> list[Split]:
    """Divide a split into stratified parts, each in the order of the original; see `stratify`.

    in_place: reorder its targets instead of copying them, see `divide_in_place`
    """
    part_of_row = stratify(split.targets, fractions, seed, split.groups)
    return (divide_in_place if in_place else select_parts)(split, part_of_row, len(fractions))


def draw_splits(everything: Split, options: DrawOptions, *, in_place: bool = False) -> dict[str, Split]:
    """Train, val and test by the fractions of the options, for a source without splits.

    in_place: reorder the targets instead of copying them, see `divide_in_place`
    """
    train_fraction = 1 - options.val_fraction - options.test_fraction
    if train_fraction <= 0:
        raise InputError(
            f"val_fraction={options.val_fraction} and test_fraction={options.test_fraction} leave no "
            "training images"
        )
    fractions = {"train": train_fraction, "val": options.val_fraction, "test": options.test_fraction}
    wanted = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    cut = cut_split(everything, list(wanted.values()), options.seed, in_place=in_place)
    parts = dict(zip(wanted, cut, strict=True))
    empty = [name for name, part in parts.items() if not len(part)]
    if empty:
        raise InputError(
            f"{len(everything)} images are too few for a split {empty[0]!r} of {wanted[empty[0]]:.0%}; "
            f"give {empty[0]}_fraction=0 or name the splits of the images"
        )
    return parts


def finish_splits(
    splits: dict[str, Split], options: ReaderOptions, *, in_place: bool = False
) -> dict[str, Split]:
    """Apply the validation split and the subset that a reader's options request.

    The validation split comes first, so that every subset of a data-size study is judged on the same `val`.

    in_place: reorder the targets of train instead of copying them, see `divide_in_place`
    """
    splits = dict(splits)
    fraction = options.val_fraction if isinstance(options, CutOptions) else 0.0
    if fraction > 0 and "train" in splits and "val" not in splits:
        train, val = cut_split(splits["train"], (1 - fraction, fraction), options.seed, in_place=in_place)
        if not len(train) or not len(val):
            raise InputError(
                f"val_fraction={fraction} of {len(splits['train'])} training images leaves a split empty; "
                "give val_fraction=0 for none"
            )
        splits["train"], splits["val"] = train, val
    if options.subset is not None and "train" in splits:
        splits["train"] = take_subset(splits["train"], options.subset, options.seed)
    return {name: splits[name] for name in ("train", "val", "test") if name in splits}
