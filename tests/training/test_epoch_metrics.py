"""Losses on val and mAP on training images, measured after each epoch, against a second computation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from kmcl.data import open_dataset
from kmcl.data.decoding import decode_square
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.features import run_data
from kmcl.methods import find_method
from kmcl.models.folder import load_model
from kmcl.runs.resolution import resolve_settings
from settings_runs import train
from tiny_runs import TINY_CACHED

PLAIN = {
    "encoder": "test_convnext",
    "weights": "none",
    "image_size": 32,
    "augmentation": "light",
    "learning_rate": 2e-3,
    "moving_average": 0,
    "batch_size": 20,
    "epochs": 1,
    "workers": 0,
    "posthoc": "none",
    "data_options": {"size": 120},
}


def last_epoch(run: Path) -> dict[str, float]:
    with (run / "epochs.csv").open() as file:
        return {name: float(value) for name, value in list(csv.DictReader(file))[-1].items()}


def test_losses_of_val_and_map_of_training_images(tmp_path: Path):
    """One epoch without an average: the saved model is the one that was measured."""
    settings = resolve_settings("digits", flags=PLAIN | {"kernel": "isotropic"})
    train(settings, tmp_path / "run")
    found = last_epoch(tmp_path / "run")
    dataset = open_dataset("digits", size=120)
    classifier, description = load_model(tmp_path / "run" / "model")

    @torch.inference_mode()
    def score(split, rows):
        images = np.stack([decode_square(split.images, int(row), 32) for row in rows]).transpose(0, 3, 1, 2)
        return classifier(torch.from_numpy(np.ascontiguousarray(images)))

    val = dataset.splits["val"]
    num_batches = -(-len(val) // 20)
    totals = dict.fromkeys(("loss", "reconstruction", "classification", "contrastive"), 0.0)
    for rows in np.array_split(np.arange(len(val)), num_batches):
        output = score(val, rows)
        compute = find_method("kmcl").compute_loss
        terms = compute(output, torch.from_numpy(val.targets[rows]), description.method)
        for name in totals:
            value = terms.total if name == "loss" else terms.named[name]
            totals[name] += float(value) * len(rows) / len(val)
    for name, value in totals.items():
        assert found[f"val/{name}"] == pytest.approx(value, rel=1e-4), name
    train_split = dataset.splits["train"]
    scores = score(train_split, np.arange(len(train_split))).probabilities.numpy()
    names = tuple(map(str, range(len(train_split))))
    expected = mean_average_precision(
        Predictions(dataset.labels, names, scores, np.asarray(train_split.targets))
    )
    assert found["train/map"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("flags", [PLAIN, TINY_CACHED | {"epochs": 1}], ids=["images", "cached features"])
def test_the_sample_is_bounded_and_changes_nothing_else(flags, tmp_path: Path, monkeypatch):
    rows = []
    for name, most in (("all", 512), ("few", 7)):
        monkeypatch.setattr(run_data, "SAMPLE_IMAGES", most)
        settings = resolve_settings("digits", flags=flags | {"cache_dir": tmp_path / "cache"})
        train(settings, tmp_path / name)
        rows.append(last_epoch(tmp_path / name))
    all_images, few = rows
    assert all_images.pop("train/map") != few.pop("train/map")
    for row in rows:
        del row["seconds"]
    assert all_images == few


def test_the_sample_of_cached_features_adds_no_file(tmp_path: Path):
    settings = resolve_settings("digits", flags=TINY_CACHED | {"cache_dir": tmp_path, "posthoc": "none"})
    train(settings, tmp_path / "run")
    # Two views of train, one of val and of test.
    assert len(list(tmp_path.glob("*.features"))) == 4
    assert "train/map" in last_epoch(tmp_path / "run")
