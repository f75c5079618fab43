"""Whole runs on labels that imply others, and on images with one known label each."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import kmcl
from kmcl.cli.app import make_app
from kmcl.data import Dataset, open_dataset
from kmcl.errors import InputError
from kmcl.models.folder import load_model, read_description
from kmcl.runs.resolution import resolve_settings
from settings_runs import train
from tiny_runs import TINY_CACHED

TINY = {name: value for name, value in TINY_CACHED.items() if name != "data_options"} | {"epochs": 1}


@pytest.fixture(scope="module")
def even(tmp_path_factory) -> Path:
    """A run on digits of which some are even, and of these one doubly so."""
    parents = {"two": ["even"], "six": ["even"], "four": ["doubly_even"], "doubly_even": ["even"]}
    dataset = open_dataset("digits", size=120, parents=parents)
    folder = tmp_path_factory.mktemp("even")
    kmcl.train(
        dataset,
        output=folder / "run",
        progress=False,
        cache_dir=folder / "cache",
        method="asl",
        posthoc="frozen_gp",
        **TINY,
    )
    return folder / "run"


def test_predictions_respect_parents(even: Path):
    rules = read_description(even / "model").rules
    assert rules.parents is not None
    predictor = kmcl.load(even)
    images = open_dataset("digits", size=120).splits["test"].images
    found = predictor.predict([images.load(row) for row in range(len(images))])
    for image in found:
        for child, parents in enumerate(rules.parents):
            for parent in parents:
                low, high = image.labels[child], image.labels[parent]
                assert high.probability >= low.probability
                assert high.present >= low.present
        assert all(label.present == (label.probability >= label.threshold) for label in image.labels)


def test_metrics_have_levels(even: Path):
    metrics = json.loads((even / "metrics.json").read_text())
    assert [level["level"] for level in metrics["test"]["levels"]] == [1, 2, 3]
    assert metrics["test"]["levels"][1]["labels"] == ["two", "six", "doubly_even"]
    result = CliRunner().invoke(make_app(), ["evaluate", str(even), "--json"])
    shown = json.loads(result.stdout)["runs"][0]["levels"]
    assert shown == metrics["test"]["levels"]
    table = CliRunner().invoke(make_app(), ["evaluate", str(even)])
    assert "levels of the labels" in table.stdout


def test_the_exported_file_respects_them_too(even: Path, tmp_path: Path):
    """The export itself compares its probabilities with those of the model."""
    pytest.importorskip("onnxruntime")
    result = CliRunner().invoke(make_app(), ["export", str(even), "--output", str(tmp_path / "even.onnx")])
    assert result.exit_code == 0, result.output
    exported = kmcl.load(tmp_path / "even.onnx")
    assert exported.rules.parents == read_description(even / "model").rules.parents
    noise = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    probabilities = exported.score(noise).probability
    for child, parents in enumerate(exported.rules.parents or ()):
        for parent in parents:
            assert (probabilities[:, parent] >= probabilities[:, child]).all()


def test_precision_is_not_promised_where_labels_have_parents(even: Path):
    with pytest.raises(InputError, match="where labels have parents"):
        kmcl.evaluate(even, guarantee="precision=0.8")


def one_positive_each() -> Dataset:
    dataset = open_dataset("digits", size=120)
    split = dataset.splits["train"]
    targets = np.full_like(split.targets, -1)
    first = (split.targets == 1).argmax(axis=1)
    rows = np.flatnonzero((split.targets == 1).any(axis=1))
    targets[rows, first[rows]] = 1
    return replace(dataset, splits=dataset.splits | {"train": replace(split, targets=targets)})


@pytest.mark.parametrize("unknown", ["auto", "ignore", "ll_ct"])
def test_runs_with_one_known_label_per_image(unknown: str, tmp_path: Path):
    settings = resolve_settings(
        "memory:single",
        flags=TINY
        | {"method": "asl", "posthoc": "frozen_gp", "unknown": unknown, "cache_dir": tmp_path / "cache"},
    )
    text = io.StringIO()
    train(settings, tmp_path / "run", Console(file=text, width=200), dataset=one_positive_each())
    classifier, _ = load_model(tmp_path / "run" / "model")
    assert "of the labels of train are unknown" in text.getvalue()
    assert "no label is known to be absent" in text.getvalue()
    with torch.no_grad():
        mean = classifier(torch.full((1, 3, 32, 32), 128, dtype=torch.uint8)).probabilities.mean()
    if unknown == "ignore":  # nothing says that a label may be absent
        assert float(mean) > 0.5
    elif unknown == "ll_ct":
        assert float(mean) < 0.5
    else:
        assert "--unknown weak_negative" in text.getvalue()
