"""The figure of predictions: probabilities, intervals and thresholds on one scale."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import kmcl
from kmcl.cli.app import make_app
from kmcl.data import open_dataset
from kmcl.errors import InputError
from kmcl.evaluation import Predictions
from kmcl.models.folder import read_description
from kmcl.reports.prediction_figure import SHOWN_LABELS, label_intervals, predictions_picture


def test_numbers_are_those_of_the_model(kernel_run: Path) -> None:
    """The same image predicted anew gives the probability and the decision that the figure shows."""
    rows = predictions_picture(kernel_run, num_images=2).numbers.rows
    test = open_dataset("digits", size=120).splits["test"]
    positions = {test.images.name(index): index for index in range(len(test))}
    predictor = kmcl.load(kernel_run)
    for name in dict.fromkeys(row[0] for row in rows):
        of_image = [row for row in rows if row[0] == name]
        assert len(of_image) == SHOWN_LABELS
        again = {
            one.label: one for one in predictor.predict(test.images.load(positions[str(name)]))[0].labels
        }
        for _, label, probability, low, high, threshold, has_it in of_image:
            assert probability == pytest.approx(again[label].probability, abs=1e-3)
            assert low < probability < high
            assert (probability >= threshold) == again[label].present
            assert has_it == test.targets[positions[str(name)], predictor.labels.index(label)]


def test_labels_are_sorted_and_those_of_the_image_are_always_there(linear_run: Path) -> None:
    predictions = Predictions.load(linear_run / "predictions" / "test.npz")
    rules = read_description(linear_run / "model").rules
    for row in range(len(predictions)):
        shown = label_intervals(predictions, rules, row)
        probabilities = [one.probability for one in shown]
        assert probabilities == sorted(probabilities, reverse=True)
        assert {one.label for one in shown if one.is_there} == set(
            np.flatnonzero(predictions.targets[row] == 1)
        )


def test_the_command_writes_the_figure(kernel_run: Path, tmp_path: Path) -> None:
    arguments = ["figure", "predictions", str(kernel_run), "--output", str(tmp_path), "--num-images", "3"]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "predictions.png") in result.output.replace("\n", "")
    image = np.asarray(Image.open(tmp_path / "predictions.png").convert("RGB"))
    assert image.shape[1] > 1500
    assert image.std() > 20
    with (tmp_path / "predictions.csv").open() as file:
        assert len({row["image"] for row in csv.DictReader(file)}) == 3


def test_a_run_without_its_model_is_refused(kernel_run: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(kernel_run, tmp_path / "broken"))
    shutil.rmtree(broken / "model")
    with pytest.raises(InputError, match="predictions cannot be drawn"):
        predictions_picture(broken)
