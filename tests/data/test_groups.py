"""An image without a group is by itself, wherever groups are used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kmcl.data import open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.data.check import check_dataset
from kmcl.data.dataset import Dataset, Split
from kmcl.data.describe import describe
from kmcl.data.groups import has_groups, join_groups, named_groups, units_of_rows
from kmcl.data.readers.options import DrawOptions
from kmcl.data.readers.sample_labels import SampleLabels
from kmcl.data.selection import join_splits, take_fraction
from kmcl.data.splitting import cut_split, draw_splits, stratify
from kmcl.evaluation.bootstrap import bootstrap_map
from kmcl.evaluation.drift import PredictedImages, one_of_each_group
from kmcl.evaluation.predictions import Predictions, sampling_units
from kmcl.evaluation.probability_intervals import fit_probability_intervals
from kmcl.labelling.label_suspicion import suspect_labels
from kmcl.labelling.left_out_scores import left_out_scores

NUM_ROWS, NUM_BLANK = 1000, 600


def _groups() -> npt.NDArray[np.str_]:
    """600 rows without a patient, then 100 patients with four rows each."""
    return np.array([""] * NUM_BLANK + [f"p{row // 4}" for row in range(NUM_ROWS - NUM_BLANK)])


def _split(groups: Sequence[str] | npt.NDArray[np.str_] | None, num_labels: int = 3) -> Split:
    rng = np.random.default_rng(0)
    number = NUM_ROWS if groups is None else len(groups)
    images = rng.integers(0, 256, (number, 2, 2, 3), dtype=np.uint8)
    targets = (rng.random((number, num_labels)) < 0.3).astype(np.int8)
    return Split(ArrayImages(images, "image"), targets, groups=None if groups is None else np.array(groups))


def _names(split: Split) -> list[str]:
    assert split.groups is not None
    return [str(group) for group in split.groups]


def test_a_unit_is_a_group_or_an_image_without_one() -> None:
    assert units_of_rows(["b", "", "a", " ", "b"], 5).tolist() == [1, 2, 0, 3, 1]
    assert units_of_rows(None, 3).tolist() == units_of_rows(["", " ", ""], 3).tolist() == [0, 1, 2]
    assert not has_groups(None)
    assert not has_groups(["", " "])
    assert has_groups(["", "a"])
    assert named_groups(["b", "", "a", " ", "b"]) == ["a", "b"]
    assert named_groups(None) == []


def test_images_without_a_patient_have_their_share_of_val_and_test() -> None:
    parts = draw_splits(_split(_groups()), DrawOptions(val_fraction=0.2, test_fraction=0.2))
    blank = {name: _names(part).count("") for name, part in parts.items()}
    assert all(abs(blank[name] - 120) < 40 for name in ("val", "test")), blank
    patients = [set(_names(part)) - {""} for part in parts.values()]
    assert not patients[0] & patients[1]
    assert not patients[0] & patients[2]
    assert not patients[1] & patients[2]


def test_without_any_group_rows_are_divided_as_if_there_were_no_column() -> None:
    with_column, without = _split([""] * 200), _split(None)
    targets = with_column.targets
    assert np.array_equal(
        stratify(targets, (0.7, 0.3), 1, with_column.groups), stratify(targets, (0.7, 0.3), 1)
    )
    assert len(take_fraction(replace(without, groups=np.array([""] * NUM_ROWS)), 0.3, 0)) == 300
    assert len(cut_split(with_column, (0.5, 0.5), 0)[0]) == 100


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_a_fraction_has_its_share_of_the_images_without_a_patient(fraction: float) -> None:
    for seed in range(3):
        part = take_fraction(_split(_groups()), fraction, seed)
        assert abs(_names(part).count("") - fraction * NUM_BLANK) < 40


def test_images_without_a_group_judge_each_other() -> None:
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(40, 3)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    targets = (directions[:, :2] > 0).astype(np.int8)
    blank = np.array([""] * 40)
    scores = left_out_scores(directions, targets)
    assert np.array_equal(left_out_scores(directions, targets, blank), scores)
    alone, without = suspect_labels(scores, targets, blank), suspect_labels(scores, targets)
    assert np.array_equal(alone.is_wrong, without.is_wrong)
    groups = np.array(["a", "a", *[""] * 38])
    assert (suspect_labels(scores, targets, groups).evidence[2:, 4:] == 0).all()


def _predictions(groups: Sequence[str] | None) -> Predictions:
    rng = np.random.default_rng(0)
    targets = (rng.random((60, 2)) < 0.4).astype(np.int8)
    scores = np.clip(rng.random((60, 2)) * 0.6 + 0.3 * targets, 0.01, 0.99).astype(np.float32)
    return Predictions(
        ("a", "b"),
        tuple(f"{row}.png" for row in range(60)),
        scores,
        targets,
        groups=None if groups is None else tuple(groups),
    )


def test_intervals_of_images_without_a_group_are_those_of_images() -> None:
    blank, without = _predictions([""] * 60), _predictions(None)
    first, second = (bootstrap_map(p, np.random.default_rng(0), 50) for p in (blank, without))
    assert first == second
    assert first.num_groups is None
    ones, zeros = np.ones(2), np.zeros(2)
    of_blank, of_none = (fit_probability_intervals(p, ones, zeros) for p in (blank, without))
    assert np.array_equal(of_blank.covariances, of_none.covariances)


def test_units_that_are_drawn_are_numbered_as_they_occur() -> None:
    units = sampling_units(["b", "", "a", "b", " "], 5)
    assert units.of_image.tolist() == [0, 1, 2, 0, 3]
    assert units.num_units == 4


def test_names_in_which_the_pattern_finds_nothing_are_images_of_no_group() -> None:
    names = np.array(["7-a.png", "7-b.png", "x.png", "y.png"], dtype=object)
    values = np.zeros((4, 1))
    found = one_of_each_group(PredictedImages(values, values > 0, None, None, names), "^[0-9]*")
    assert found.names is not None
    assert len(found.names) == 3
    assert {"x.png", "y.png"} <= set(found.names.tolist())


def test_description_and_check_count_patients_alone() -> None:
    splits = {"train": _split(["p", "p", "", ""]), "val": _split(["", " ", "q", "q"])}
    dataset = Dataset("some", ("a", "b", "c"), splits)
    assert [split.num_groups for split in describe(dataset).splits] == [1, 1]
    kinds = [problem.kind for problem in check_dataset(dataset).problems]
    assert "group in two splits" not in kinds
    assert describe(replace(dataset, splits={"train": _split(["", ""])})).splits[0].num_groups is None


def test_joined_splits_keep_the_groups_of_those_that_have_some() -> None:
    splits = {"train": _split(["p", "p"]), "test": _split(None)}
    joined = join_splits(Dataset("some", ("a", "b", "c"), splits))
    assert joined.groups is not None
    assert joined.groups[:3].tolist() == ["p", "p", ""]
    assert join_groups([splits["test"], _split(["", ""])]) is None


def test_a_group_that_is_null_is_none() -> None:
    assert SampleLabels.parse(json.dumps({"labels": [], "group": None})).group == ""
    assert SampleLabels.parse(json.dumps({"labels": [], "group": 0})).group == "0"


def test_a_missing_group_of_a_vector_is_none(tmp_path: Path) -> None:
    features = np.random.default_rng(0).random((4, 2))
    groups = np.array([7.0, np.nan, 7.0, np.nan])
    splits = np.array(["train", "train", "val", "test"])
    np.savez(
        tmp_path / "x.npz", features=features, targets=np.ones((4, 1), np.int8), group=groups, split=splits
    )
    found = open_dataset(f"features:{tmp_path / 'x.npz'}").splits
    assert [_names(split) for split in found.values()] == [["7.0", ""], ["7.0"], [""]]
