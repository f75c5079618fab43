"""Exported files: the same scores as the model's, everything inside, and no need of torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

import kmcl.serving.export
from kmcl.cli.app import make_app
from kmcl.cli.export import export
from kmcl.data import Split, open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import FittedPart, ModelDescription, build_classifier, save_model
from kmcl.options import read_options
from kmcl.posthoc import PARTS, find_part
from kmcl.runs.resolution import resolve_settings
from kmcl.serving import OnnxPredictor, Predictor
from kmcl.serving.check_images import CheckImages
from kmcl.serving.export import export_model
from kmcl.serving.export_metadata import ExportMetadata
from kmcl.serving.image_predictor import BatchScores

onnx = pytest.importorskip("onnx", reason="the extra export is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

LABELS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


KERNELS = {"kmcl": {"kernel": "isotropic"}}


def make_predictor(
    method: str = "kmcl", encoder: str = "test_convnext", *, frozen_stages: int = 0
) -> Predictor:
    """Random weights that tell scenes apart, with thresholds and a calibration that matter."""
    torch.manual_seed(0)
    description = ModelDescription(
        rules=LabelRules(
            LABELS,
            thresholds=tuple(np.linspace(0.3, 0.7, 10).tolist()),
            temperatures=tuple(np.linspace(0.5, 2, 10).tolist()),
            biases=tuple(np.linspace(-1, 1, 10).tolist()),
        ),
        method=read_options({"name": method, **KERNELS.get(method, {})}),
        encoder=encoder,
        image_size=32,
        frozen_stages=frozen_stages,
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.6, 0.7),
    )
    classifier = build_classifier(description, taps=frozen_stages > 0).eval()
    with torch.no_grad():
        for parameter in classifier.head.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return Predictor(classifier, description)


@pytest.fixture(scope="module")
def scenes() -> np.ndarray:
    split = open_dataset("digits", size=60).splits["test"]
    return np.stack([split.images.load(index)[:32, :32] for index in range(20)])


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return make_predictor()


@pytest.fixture(scope="module")
def model_file(predictor: Predictor, scenes, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    exported = export_model(predictor, path, scenes)
    assert (exported.num_images, exported.path) == (20, path)
    assert exported.score_difference < 1e-5
    assert exported.sigma_difference < 1e-5
    return path


def test_onnx_gives_the_same_predictions(predictor: Predictor, model_file: Path, scenes):
    exported = OnnxPredictor(model_file)
    for batch_size in (1, 3, 20):  # any batch size
        pairs = zip(
            predictor.predict(list(scenes), batch_size),
            exported.predict(list(scenes), batch_size),
            strict=True,
        )
        for ours, theirs in pairs:
            assert ours.name == theirs.name
            for a, b in zip(ours.labels, theirs.labels, strict=True):
                assert (a.label, a.threshold) == (b.label, b.threshold)
                assert (a.score, a.probability) == pytest.approx((b.score, b.probability), abs=1e-5)
                assert a.sigma == pytest.approx(b.sigma, rel=1e-5)
    scores = predictor.score(scenes).score
    assert scores.std(axis=0).min() > 0.005  # images differ, so the comparison means something


def with_fitted_parts(method: str, scenes: np.ndarray) -> Predictor:
    """With all post-hoc parts, fitted to some of the scenes, with the largest weight they can have."""
    predictor = make_predictor(method, "test_resnet", frozen_stages=2)
    classifier = predictor.classifier
    targets = torch.eye(20, 10, dtype=torch.int8)
    with torch.no_grad():
        encoded = classifier.encode(torch.from_numpy(scenes).permute(0, 3, 1, 2) / 255)
        output = classifier.head(encoded)
        for name in PARTS:
            part = find_part(name)(classifier.encoder, 10)
            observations = part.observe(encoded, output)
            part.fit(observations[:12], targets[:12], find_part(name).Options(), seed=0)
            part.tune(observations, torch.zeros(20, 10), lambda logits: logits.abs().mean())
            classifier.posthoc[name] = part
    held = tuple(FittedPart(name, part.sizes) for name, part in classifier.posthoc.items())
    return Predictor(classifier, replace(predictor.description, posthoc=held))


@pytest.mark.parametrize("method", ["kmcl", "asl"])
def test_post_hoc_parts_are_exported(method: str, scenes, tmp_path: Path):
    predictor = with_fitted_parts(method, scenes)
    plain = make_predictor(method, "test_resnet", frozen_stages=2)
    expected = predictor.score(scenes).score
    assert np.abs(expected - plain.score(scenes).score).max() > 0.01
    exported = export_model(predictor, tmp_path / "model.onnx", scenes)
    assert exported.score_difference < 1e-5
    assert exported.unfamiliarity_difference < 1e-3
    assert exported.summary_difference < 1e-3
    read = OnnxPredictor(tmp_path / "model.onnx")
    assert read.has_unfamiliarity
    found = read.score(scenes)
    np.testing.assert_allclose(found.score, expected, atol=1e-5)
    np.testing.assert_allclose(found.unfamiliarity, predictor.score(scenes).unfamiliarity, atol=1e-3)
    assert np.ptp(found.unfamiliarity) > 0.5
    assert read.summary_size == predictor.summary_size == found.feature_summary.shape[1] == 8
    np.testing.assert_allclose(found.feature_summary, predictor.score(scenes).feature_summary, atol=1e-3)
    (image,) = read.predict(scenes[0])
    np.testing.assert_allclose(image.feature_summary, found.feature_summary[0], atol=1e-4)
    assert (found.sigma is None) == (method == "asl")


def test_a_model_without_the_part_has_no_unfamiliarity(predictor: Predictor, model_file: Path, scenes):
    for one in (predictor, OnnxPredictor(model_file)):
        assert not one.has_unfamiliarity
        assert one.score(scenes[:1]).unfamiliarity is None
        assert one.predict(scenes[0])[0].unfamiliarity is None
        assert one.summary_size == 0
        assert one.score(scenes[:1]).feature_summary is None
        assert one.predict(scenes[0])[0].feature_summary is None


def test_a_photograph_is_resized_as_for_the_model(predictor: Predictor, model_file: Path):
    grid = np.linspace(0, 255, 90)[:, None] + 40 * np.sin(np.arange(70) / 5)[None]
    photograph = np.repeat(grid.clip(0, 255).astype(np.uint8)[:, :, None], 3, axis=2)
    exported = OnnxPredictor(model_file)
    difference = exported.resize(photograph).astype(int) - predictor.resize(photograph)
    assert exported.resize(photograph).shape == (32, 32, 3)
    assert np.abs(difference).max() <= 1


def test_metadata_hold_what_other_programs_need(predictor: Predictor, model_file: Path):
    properties = {entry.key: entry.value for entry in onnx.load(str(model_file)).metadata_props}
    values = json.loads(properties["kmcl"])
    assert values["rules"]["labels"] == list(LABELS)
    assert values["thresholds"] == predictor.rules.exact_thresholds.tolist()
    assert "thresholds" not in values["rules"]  # those of the scores have another name
    assert (values["image_size"], values["mean"], values["std"]) == (32, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    assert "uint8" in values["preprocessing"]
    assert ExportMetadata.from_json(properties["kmcl"], "x") == OnnxPredictor(model_file).metadata


def test_int8_is_smaller_near_and_says_so(predictor, model_file: Path, scenes, tmp_path: Path, monkeypatch):
    """On the graph that was exported already, which spares the seconds of tracing the model again."""
    graph = onnx.load(str(model_file))
    del graph.metadata_props[:]
    traced = SimpleNamespace(graph_signature=SimpleNamespace(user_outputs=("a", "b", "c")))
    monkeypatch.setattr(kmcl.serving.export, "_trace", lambda predictor: traced)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(model_proto=graph))
    exported = export_model(predictor, tmp_path / "small.onnx", scenes, int8=True)
    assert exported.num_bytes < 0.6 * model_file.stat().st_size
    assert 1e-5 < exported.score_difference < 0.2
    assert np.corrcoef(exported.scores.score.ravel(), exported.original.score.ravel())[0, 1] > 0.95
    thresholds = predictor.rules.score_thresholds
    before, after = exported.original.score, exported.scores.score
    changed = (before >= thresholds) != (after >= thresholds)
    assert exported.decisions_changed == pytest.approx(changed.mean())
    assert 0 < exported.decisions_changed < 0.2
    assert OnnxPredictor(tmp_path / "small.onnx").metadata.precision == "int8"
    kinds = [node.op_type for node in onnx.load(str(tmp_path / "small.onnx")).graph.node]
    assert "MatMulInteger" in kinds
    grouped = [
        node for node in graph.graph.node if any(a.name == "group" and a.i > 1 for a in node.attribute)
    ]
    assert kinds.count("Conv") == len(grouped) > 0


def test_a_transformer_without_kernels_is_exported(scenes, tmp_path: Path):
    predictor = make_predictor("asl", "test_vit")
    exported = export_model(predictor, tmp_path / "model.onnx", scenes)
    assert exported.score_difference < 1e-5
    assert exported.sigma_difference is None
    read = OnnxPredictor(tmp_path / "model.onnx")
    assert read.metadata.rules == predictor.rules
    found, expected = read.score(scenes[:7]), predictor.score(scenes[:7])
    np.testing.assert_allclose(found.score, expected.score, atol=1e-5)
    np.testing.assert_allclose(found.probability, expected.probability, atol=1e-5)


def test_there_is_one_format():
    """Nothing of ours opened the torch programs that there were."""
    program = make_app()
    old = CliRunner().invoke(program, ["export", "nowhere", "--format", "torch"])
    assert old.exit_code == 2
    assert "No such option: --format" in old.output


@pytest.fixture
def exported_before(model_file: Path, monkeypatch) -> None:
    """The file is there already: copying it spares the seconds of another export."""
    monkeypatch.setattr(
        kmcl.serving.export, "_write_onnx", lambda predictor, path, *_: shutil.copy(model_file, path)
    )


@pytest.mark.usefixtures("exported_before")
def test_an_export_that_computes_something_else_is_not_written(predictor, scenes, tmp_path, monkeypatch):
    honest = predictor.score
    monkeypatch.setattr(predictor, "score", lambda images: honest(images[:, ::-1].copy()))
    with pytest.raises(InputError, match=r"model\.onnx: was not written: its scores differ .* by 0\."):
        export_model(predictor, tmp_path / "model.onnx", scenes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("exported_before")
def test_a_run_is_checked_on_its_own_images(predictor: Predictor, tmp_path: Path, capsys):
    run = tmp_path / "run"
    save_model(run / "model", predictor.classifier, predictor.description)
    export(str(run), images=9, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert (report["checked_on"], report["map"]) == ("scenes of the embedded digits", None)
    settings = resolve_settings("digits", flags={"data_options": {"size": 60}})
    (run / "settings.yaml").write_text(settings.to_yaml())
    export(str(run), images=9, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["file"] == str(run / "model.onnx")
    assert (report["num_images"], report["checked_on"]) == (9, "test images of digits")
    split = open_dataset("digits", size=60).splits["test"]
    images = np.stack([predictor.resize(split.images.load(index)) for index in range(9)])
    scores, targets = predictor.score(images).score, split.targets[:9] == 1
    present = targets.any(axis=0)
    expected = average_precision_score(targets[:, present], scores[:, present], average="macro")
    assert report["map"]["original"] == pytest.approx(expected)
    assert report["map"]["exported"] == pytest.approx(expected)
    assert (report["map"]["cost"], report["decisions_changed"]) == (pytest.approx(0, abs=1e-6), 0)
    assert json.loads((run / "model.onnx.json").read_text()) == report
    export(str(run), images=9)
    assert ", of the model " in capsys.readouterr().out


def test_the_cost_in_map_is_paired_and_signed(scenes):
    """A file whose scores are reversed for one label loses that label's precision, as the interval says."""
    random = np.random.default_rng(0)
    targets = (random.random((20, 2)) < 0.4).astype(np.int8)
    score = (0.8 * targets + 0.2 * random.random((20, 2))).astype(np.float32)
    worse = np.stack([score[:, 0], 1 - score[:, 1]], axis=1)
    split = Split(ArrayImages(np.zeros((20, 4, 4), dtype=np.uint8), "scenes"), targets)
    images = CheckImages("scenes", scenes, split)
    cost = images.compare(BatchScores(score, score, None), BatchScores(worse, worse, None), ("a", "b"))
    lost = 1 - average_precision_score(targets[:, 1], worse[:, 1])
    assert cost.original == 1
    assert cost.cost == pytest.approx(lost / 2)
    assert cost.exported == pytest.approx(1 - lost / 2)
    assert 0 < cost.low < cost.cost < cost.high
    of_patients = replace(split, groups=np.repeat(["a", "b", "c", "d"], 5))
    paired = CheckImages("scenes", scenes, of_patients).predictions(
        BatchScores(score, score, None), ("a", "b")
    )
    assert paired.groups == tuple("a" * 5 + "b" * 5 + "c" * 5 + "d" * 5)
    assert (
        CheckImages("scenes", scenes).compare(
            BatchScores(score, score, None), BatchScores(score, score, None), ("a", "b")
        )
        is None
    )


