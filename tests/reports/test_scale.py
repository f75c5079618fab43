"""A large run: 10,000 test images with 80 labels."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options.methods import KmclOptions
from kmcl.reports import write_report

NUM_IMAGES, NUM_LABELS = 10_000, 80


def write_large_run(run: Path, folder: Path) -> None:
    """Replace a small run's data, model and predictions by large ones, photographs on disk included."""
    import torch

    generator = np.random.default_rng(0)
    labels = tuple(f"label {number}" for number in range(NUM_LABELS))
    photographs = [generator.integers(0, 255, (30, 40, 3), dtype=np.uint8) for _ in range(50)]
    rows = []
    targets = (generator.random((NUM_IMAGES, NUM_LABELS)) < 3 / NUM_LABELS).astype(np.int8)
    folder.mkdir()
    for number, carried in enumerate(targets):
        name = f"{number:05}.jpg"
        Image.fromarray(photographs[number % 50]).resize((320, 240)).save(folder / name, quality=85)
        rows.append(f"{name},test,{';'.join(labels[k] for k in np.flatnonzero(carried))}")
    (folder / "labels.csv").write_text("image,split,labels\n" + "\n".join(rows) + "\n")

    torch.manual_seed(0)
    rules = LabelRules(labels, (0.5,) * NUM_LABELS)
    description = ModelDescription(rules, KmclOptions(kernel="isotropic"), "test_convnext", 64)
    classifier = build_classifier(description)
    save_model(run / "model", classifier, description)
    features = generator.normal(size=(NUM_IMAGES, classifier.encoder.feature_dim)).astype(np.float32)
    with torch.inference_mode():
        mixture = classifier.head.kernel_mixture(torch.from_numpy(features))
    scores = np.clip(0.3 * targets + 0.6 * generator.random(targets.shape), 0, 1).astype(np.float32)
    names = tuple(str(folder / f"{number:05}.jpg") for number in range(NUM_IMAGES))
    sigma = mixture.label_variances.sqrt().numpy()
    predictions = Predictions(labels, names, scores, targets, sigma=sigma, features=features)
    predictions.save(run / "predictions" / "test.npz")
    (run / "predictions" / "val.npz").unlink()
    (run / "metrics.json").unlink()
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    settings["data"] |= {"spec": f"table:{folder / 'labels.csv'}", "options": {}}
    (run / "settings.yaml").write_text(yaml.safe_dump(settings))


@pytest.mark.slow
def test_ten_thousand_images_of_eighty_labels(kernel_run, tmp_path):
    run = Path(shutil.copytree(kernel_run, tmp_path / "large"))
    write_large_run(run, tmp_path / "images")
    started = time.perf_counter()
    page = write_report([run], tmp_path / "report")
    seconds = time.perf_counter() - started
    text = page.read_text()
    assert "10000 of test" in text
    assert text.count("data:image/jpeg") > 500
    assert seconds < 120
    assert page.stat().st_size < 15e6
