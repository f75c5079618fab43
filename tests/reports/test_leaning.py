"""The section on labels that lean on others: a planted bias is found, and one that is not there is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coloured_squares import SIZE, squares, squares_classifier
from kmcl.data.arrays import ArrayImages
from kmcl.data.cooccurrence import find_cooccurring_labels
from kmcl.data.dataset import Dataset, Split
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import ModelDescription
from kmcl.options.methods import AslOptions
from kmcl.reports.blocks import Gallery, Missing, Picture, Section, Table, Text
from kmcl.reports.leaning import leaning_section
from kmcl.reports.measured import Measured, measure
from kmcl.reports.run_parts import RunParts
from kmcl.runs.resolution import resolve_settings
from planted_scenes import planted_scenes

LABELS = ("green", "red")


def squares_run(folder: Path, leans: bool) -> Measured:
    """A model that gives "green" to red squares, or to green ones, on images with either, both or none."""
    parts = [squares(30, green, red, seed=2 * green + red) for green in (0, 1) for red in (0, 1)]
    images = np.concatenate([each for each, _ in parts])
    targets = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 30, axis=0).astype(np.int8)
    # In training green is only there with red.
    train = np.repeat([[0, 0], [1, 1]], 20, axis=0).astype(np.int8)
    classifier = squares_classifier(leans)
    store = ArrayImages(images, "squares")
    names = tuple(store.name(index) for index in range(120))
    scores = squares_scores(classifier, images)
    (folder / "predictions").mkdir(parents=True)
    Predictions(LABELS, names, scores, targets).save(folder / "predictions" / "test.npz")
    run = RunParts(folder, "squares")
    rules = LabelRules(LABELS, cooccurrence=find_cooccurring_labels(train))
    run.classifier = classifier
    run.description = ModelDescription(rules, AslOptions(), "test_resnet", SIZE)
    run.settings = resolve_settings("digits")
    splits = {"train": Split(ArrayImages(images[:40], "train"), train), "test": Split(store, targets)}
    run.dataset = Dataset("squares", LABELS, splits)
    return measure(run)


def squares_scores(classifier, images: np.ndarray) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return classifier(torch.from_numpy(images).permute(0, 3, 1, 2)).probabilities.numpy()


def findings(section: Section) -> dict[str, str]:
    tables = [block for block in section.blocks if isinstance(block, Table) and block.caption == "Findings"]
    return {row[0]: row[2] for table in tables for row in table.rows}


def test_a_planted_bias_is_found_and_only_that(tmp_path):
    progress: list[float] = []
    section = leaning_section([squares_run(tmp_path / "run", leans=True)], 24, 0, progress.append)
    found = findings(section)
    assert list(found) == ["green"]
    assert "missed more often without red (recall 0.0 % against 100.0 %)" in found["green"]
    assert "wrongly given more often with red (100.0 % against 0.0 %" in found["green"]
    assert "its probability falls when red is covered" in found["green"]
    assert progress == sorted(progress)
    pictures = {block.name: block for block in section.blocks if isinstance(block, Picture)}
    assert list(pictures) == ["leaning", "leaning-masked"]
    assert len(pictures["leaning"].numbers.rows) == 6
    masked = {row[0]: row for row in pictures["leaning-masked"].numbers.rows}
    # Red is read from the red square too; but its decisions do not follow the other label.
    assert list(masked) == ["green"]
    assert masked["green"][2] == 12
    assert masked["green"][5] > 0.7  # beyond the control
    (gallery,) = [block for block in section.blocks if isinstance(block, Gallery)]
    assert [len(images) for _, images in gallery.rows] == [3]


def test_one_that_is_not_there_is_not(tmp_path):
    section = leaning_section([squares_run(tmp_path / "run", leans=False)], 24, 0, lambda done: None)
    assert findings(section) == {}
    words = [block.text for block in section.blocks if isinstance(block, Text)]
    assert "No label of squares was found to depend on its co-occurring label." in words
    assert not [block for block in section.blocks if isinstance(block, Missing)]


def test_two_runs_have_figures_of_their_own(tmp_path):
    runs = [squares_run(tmp_path / name, leans=False) for name in ("one", "two")]
    runs[1].run.name = "other"
    section = leaning_section(runs, 0, 0, lambda done: None)
    names = [block.name for block in section.blocks if isinstance(block, Picture)]
    assert names == ["leaning-squares", "leaning-other"]


def test_missing_parts_are_named(tmp_path):
    one = squares_run(tmp_path / "run", leans=True)
    one.run.dataset = None
    section = leaning_section([one], 24, 0, lambda done: None)
    missing = [block.text for block in section.blocks if isinstance(block, Missing)]
    assert missing == [
        "squares: covering co-occurring labels needs the model and its images.",
        "squares: which combinations are new is unknown without the training labels.",
    ]
    assert "wrongly given more often" in findings(section)["green"]
    one.run.description = None
    section = leaning_section([one], 24, 0, lambda done: None)
    (missing,) = section.blocks
    assert missing == Missing("the model of squares does not say which labels occur together in training.")
    assert leaning_section([], 0, 0, lambda done: None).blocks == [Missing("No run has predictions.")]


def test_the_targets_of_training_are_those_of_the_run(kernel_run):
    from kmcl.data import open_dataset

    run = RunParts(kernel_run, "run")
    expected = open_dataset("digits", size=120).splits["train"].targets
    np.testing.assert_array_equal(run.train_targets, expected)
    fraction = RunParts(kernel_run, "run")
    data = fraction.settings.data.model_copy(update={"train_fraction": 0.5})
    fraction.settings = fraction.settings.model_copy(update={"data": data})
    assert len(fraction.train_targets) == round(0.5 * len(expected))


@pytest.mark.slow
def test_a_bias_planted_in_scenes_is_found_after_training(tmp_path):
    from settings_runs import train

    dataset = planted_scenes()
    flags = {
        "method": "asl",
        "encoder": "tf_efficientnet_lite0",
        "image_size": 160,
        "frozen_stages": 5,
        "cached_views": 1,
        "epochs": 8,
        "batch_size": 50,
        "learning_rate": 1e-3,
        "cache_dir": tmp_path / "cache",
    }
    train(resolve_settings("memory:planted", flags=flags), tmp_path / "run", dataset=dataset)
    run = RunParts(tmp_path / "run", "planted")
    run.dataset = dataset
    found = findings(leaning_section([measure(run)], 60, 0, lambda done: None))
    assert "wrongly given more often with car" in found["cat"]
    assert "missed more often without car" in found["cat"]
    assert "its probability falls when car is covered" in found["cat"]
    # These are drawn whenever they are labelled.
    for label in ("airplane", "boat", "bus", "car", "tree"):
        assert "is covered" not in found.get(label, "")