def test_a_check_with_one_image_and_another_ending_are_refused(predictor, scenes, tmp_path):
    with pytest.raises(InputError, match="at least 2 images; got 1"):
        export_model(predictor, tmp_path / "model.onnx", scenes[:1])
    with pytest.raises(InputError, match=r"model\.pt2: an exported model is a file NAME\.onnx"):
        export_model(predictor, tmp_path / "model.pt2", scenes)


def test_foreign_and_broken_files_are_refused(model_file: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"none\.onnx: there is no such file"):
        OnnxPredictor(tmp_path / "none.onnx")
    path = tmp_path / "changed.onnx"
    whole = model_file.read_bytes()
    for content in (b"", b"not onnx", whole[: len(whole) // 2], whole[5000:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"changed\.onnx: cannot be read as an ONNX model"):
            OnnxPredictor(path)
    model = onnx.load(str(model_file))
    entry = next(entry for entry in model.metadata_props if entry.key == "kmcl")
    values = json.loads(entry.value)
    for change, message in (
        ({"format": "other"}, "not of the format kmcl-export-2"),
        (
            {"format": "kmcl-export-1"},
            r"changed\.onnx: was written by a version of kmcl before 0\.1\.0; train the model again",
        ),
        ({"rules": {"labels": ["a"], "thresholds": [0.5, 0.5]}}, "thresholds must be 1 numbers; got 2"),
        ({"rules": {"labels": ["a"]}}, r"must give \('score', .* of 1 labels"),
        ({"rules": []}, "label rules must be an object"),
        ({"mean": [float("nan")] * 3}, "mean must be finite; got nan"),
        ({"image_size": 10**9}, "image_size must be between 1 and 8192"),
        ({"image_size": 64}, "must take uint8 images of 3 x 64 x 64"),
        ({"surprise": 1}, "its metadata are broken"),
    ):
        entry.value = json.dumps({**values, **change})
        onnx.save(model, str(path))
        with pytest.raises(InputError, match=message):
            OnnxPredictor(path)
    model.metadata_props.remove(entry)
    onnx.save(model, str(path))
    with pytest.raises(InputError, match=r"that was not written by kmcl export"):
        OnnxPredictor(path)


def test_damaged_weights_are_refused(model_file: Path, tmp_path: Path):
    model = onnx.load(str(model_file))
    weights = next(w for w in model.graph.initializer if w.data_type == 1 and len(w.dims) == 4)
    weights.raw_data = b"\xff" * len(weights.raw_data)
    onnx.save(model, str(tmp_path / "damaged.onnx"))
    with pytest.raises(InputError, match=r"damaged\.onnx: gives scores that are not finite"):
        OnnxPredictor(tmp_path / "damaged.onnx")


def test_random_damage_is_refused_or_harmless(model_file: Path, scenes, tmp_path: Path):
    whole, path = model_file.read_bytes(), tmp_path / "damaged.onnx"
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(25):
        damaged = bytearray(whole)
        start = int(random.integers(len(whole)))
        damaged[start : start + 64] = random.bytes(min(64, len(whole) - start))
        path.write_bytes(damaged)
        try:
            scores = OnnxPredictor(path).score(scenes[:1]).score
        except InputError as error:
            assert str(error).startswith(str(path))  # noqa: PT017
            refused += 1
        else:
            assert np.isfinite(scores).all()
    assert refused > 0
