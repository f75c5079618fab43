"""The part of the section on leaning labels about combinations that training did not have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.contrasts import MIN_UNITS, joint_level
from kmcl.evaluation.new_combinations import (
    CombinationContrast,
    find_combinations,
    list_new_pairs,
    measure_combinations,
)
from kmcl.reports.blocks import Cell, Missing, Section, Table, Text, percent
from kmcl.reports.leaning_words import interval
from kmcl.reports.measured import Measured

SHOWN_PAIRS = 20


def add_combinations(section: Section, one: Measured, seed: int) -> None:
    """How labels fare in combinations that no training image has."""
    train = one.run.train_targets
    if train is None:
        section.add(
            Missing(f"{one.name}: which combinations are new is unknown without the training labels.")
        )
        return
    predictions, decided = one.predictions, one.decisions.present
    kinds = find_combinations(predictions, train)
    rows: list[tuple[Cell, ...]] = []
    words = []
    for name, new in (
        ("a pair never seen in training", kinds.new_pair),
        ("all pairs seen, the whole never", kinds.new_whole),
    ):
        level = joint_level(4)
        generator = np.random.default_rng(seed)
        found = measure_combinations(predictions, decided, new, kinds.seen, generator, level)
        rows.append((name, int(new.any(axis=1).sum()), int(new.sum()), *_combination_cells(found)))
        words += _combination_words(name, found)
    header = ("labels in", "images", "labels")
    parts = ("new", "seen", "interval")
    section.add(
        Text(
            "Combinations of labels that no training image has, against those that some training image has, "
            f"on images of {one.split} with several labels. Each label in a new combination is compared "
            "with the same label in seen ones. Rank: share of the images without the label that score "
            f"lower. {' '.join(words) or 'No difference is more than chance.'}"
        ),
        Table.of(
            "New combinations, in %; intervals of the differences, 95 % jointly",
            (*header, *(f"{name} {part}" for name in ("recall", "rank") for part in parts)),
            rows,
        ),
    )
    _add_new_pairs(section, one, train)


def _add_new_pairs(section: Section, one: Measured, train: npt.NDArray[np.int8]) -> None:
    labels = one.predictions.labels
    pairs = list_new_pairs(one.predictions, one.decisions.present, train)
    if pairs:
        header = ("pair", "images", "first found", "second found")
        rows = [(f"{labels[pair.first]} – {labels[pair.second]}", *pair[2:]) for pair in pairs[:SHOWN_PAIRS]]
        caption = (
            f"Pairs never seen in training, the {len(rows)} most frequent of {len(pairs)} in {one.split}"
        )
        section.add(Table.of(caption, header, rows, open=False))


def _combination_cells(found: CombinationContrast) -> list[Cell]:
    cells: list[Cell] = []
    for contrast in found:
        difference = contrast.difference
        cells += [percent(contrast.first), percent(contrast.second)]
        cells.append(interval(difference) if difference else f"fewer than {MIN_UNITS}")
    return cells


def _combination_words(name: str, found: CombinationContrast) -> list[str]:
    words = []
    for what, contrast in (("found", found.recall), ("ranked", found.ranking)):
        if contrast.difference is not None and contrast.difference.excludes_zero:
            better = "better" if contrast.difference.estimate > 0 else "worse"
            words.append(
                f"With {name}, labels are {what} {better}: {percent(contrast.first)} % against "
                f"{percent(contrast.second)} %."
            )
    return words
