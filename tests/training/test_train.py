"""Whole runs on tiny data: what is in the folder, what a kill costs, what two processes give."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.version import Version

from kmcl.data import open_dataset
from kmcl.errors import InputError
from kmcl.evaluation.metrics import evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import load_model
from kmcl.runs.resolution import read_settings, resolve_settings
from kmcl.runs.settings import TrainingSettings
from kmcl.serving import load
from settings_runs import resume, train

TINY = {
    "encoder": "test_convnext",
    "weights": "none",
    "kernel": "isotropic",
    "query_width": 128,
    "image_size": 32,
    "augmentation": "light",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "epochs": 2,
    "workers": 0,
    "data_options": {"size": 120},
}


def tiny_settings(**changes: object) -> TrainingSettings:
    values = TINY | changes
    if values.get("method", "kmcl") != "kmcl":
        values.pop("query_width")
        values.pop("kernel")
    return resolve_settings("digits", flags=values)


def tiny_flags(**changes: object) -> list[str]:
    values = {key: value for key, value in (TINY | changes).items() if key != "data_options"}
    flags = [part for key, value in values.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return [*flags, "--option", "size=120"]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kmcl", "train", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def epochs_of(run: Path) -> list[dict[str, float]]:
    with (run / "epochs.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(tiny_settings(), folder)
    return folder


@pytest.fixture(scope="module")
def without_vote(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "without_vote"
    train(tiny_settings(posthoc="none"), folder)
    return folder


def test_the_folder_holds_the_whole_run(finished: Path):
    assert read_settings(finished / "settings.yaml") == tiny_settings()
    environment = json.loads((finished / "environment.json").read_text())
    # Not every build says in its metadata which build it is.
    assert Version(environment["packages"]["torch"]).public == Version(torch.__version__).public
    rows = epochs_of(finished)
    assert [row["epoch"] for row in rows] == [1, 2]
    for term in ("loss", "reconstruction", "classification", "contrastive"):
        assert rows[1][f"train/{term}"] > 0
    weights = {
        term: getattr(tiny_settings().method, f"{term}_weight")
        for term in ("reconstruction", "classification", "contrastive")
    }
    weighted = sum(weight * rows[0][f"train/{term}"] for term, weight in weights.items())
    assert rows[0]["train/loss"] == pytest.approx(weighted, rel=1e-4)
    assert list((finished / "logs").glob("events.*"))


def test_kmcl_keeps_its_training_images_and_predicts_with_their_vote(finished: Path, without_vote: Path):
    classifier, description = load_model(finished / "model")
    fitted = description.posthoc[0]
    assert [part.name for part in description.posthoc] == ["kernel_vote", "unfamiliarity"]
    vote = classifier.posthoc["kernel_vote"]
    num_images = len(open_dataset("digits", size=120).splits["train"])
    assert fitted.sizes == vote.sizes == {"num_images": num_images, "feature_dim": len(vote.centre)}
    assert not load_model(without_vote / "model")[0].posthoc
    for split in ("val", "test"):
        corrected, without = (
            Predictions.load(run / "predictions" / f"{split}.npz") for run in (finished, without_vote)
        )
        correction = vote(torch.from_numpy(corrected.features))
        logits = torch.logit(torch.from_numpy(without.scores)) + correction
        torch.testing.assert_close(torch.from_numpy(corrected.scores), logits.sigmoid(), atol=1e-4, rtol=0)
        assert not np.allclose(corrected.scores, without.scores, atol=1e-3)


def test_metrics_are_those_of_the_saved_predictions(finished: Path):
    metrics = json.loads((finished / "metrics.json").read_text())
    for split in ("val", "test"):
        evaluation = evaluate(Predictions.load(finished / "predictions" / f"{split}.npz"))
        assert metrics[split]["evaluation"]["mean_average_precision"] == evaluation.mean_average_precision
        assert metrics[split]["evaluation"]["at_threshold"]["CF1"] == evaluation.at_threshold.CF1


def test_the_better_of_model_and_average_on_val_is_kept(finished: Path, without_vote: Path):
    metrics = json.loads((without_vote / "metrics.json").read_text())
    rows = epochs_of(without_vote)
    candidates = [(row[f"val/auc_{of}"], row[f"val/map_{of}"]) for row in rows for of in ("model", "average")]
    area, best = max(candidates)
    assert (
        rows[-1]["val/auc_best"] == area == pytest.approx(metrics["val"]["evaluation"]["mean_auc"], abs=0.02)
    )
    assert metrics["best"]["head_val_map"] == pytest.approx(best, rel=1e-5)
    assert metrics["best"]["val_map"] == metrics["val"]["evaluation"]["mean_average_precision"]
    assert metrics["val"]["evaluation"]["mean_average_precision"] == pytest.approx(best, abs=0.02)
    with_vote = json.loads((finished / "metrics.json").read_text())
    for name in ("head_val_map", "epoch", "is_average"):
        assert with_vote["best"][name] == metrics["best"][name]
    assert with_vote["val"]["evaluation"]["mean_average_precision"] > best


def test_the_saved_model_predicts_what_the_run_measured(finished: Path):
    predictor = load(finished)
    split = open_dataset("digits", size=120).splits["test"]
    measured = Predictions.load(finished / "predictions" / "test.npz")
    found = predictor.predict([split.images.load(index) for index in range(5)])
    scores = np.array([[label.score for label in prediction.labels] for prediction in found])
    np.testing.assert_allclose(scores, measured.scores[:5], atol=1e-5)
    thresholds = json.loads((finished / "metrics.json").read_text())["thresholds"]["values"]
    of_scores = predictor.rules.score_thresholds
    assert list(of_scores) == pytest.approx(thresholds)
    calibrated = predictor.rules.probability_thresholds
    assert [label.threshold for label in found[0].labels] == pytest.approx(list(calibrated))


def test_a_finished_run_is_left_alone_and_a_used_folder_refused(finished: Path):
    before = (finished / "metrics.json").stat().st_mtime_ns
    assert resume(finished)["best"] is not None
    assert (finished / "metrics.json").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"exists and is not empty"):
        train(tiny_settings(), finished)


def test_two_processes_train_like_one(tmp_path: Path):
    """The same global batches, the contrastive term over both halves: the same losses and scores.

    The encoder normalises each image by itself: batch statistics would differ between half and whole batches.
    Without label queries, whose dropout each process draws for itself.
    """
    changes = {"augmentation": "none", "accelerator": "cpu", "query_width": 0, "posthoc": "none"}
    changes["head_epochs"] = 1
    runs = {count: tmp_path / str(count) for count in (1, 2)}
    train(tiny_settings(**changes, devices=1), runs[1])
    process = start("digits", *tiny_flags(**changes), "--devices", "2", "--output", str(runs[2]))
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, output + errors
    for one, two in zip(epochs_of(runs[1]), epochs_of(runs[2]), strict=True):
        assert {name for name in one if name not in two} == {
            *("val/loss", "val/reconstruction", "val/classification", "val/contrastive")
        }  # measured in one process only
        assert two.pop("train/map") == pytest.approx(one["train/map"], rel=2e-2)  # a rank may change
        assert two == pytest.approx({name: one[name] for name in two}, rel=2e-3)
    one, two = (Predictions.load(run / "predictions" / "test.npz") for run in runs.values())
    np.testing.assert_allclose(two.scores, one.scores, atol=2e-3)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, monkeypatch):
    from kmcl.training.task import ClassificationTask, NonFiniteLossError

    original = ClassificationTask.on_train_epoch_start

    def break_weights(task: ClassificationTask) -> None:
        original(task)
        if task.current_epoch == 1:
            with torch.no_grad():
                task.classifier.head.kernel_mixture.logits.weight.fill_(torch.inf)

    monkeypatch.setattr(ClassificationTask, "on_train_epoch_start", break_weights)
    with pytest.raises(
        NonFiniteLossError, match=r"the loss is not finite: .*; epoch 2, batch 1, images .* more"
    ):
        train(tiny_settings(epochs=3), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
    assert len(epochs_of(tmp_path / "run")) == 1
    monkeypatch.undo()
    assert resume(tmp_path / "run")["test"] is not None


def test_a_full_disk_leaves_the_last_good_checkpoint(finished: Path, tmp_path: Path):
    """A real write error: the process may not write files larger than half of the checkpoint."""
    import resource

    from kmcl.storage.atomic import WriteError
    from kmcl.training import callbacks

    run = shutil.copytree(finished, tmp_path / "run")
    good = (run / "checkpoints" / "last.ckpt").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) // 2, limits[1]))
    try:
        reason = r"File too large \([\d,]+ bytes needed, [\d,]+ bytes free\)$"
        with pytest.raises(WriteError, match=rf"last\.ckpt: cannot be written: {reason}"):
            callbacks.AtomicCheckpointIO().save_checkpoint(
                {"state": torch.zeros(len(good))}, run / "checkpoints" / "last.ckpt"
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert (run / "checkpoints" / "last.ckpt").read_bytes() == good
    assert list((run / "checkpoints").iterdir()) == [run / "checkpoints" / "last.ckpt"]


def test_a_broken_checkpoint_is_named(finished: Path, tmp_path: Path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "metrics.json").unlink()
    checkpoint = run / "checkpoints" / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"last\.ckpt: is no checkpoint to continue from"):
        resume(run)
    torch.save({"best": {"val_map": 0.5, "epoch": 1, "is_average": True}}, checkpoint)
    with pytest.raises(InputError, match=r"last\.ckpt: is of an earlier version"):
        resume(run)
    with pytest.raises(InputError, match=r"is no run folder: it has no settings\.yaml"):
        resume(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "asl", "moving_average": 0.0},
        {"method": "bce", "precision": "bf16", "accumulate": 2, "clip_norm": 1.0},
        {"kernel": "mahalanobis", "sampling": "partners", "patience": 1, "epochs": 3, "grey": True},
        {"data_options": {"size": 60}, "sampling": "balanced", "cache": "none", "compile": False},
    ],
    ids=["asl", "bce-bf16", "mahalanobis-partners-grey", "balanced"],
)
def test_other_ways_to_train(changes, tmp_path: Path):
    metrics = train(tiny_settings(**changes), tmp_path / "run")
    assert 0 < metrics["test"]["evaluation"]["mean_average_precision"] <= 1
    assert metrics["test"]["uncertainty"]["num_pairs"] > 0


def test_too_few_images_for_a_batch_still_train(tmp_path: Path):
    metrics = train(tiny_settings(batch_size=500, epochs=1), tmp_path / "run")
    assert metrics["test"] is not None
