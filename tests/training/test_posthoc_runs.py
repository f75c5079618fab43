"""Whole runs with post-hoc parts on a method that has none of its own: saved, resumed, and without val."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from kmcl.data import open_dataset
from kmcl.data.decoding import DecodedImages
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import load_model
from kmcl.runs.resolution import resolve_settings
from kmcl.runs.settings import TrainingSettings
from settings_runs import resume, train
from tiny_runs import TINY_CACHED

TINY = TINY_CACHED | {"method": "asl", "posthoc": "frozen_gp,kernel_vote"}


def settings_with(cache: Path, **changes: object) -> TrainingSettings:
    return resolve_settings("digits", flags=TINY | {"cache_dir": cache} | changes)


@pytest.fixture(scope="module", autouse=True)
def _smooth_parts():
    """A val of 20 images would keep the default smoothness, which magnifies the rounding of the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kmcl.posthoc.frozen_gp.SHRINKAGE", 0.0)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("posthoc")
    train(settings_with(folder / "cache"), folder / "run")
    return folder / "run"


def predict(run: Path, split: str) -> np.ndarray:
    """Scores of the loaded model on a split's images."""
    images = open_dataset("digits", size=120).splits[split].images
    pixels = DecodedImages(images, 32).rows(np.arange(len(images))).pixels
    with torch.no_grad():
        return load_model(run / "model")[0](
            torch.from_numpy(pixels).permute(0, 3, 1, 2)
        ).probabilities.numpy()


def test_the_model_lists_its_parts(finished: Path):
    described = json.loads((finished / "model" / "model.json").read_text())
    classifier, _ = load_model(finished / "model")
    feature_dim = classifier.encoder.feature_dim
    assert described["posthoc"] == [
        {"name": "frozen_gp", "sizes": {"num_images": 120, "last_map": 1, "stages": 3, "grid": 0}},
        {"name": "kernel_vote", "sizes": {"num_images": 120, "feature_dim": feature_dim}},
    ]
    assert described["method"]["name"] == "asl"
    assert float(classifier.posthoc["frozen_gp"].weight) > 0


def test_val_map_is_that_of_the_saved_model_with_its_parts(finished: Path):
    metrics = json.loads((finished / "metrics.json").read_text())
    best = metrics["best"]
    assert best["val_map"] == metrics["val"]["evaluation"]["mean_average_precision"]
    rows = list(csv.DictReader((finished / "epochs.csv").open()))
    assert best["head_val_map"] == pytest.approx(float(rows[-1]["val/map_best"]), rel=1e-5)
    assert best["val_map"] > best["head_val_map"]


def test_saved_predictions_are_those_of_the_loaded_model_on_the_images(tmp_path: Path):
    """Without the cache, whose float16 would round them."""
    train(settings_with(tmp_path / "cache", cached_views=0), tmp_path / "run")
    for split in ("val", "test"):
        saved = Predictions.load(tmp_path / "run" / "predictions" / f"{split}.npz").scores
        np.testing.assert_allclose(predict(tmp_path / "run", split), saved, atol=1e-5, rtol=0)
        assert np.ptp(saved, axis=0).min() > 2e-3


def test_the_cache_rounds_saved_predictions_and_no_more(finished: Path):
    for split in ("val", "test"):
        saved = Predictions.load(finished / "predictions" / f"{split}.npz").scores
        np.testing.assert_allclose(predict(finished, split), saved, atol=1e-4, rtol=0)
        assert np.ptp(saved, axis=0).min() > 2e-3


def test_a_run_that_ended_after_its_parts_were_saved_comes_to_the_same_metrics(finished: Path):
    metrics = json.loads((finished / "metrics.json").read_text())
    model = (finished / "model" / "model.safetensors").read_bytes()
    scores = {
        name: Predictions.load(finished / "predictions" / f"{name}.npz").scores for name in ("val", "test")
    }
    (finished / "metrics.json").unlink()
    resume(finished)
    assert (finished / "model" / "model.safetensors").read_bytes() == model
    for name, expected in scores.items():
        again = Predictions.load(finished / "predictions" / f"{name}.npz").scores
        np.testing.assert_array_equal(again, expected)
    assert json.loads((finished / "metrics.json").read_text()) == metrics


def test_a_kill_between_weights_and_description_costs_nothing(finished: Path):
    """The weights have the parts, the description does not list them yet."""
    metrics = json.loads((finished / "metrics.json").read_text())
    model = (finished / "model" / "model.safetensors").read_bytes()
    file = finished / "model" / "model.json"
    described = json.loads(file.read_text())
    file.write_text(json.dumps(described | {"posthoc": []}))
    (finished / "metrics.json").unlink()
    resume(finished)
    assert (finished / "model" / "model.safetensors").read_bytes() == model
    assert json.loads(file.read_text()) == described
    assert json.loads((finished / "metrics.json").read_text()) == metrics


def test_fewer_images_are_kept_where_that_is_asked_for(tmp_path: Path):
    settings = settings_with(tmp_path / "cache", posthoc="kernel_vote:max_images=50", epochs=1)
    train(settings, tmp_path / "run")
    assert load_model(tmp_path / "run" / "model")[0].posthoc["kernel_vote"].num_images == 50


def write_table_without_val(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    lines = ["image,split,a,b"]
    for number in range(40):
        pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        split = "train" if number < 28 else "test"
        lines.append(f"{number}.png,{split},{number % 2},{number // 2 % 2}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "labels.csv"


@pytest.mark.parametrize(
    ("posthoc", "names"), [("frozen_gp,kernel_vote", "frozen_gp, kernel_vote"), ("none", "")]
)
def test_without_val_a_run_says_that_its_parts_are_left_out(tmp_path: Path, posthoc: str, names: str):
    table = write_table_without_val(tmp_path)
    assert set(open_dataset(f"table:{table}", val_fraction=0).splits) == {"train", "test"}
    changes = {"posthoc": posthoc, "cache_dir": tmp_path / "cache", "epochs": 1, "batch_size": 8}
    flags = TINY | changes | {"data_options": {"val_fraction": 0}}
    output = Console(file=io.StringIO(), width=200)
    metrics = train(resolve_settings(f"table:{table}", flags=flags), tmp_path / "run", output)
    sentence = "There is no val split to tune post-hoc parts on: the model has no"
    printed = output.file.getvalue()
    assert printed.count(sentence) == (1 if names else 0)
    assert f"{sentence} {names}." in printed or not names
    assert not load_model(tmp_path / "run" / "model")[0].posthoc
    assert metrics["test"] is not None
