"""Publishing a model, with its card, and loading it by its name on the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kmcl
from hub_stub import REPOSITORY, running_hub
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.summary import choose_on_val, measure_splits, metrics_of
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options.methods import KmclOptions
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import resolve_settings
from kmcl.serving.hub import is_hub_id, push
from kmcl.serving.model_card import write_model_card
from kmcl.storage.atomic import write_json

LABELS = ("cat", "dog", "a|b")


def make_predictions(num_images: int, seed: int) -> Predictions:
    random = np.random.default_rng(seed)
    targets = (random.random((num_images, 3)) < (0.5, 0.3, 0.05)).astype(np.int8)
    targets[:2] = [[1, 1, 1], [0, 0, 0]]
    scores = np.clip(0.6 * targets + 0.4 * random.random((num_images, 3)), 0, 1).astype(np.float32)
    return Predictions(LABELS, tuple(f"{row}.jpg" for row in range(num_images)), scores, targets)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run's files, without the minutes of training one."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    torch.manual_seed(0)
    description = ModelDescription(LabelRules(LABELS, (0.4, 0.5, 0.6)), KmclOptions(), "test_vit", 32)
    save_model(folder / "model", build_classifier(description), description)
    settings = resolve_settings("table:/home/somebody/secret/labels.csv", flags={"epochs": 7})
    files = RunFolder(folder)
    files.settings_file.write_text(settings.to_yaml())
    splits = {"val": make_predictions(60, 1), "test": make_predictions(80, 2)}
    chosen = choose_on_val(splits["val"])
    summaries = measure_splits(splits, chosen.complete(LabelRules(LABELS)), 0.5, None, chosen)
    write_json(files.metrics_file, {"best": None, **metrics_of(chosen, summaries)})
    return folder


def in_process(code: str, *arguments: str, **environment: str) -> str:
    """Run Python in a process of its own: the hub's client reads the environment once, when imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


PUSH = """
import sys
from kmcl.cli.push import push
push(sys.argv[1], sys.argv[2], private=True)
"""

LOAD = """
import json, sys
import numpy as np
import kmcl
prediction = kmcl.load(sys.argv[-1]).predict(np.full((50, 40, 3), 90, np.uint8))[0]
print(json.dumps([label.score for label in prediction.labels]))
try:
    kmcl.load("somebody/unknown")
except kmcl.InputError as error:
    print(error)
"""


def test_a_model_is_published_fetched_and_kept(run: Path, tmp_path: Path):
    expected = [label.score for label in kmcl.load(run).predict(np.full((50, 40, 3), 90, np.uint8))[0].labels]
    with running_hub() as hub:
        connected = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_stub"}
        output = in_process(PUSH + LOAD, str(run), REPOSITORY, **connected)
    address, scores, unknown = output.splitlines()
    assert address.startswith(f"{hub.address}/{REPOSITORY}/commit/")
    assert json.loads(scores) == pytest.approx(expected)
    assert unknown.startswith(
        "somebody/unknown: there is no such folder, and no such model could be downloaded"
    )
    assert set(hub.files) == {"model.json", "model.safetensors", "README.md", "config.json"}
    created = hub.created[0]  # clients of different ages say it differently
    assert created.get("private") is True or created.get("visibility") == "private"
    assert set(hub.tokens) == {"Bearer hf_stub"}
    assert hub.summary == f"Add the model {REPOSITORY}"
    assert "| test | 80 |" in hub.files["README.md"].decode()

    offline = in_process(LOAD, REPOSITORY, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    scores, unknown = offline.splitlines()
    assert json.loads(scores) == pytest.approx(expected)
    assert unknown.startswith("somebody/unknown: there is no such folder")


def test_the_card_is_written_from_the_run(run: Path):
    predictor = kmcl.load(run)
    card = write_model_card(predictor.description, run)
    metrics = json.loads((run / "metrics.json").read_text())
    interval = metrics["test"]["map_interval"]
    figures = (
        f"{100 * interval['estimate']:.1f} ({100 * interval['low']:.1f} to {100 * interval['high']:.1f})"
    )
    assert f"| test | 80 | {figures} |" in card
    assert "library_name: kmcl" in card.split("---")[1]
    assert "Dataset `table` (`labels.csv`)" in card
    assert "7 epochs" in card
    assert "/home/somebody" not in card  # nor any other place on the machine
    precision = metrics["test"]["evaluation"]["labels"][0]["average_precision"]
    assert f"| cat | 0.400 | {100 * precision:.1f} |" in card
    assert "| a\\|b | 0.600 |" in card
    assert "fewer than 10 positive images, hence unreliably: a|b" in card


def test_a_model_without_a_run_says_so(run: Path, tmp_path: Path):
    kmcl.load(run).save_pretrained(tmp_path / "saved")
    assert "| test | 80 |" in (tmp_path / "saved" / "README.md").read_text()
    description = kmcl.load(run).description
    card = write_model_card(description, None)
    assert "Not recorded in the model" in card
    assert "No metrics were recorded" in card


def test_an_edited_card_goes_along(run: Path, tmp_path: Path):
    kmcl.load(run).save_pretrained(tmp_path / "saved")
    card = tmp_path / "saved" / "README.md"
    card.write_text(card.read_text() + "\nAsk Ada.\n")
    kmcl.load(tmp_path / "saved").save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text().endswith("Ask Ada.\n")


def test_names_of_the_hub():
    assert is_hub_id("somebody/digits-v1.2")
    for text in ("digits", "/tmp/run", "./run", "../run", "a/b/c", "some body/x", "a/.hidden", "a/", ""):
        assert not is_hub_id(text), text


def test_a_wrong_name_is_refused_before_anything_is_sent(run: Path):
    with pytest.raises(InputError, match="must be owner/name; got 'digits'"):
        push(kmcl.load(run), "digits")
