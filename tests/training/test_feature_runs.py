"""Runs on feature vectors: trained, resumed, evaluated, predicted, exported, audited, reported, refused."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import kmcl
from feature_files import LABELS, WIDTH, vectors_and_targets, write_archive
from kmcl.cli.app import make_app
from kmcl.data import Dataset, FeatureVectors, Split, open_dataset
from kmcl.data.pixel_statistics import vector_normalisation
from kmcl.data.vectors import take_vectors
from kmcl.encoders import open_encoder
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.labelling.audit import audit_dataset
from kmcl.labelling.image_features import vector_extractor
from kmcl.models.folder import load_model, read_description
from kmcl.models.method_complexity import measure_method
from kmcl.models.prediction import predict_other_data
from kmcl.reports import write_report
from kmcl.runs.resolution import Given, resolve_settings
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.training.lightning import Callback
from kmcl.training.machine import ThisMachine
from kmcl.training.plan import make_plan
from made_once import made_once
from settings_runs import resume, train

COUNT = 400
SETTINGS = {"epochs": 4, "batch_size": 32, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        folder.mkdir()
        write_archive(folder / "colours.npz", COUNT)

    return made_once(tmp_path_factory, "feature-archive", make) / "colours.npz"


@pytest.fixture(scope="module")
def run(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(
        tmp_path_factory,
        "feature-run",
        lambda folder: kmcl.train(f"features:{archive}", output=folder, progress=False, **SETTINGS),
    )


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    result = CliRunner().invoke(make_app(), ["export", str(run), "--output", str(path)])
    assert result.exit_code == 0, result.output
    return path


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


def test_the_run_learns_the_labels_and_has_the_post_hoc_parts(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["evaluation"]["mean_average_precision"] > 0.9
    description = read_description(run / "model")
    assert (description.encoder, description.in_channels, description.image_size) == ("identity", WIDTH, None)
    assert {"frozen_gp", "unfamiliarity"} <= {part.name for part in description.posthoc}
    settings = kmcl.Run(run).settings
    assert (settings.encoder.name, settings.encoder.frozen_stages, settings.data.augmentation) == (
        *("identity", 1),
        "none",
    )


def test_vectors_are_normalised_by_the_training_vectors(run: Path, archive: Path) -> None:
    train_split = open_dataset(f"features:{archive}").splits["train"]
    vectors = take_vectors(train_split.images, np.arange(len(train_split)))
    classifier, description = load_model(run / "model")
    np.testing.assert_allclose(description.mean, vectors.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(description.std, vectors.std(axis=0), rtol=1e-4)
    encoded = classifier.encode(torch.from_numpy(vectors))
    np.testing.assert_allclose(encoded.pooled.std(dim=0, correction=0), np.ones(WIDTH), rtol=1e-4)
    constant = FeatureVectors(np.array([[5.0, 1], [5, 3]], dtype=np.float32))
    assert vector_normalisation(Split(constant, np.zeros((2, 1), np.int8))).std == (1.0, 1.0)


def test_the_saved_model_predicts_what_the_run_measured(run: Path, archive: Path) -> None:
    test_split = open_dataset(f"features:{archive}").splits["test"]
    vectors = take_vectors(test_split.images, np.arange(len(test_split)))
    scores = kmcl.load(run).score(vectors)
    measured = Predictions.load(run / "predictions" / "test.npz")
    np.testing.assert_allclose(scores.score, measured.scores, atol=1e-5)
    assert measured.names[0] == test_split.images.name(0)


def test_predict_takes_the_decisions_that_evaluate_measures(run: Path, archive: Path) -> None:
    test_split = open_dataset(f"features:{archive}").splits["test"]
    shown = kmcl.load(run).predict(take_vectors(test_split.images, np.arange(len(test_split))))
    present = np.array([[label.present for label in one.labels] for one in shown])
    result = CliRunner().invoke(make_app(), ["evaluate", str(run), "--json"])
    found = json.loads(result.output)["runs"][0]["at_threshold"]
    hits = (present & (test_split.targets == 1)).sum()
    assert found["OP"] == hits / present.sum()
    assert found["OR"] == hits / (test_split.targets == 1).sum()


class _StopAfter(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: object, module: object) -> None:
        if module.current_epoch == self.epoch:  # type: ignore[attr-defined]
            raise RuntimeError("stopped")


def test_a_resumed_run_comes_to_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    plan = make_plan(Given({"data": f"features:{archive}", **SETTINGS}))
    train(plan.settings, tmp_path / "whole")
    with pytest.raises(RuntimeError, match="stopped"):
        train(plan.settings, tmp_path / "broken", callbacks=[_StopAfter(2)])
    resume(tmp_path / "broken")
    for file in ("model/model.safetensors", "model/model.json", "metrics.json"):
        assert (tmp_path / "broken" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    left, right = (Predictions.load(tmp_path / one / "predictions/test.npz") for one in ("broken", "whole"))
    assert np.array_equal(left.scores, right.scores)


def test_the_run_chooses_what_was_not_given(archive: Path) -> None:
    plan = make_plan(Given({"data": f"features:{archive}"}), ThisMachine("cpu", archive.parent))
    assert plan.settings.recipe.to_choose == ("learning_rate", "weight_decay", "epochs")
    assert [part.name for part in plan.settings.posthoc] == ["frozen_gp", "unfamiliarity"]
    assert "no image is read" in plan.reason
    unmeasured = make_plan(Given({"data": f"features:{archive}"})).settings
    assert (unmeasured.encoder.name, unmeasured.optimisation.epochs) == ("identity", 20)
    values = {"data": f"features:{archive}", "epochs": 3, "method": "asl"}
    given = make_plan(Given(values), ThisMachine("cpu", archive.parent))
    assert given.settings.recipe.to_choose == ("learning_rate", "weight_decay")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoder": "resnet18"}, "--encoder resnet18: is about images or their encoder"),
        ({"image_size": 224}, "--image-size 224: is about images"),
        ({"augmentation": "photo"}, "--augmentation photo: is about images"),
        ({"recipe": "finetune"}, "recipe finetune: is for images"),
        ({"recipe": "paper"}, "recipe paper: is for images"),
        ({"method": "csra"}, "method csra reads a feature map, and feature vectors have none; use kmcl, asl"),
        ({"method": "q2l"}, "method q2l reads a feature map"),
    ],
)
def test_settings_of_images_are_refused(values: dict[str, object], message: str, archive: Path) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(Given({"data": f"features:{archive}", **values}))


@pytest.mark.parametrize("method", ["asl", "bce", "focal", "mulsupcon", "aam", "mlgcn"])
def test_methods_on_pooled_features_learn_from_vectors(method: str, tmp_path: Path) -> None:
    vectors, targets = vectors_and_targets(240)
    splits = {
        name: Split(FeatureVectors(vectors[rows]), targets[rows])
        for name, rows in (("train", slice(0, 160)), ("val", slice(160, 240)))
    }
    dataset = Dataset("colours", LABELS, splits)
    found = kmcl.train(dataset, method=method, output=tmp_path / "run", progress=False, **SETTINGS)
    assert found.metrics["val"]["evaluation"]["mean_average_precision"] > 0.75


def test_other_data_are_evaluated_and_other_lengths_refused(run: Path, tmp_path: Path) -> None:
    vectors, targets = vectors_and_targets(60, seed=1)
    other = write_archive(tmp_path / "other.npz", 60, features=vectors, targets=targets)
    evaluation = kmcl.evaluate(run, data=f"features:{other}", split="all", progress=False)
    assert evaluation.mean_average_precision > 0.85
    longer = write_archive(tmp_path / "longer.npz", 60, features=np.ones((60, 7)))
    with pytest.raises(InputError, match="the model takes feature vectors of 6 numbers; got shape"):
        kmcl.evaluate(run, data=f"features:{longer}", split="all", progress=False)
    with pytest.raises(InputError, match="the model takes feature vectors, and the data are images"):
        kmcl.evaluate(run, data=Dataset("x", LABELS, _digits()), split="test", progress=False)


@pytest.mark.parametrize("split", ["test", "all"])
def test_patients_of_other_data_are_resampled_whole(run: Path, tmp_path: Path, split: str) -> None:
    """Eight rows of each of 30 patients, every fourth of which is in val."""
    vectors, targets = vectors_and_targets(30, seed=1)
    patients = np.repeat([f"patient {number}" for number in range(30)], 8)
    parts = np.where(np.arange(30) % 4 == 0, "val", "test").repeat(8)
    changes = {"features": vectors.repeat(8, axis=0), "targets": targets.repeat(8, axis=0), "split": parts}

    def interval(name: str, **groups: object) -> tuple[float, float]:
        other = write_archive(tmp_path / name, 240, **changes, **groups)
        arguments = ["evaluate", str(run), "--data", f"features:{other}", "--split", split, "--json"]
        found = CliRunner().invoke(make_app(), arguments)
        assert found.exit_code == 0, found.output
        stated = json.loads(found.stdout)["runs"][0]["map_interval"]
        return stated["low"], stated["high"]

    low, high = interval("patients.npz", group=patients)
    narrow_low, narrow_high = interval("rows.npz")
    assert high - low > 1.7 * (narrow_high - narrow_low)
    is_taken = slice(None) if split == "all" else parts == "test"
    predictions = predict_other_data(run / "model", f"features:{tmp_path / 'patients.npz'}", split=split)
    of_rows = dict(zip([f"row-{number}" for number in range(240)], patients, strict=True))
    assert predictions.predictions.groups == tuple(of_rows[name] for name in predictions.predictions.names)
    assert len(predictions.predictions) == len(patients[is_taken])


def _digits() -> dict[str, Split]:
    images = open_dataset("digits", size=20).splits["test"].images
    return {"test": Split(images, np.ones((len(images), 3), np.int8))}


def test_predict_writes_the_rows_in_their_order(run: Path, tmp_path: Path) -> None:
    vectors, _ = vectors_and_targets(30, seed=2)
    ids = [f"new-{number}" for number in range(30)]
    source = write_archive(tmp_path / "new.npz", 30, features=vectors, ids=ids, targets=None, labels=None)
    output = tmp_path / "scores.csv"
    result = CliRunner().invoke(
        make_app(), ["predict", str(run), f"features:{source}", "--output", str(output)]
    )
    assert result.exit_code == 0, result.output
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows[:: len(LABELS)]] == ids
    expected = kmcl.load(run).score(vectors).probability
    found = np.array([float(row["probability"]) for row in rows]).reshape(30, -1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_predict_takes_arrays(run: Path) -> None:
    vectors, _ = vectors_and_targets(5)
    model = kmcl.load(run)
    assert [one.name for one in model.predict(vectors)] == [f"row {number}" for number in range(5)]
    one = model.predict(vectors[3].astype(np.float64))[0]
    # Of one vector at a time: a product with several rows may round otherwise.
    assert one.labels == model.predict(vectors, batch_size=1)[3].labels
    errors = [prediction.error for prediction in model.predict([vectors[0], vectors[1][:4], "photo.jpg"])]
    assert errors == [
        None,
        "row 1: has 4 numbers; the model takes 6",
        "photo.jpg: the model takes feature vectors of 6 numbers, not images",
    ]


def test_onnx_is_the_model(run: Path, exported: Path) -> None:
    vectors, _ = vectors_and_targets(50, seed=3)
    original: ImagePredictor = kmcl.load(run)
    model = kmcl.load(exported)
    assert model.feature_dim == WIDTH
    left, right = original.score(vectors), model.score(vectors)
    np.testing.assert_allclose(left.score, right.score, atol=1e-5)
    np.testing.assert_allclose(left.probability, right.probability, atol=1e-5)
    assert left.unfamiliarity is not None
    assert right.unfamiliarity is not None
    np.testing.assert_allclose(left.unfamiliarity, right.unfamiliarity, atol=1e-2)
    report = json.loads(exported.with_name("model.onnx.json").read_text())
    assert report["checked_on"].startswith("test rows of features:")


def test_a_drift_of_features_is_found_from_files_of_the_command(
    run: Path, exported: Path, tmp_path: Path
) -> None:
    val = Predictions.load(run / "predictions" / "val.npz")
    assert val.feature_summary is not None
    model: ImagePredictor = kmcl.load(exported)
    assert val.feature_summary.shape == (len(val), model.summary_size)
    vectors, _ = vectors_and_targets(120, seed=3)
    found = {}
    order = model.score(vectors).feature_summary[:, 0].argsort()
    for name, rows in (("same", order), ("half", order[60:])):
        source, output = tmp_path / f"{name}.npz", tmp_path / f"{name}.csv"
        np.savez(source, features=vectors[rows])
        arguments = ["predict", str(exported), f"features:{source}", "--output", str(output), "--features"]
        result = CliRunner().invoke(make_app(), arguments)
        assert result.exit_code == 0, result.output
        result = CliRunner().invoke(make_app(), ["monitor", str(run), str(output), "--json"])
        checks = json.loads(result.output)["checks"]
        found[name] = [one["is_drift"] for one in checks if one["what"].startswith("mean of feature")]
        assert len(found[name]) == model.summary_size
    assert not any(found["same"])
    assert found["half"][0]


def test_predict_with_onnx_and_refusals_for_images(exported: Path, run: Path, tmp_path: Path) -> None:
    source = write_archive(tmp_path / "new.npz", 4)
    result = CliRunner().invoke(make_app(), ["predict", str(exported), f"features:{source}", "--csv"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("row-3,") == len(LABELS)
    for model in (run, exported):
        assert "kmcl serve needs images, and this model takes feature vectors of 6" in refused(
            "serve", model, "--port", free_port()
        )
    picture = tmp_path / "a.png"
    picture.write_bytes(b"")
    assert "an explanation needs images" in refused("explain", run, picture, "--output", tmp_path / "e")
    assert "kmcl select needs images" in refused("select", run, picture)
    assert "--bentoml needs images" in refused(
        *("export", run, "--output", tmp_path / "m.onnx", "--bentoml", tmp_path / "service")
    )


def test_an_audit_finds_planted_errors_by_row(tmp_path: Path) -> None:
    vectors, targets = vectors_and_targets(COUNT, seed=4)
    clear = np.abs(vectors[:, 0] - 2) * 10**1.5  # how far the first number is from its mean, in deviations
    row = int(np.where(targets[:, 0] == 1, clear, 0).argmax())
    targets[row, 0] = 0
    path = write_archive(tmp_path / "a.npz", COUNT, features=vectors, targets=targets)
    dataset = open_dataset(f"features:{path}")
    found = audit_dataset(dataset, vector_extractor(Console(quiet=True), WIDTH), count=5)
    names = [name for split in dataset.splits.values() for name in map(split.images.name, range(len(split)))]
    missing = [finding for finding in found.findings if finding.kind == "missing"]
    places = [(names[finding.row], LABELS[finding.label]) for finding in missing]
    assert (f"row-{row}", "red") in places  # the others are noise of the data
    assert "from the row it is" in missing[0].reasons[0]

    result = CliRunner().invoke(
        make_app(), ["data", "audit", f"features:{path}", "--count", "5", "--output", str(tmp_path / "audit")]
    )
    assert result.exit_code == 0, result.output
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert f"<span>row-{row}</span>" in page
    assert "compressed" not in page
    findings = (tmp_path / "audit" / "findings.csv").read_text().splitlines()
    accepted = [
        line.replace(",1,,", ",1,accept,", 1) if f"row-{row},red" in line else line for line in findings
    ]
    (tmp_path / "decisions.csv").write_text("\n".join(accepted))
    corrected = tmp_path / "corrected.npz"
    result = CliRunner().invoke(
        make_app(),
        ["data", "correct", f"features:{path}", str(tmp_path / "decisions.csv"), "--output", str(corrected)],
    )
    assert result.exit_code == 0, result.output
    with np.load(corrected) as arrays:
        place = arrays["ids"].tolist().index(f"row-{row}")
        assert arrays["targets"][place, 0] == 1


def test_the_report_leaves_out_pictures_with_one_sentence(
    run: Path, tmp_path: Path, quick_figures: None
) -> None:
    steps: list[tuple[str, float]] = []
    page = write_report(
        [run], tmp_path / "report", on_progress=lambda name, done: steps.append((name, done))
    ).read_text()
    assert page.count("has feature vectors instead of images") == 1
    assert "cannot be opened" not in page
    assert "blur, noise" not in page
    assert "Saliency" not in page
    assert "row-" in page
    # `metrics` takes 4 parts, the sections made 91 and the page, which comes last, 14.
    assert steps[-1] == ("page", pytest.approx(95 / 109))


def test_the_card_of_a_saved_model_says_what_it_takes(run: Path, tmp_path: Path) -> None:
    kmcl.Run(run).load().save_pretrained(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "Takes feature vectors of 6 numbers, not images" in card
    assert "image-classification" not in card
    assert kmcl.load(tmp_path / "saved").feature_dim == WIDTH


def test_the_identity_encoder_passes_vectors_on() -> None:
    encoder = open_encoder("identity", in_channels=5, frozen_stages=1, taps=True)
    vectors = torch.randn(3, 5)
    encoded = encoder(vectors)
    assert torch.equal(encoded.pooled, vectors)
    assert torch.equal(encoded.spatial, vectors.unsqueeze(1))
    assert encoded.taps is not None
    assert torch.equal(encoder.encode_rows(encoder.frozen_rows(vectors)).pooled, vectors)
    assert not list(encoder.parameters())
    size = measure_method("identity", resolve_settings("digits", flags={"method": "bce"}).method, 4, None, 5)
    assert (size.parameters, size.macs) == (4 * 5 + 4, 4 * 5)
