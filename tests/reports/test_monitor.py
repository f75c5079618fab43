"""`kmcl monitor`: every form of predictions is read, drift is found and named, broken files are refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.evaluation.drift import predicted_images
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import ModelDescription, save_description
from kmcl.options import read_options
from kmcl.reports.monitor import compare_with_val
from kmcl.reports.prediction_files import read_predictions
from kmcl.serving import ImagePrediction, LabelPrediction
from kmcl.serving.prediction_files import FORM_OF_SUFFIX, PredictionFiles
from kmcl.serving.predictions import Columns

LABELS = ("cat", "hot, dog", "12")
RULES = LabelRules(LABELS, thresholds=(0.4, 0.5, 0.3), temperatures=(1.5,) * 3, biases=(0.1,) * 3)


def draw(number: int, seed: int, shift: float = 0.0, moved: float = 0.0) -> Predictions:
    """`shift` moves the logits of a label, `moved` the second of two features."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(number, 3)) + np.array([0, shift, 0])
    return Predictions(
        LABELS,
        tuple(f"{row}.png" for row in range(number)),
        (1 / (1 + np.exp(-logits))).astype(np.float32),
        np.zeros((number, 3), dtype=np.int8),
        unfamiliarity=rng.random(number).astype(np.float32),
        feature_summary=(rng.normal(size=(number, 2)) + np.array([0, moved])).astype(np.float32),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """What `kmcl monitor` reads of a run."""
    folder = tmp_path_factory.mktemp("run")
    description = ModelDescription(RULES, read_options({"name": "asl"}), "test_resnet", 32)
    (folder / "model").mkdir()
    save_description(folder / "model", description)
    (folder / "predictions").mkdir()
    draw(200, seed=0).save(folder / "predictions" / "val.npz")
    return folder


def images_of(found: Predictions, unfamiliarity: bool, features: bool) -> Iterator[ImagePrediction]:
    """The images as a predictor gives them."""
    decided = RULES.decide(found.scores)
    for row, name in enumerate(found.names):
        labels = tuple(
            LabelPrediction(label, decided.probabilities[row, k], None, None, 0.5, False, 0.5, None)
            for k, label in enumerate(LABELS)
        )
        share = None if not unfamiliarity else round(float(found.unfamiliarity[row]), 6)
        summary = tuple(round(float(one), 6) for one in found.feature_summary[row]) if features else None
        yield ImagePrediction(name, labels, unfamiliarity=share, feature_summary=summary)


FORMS = ("long.csv", "wide.csv", "a.json", "a.jsonl", "long.parquet", "wide.parquet")


def write(path: Path, found: Predictions, unfamiliarity: bool = True, features: bool = True) -> Path:
    """As `kmcl predict` does, with an image that cannot be read among the others."""
    images = [*images_of(found, unfamiliarity, features)]
    images.insert(1, ImagePrediction("broken.png", (), "cannot be decoded"))
    columns = Columns(unfamiliarity=unfamiliarity, error=True, num_features=2 * features)
    files = PredictionFiles(FORM_OF_SUFFIX[path.suffix], columns, LABELS, path.stem == "wide")
    chunk = path.with_stem("chunk")
    files.write(chunk, images)
    files.join([chunk], path)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("unfamiliarity", "features"), [(True, True), (True, False), (False, False)])
def test_every_form_gives_the_numbers_that_were_written(
    form: str, unfamiliarity: bool, features: bool, tmp_path: Path
):
    found = draw(30, seed=1)
    read = read_predictions([write(tmp_path / form, found, unfamiliarity, features)], RULES)
    expected = predicted_images(found, RULES)
    order = np.argsort(found.names) if form not in ("wide.csv", "wide.parquet") else np.arange(30)
    np.testing.assert_allclose(read.probabilities, expected.probabilities[order], atol=1e-6)
    np.testing.assert_array_equal(read.present, expected.present[order])
    assert (read.unfamiliarity is not None) == unfamiliarity
    if unfamiliarity:
        np.testing.assert_allclose(read.unfamiliarity, expected.unfamiliarity[order], atol=1e-6)
    assert (read.features is not None) == features
    if features:
        np.testing.assert_allclose(read.features, expected.features[order], atol=1e-5)


ODD = ("image", "error", "label", "probability", "unfamiliarity", "feature_1", "names", "a;b", "größe", " x ")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("odd", ODD)
def test_labels_named_like_columns_are_read_back_or_refused(form: str, odd: str, tmp_path: Path):
    """Of a file without other columns, as `kmcl predict` writes where every image can be read."""
    path = tmp_path / form
    rules = replace(RULES, labels=(odd, "probability" if odd == "label" else LABELS[1], LABELS[2]))
    values = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    images = [
        ImagePrediction(
            name,
            tuple(
                LabelPrediction(label, value, None, None, 0.5, False, 0.5, None)
                for label, value in zip(rules.labels, row, strict=True)
            ),
        )
        for name, row in zip(("a.png", "b.png"), values.tolist(), strict=True)
    ]
    if odd == "image" and path.stem == "wide":
        with pytest.raises(InputError, match="label 'image' has the name of another column"):
            PredictionFiles(FORM_OF_SUFFIX[path.suffix], Columns(), rules.labels, wide=True)
        return
    files = PredictionFiles(FORM_OF_SUFFIX[path.suffix], Columns(), rules.labels, path.stem == "wide")
    files.write(tmp_path / "chunk", images)
    files.join([tmp_path / "chunk"], path)
    read = read_predictions([path], rules)
    np.testing.assert_allclose(read.probabilities, values, atol=1e-6)
    assert read.unfamiliarity is None
    assert read.features is None


def test_several_files_are_one_batch(tmp_path: Path):
    paths = [write(tmp_path / form, draw(10, seed)) for seed, form in enumerate(FORMS)]
    read = read_predictions(paths, RULES)
    assert read.probabilities.shape == (60, 3)
    assert read.unfamiliarity.shape == (60,)
    assert read.features.shape == (60, 2)
    mixed = [paths[0], write(tmp_path / "b.jsonl", draw(10, 9), unfamiliarity=False)]
    assert read_predictions(mixed, RULES).unfamiliarity is None


def test_a_shift_is_found_and_none_where_there_is_none(run: Path, tmp_path: Path):
    same, _ = compare_with_val(run, [write(tmp_path / "a.jsonl", draw(150, seed=2))])
    assert not same.found
    assert len(same.checks) == 10
    blurred, _ = compare_with_val(run, [write(tmp_path / "c.jsonl", draw(150, seed=2, moved=0.8))])
    assert [check.what for check in blurred.found] == ["mean of feature 2"]
    moved, _ = compare_with_val(run, [write(tmp_path / "b.jsonl", draw(150, seed=2, shift=1.5))])
    assert {check.label for check in moved.found} == {"hot, dog"}


def with_patients(found: Predictions, number: int) -> Predictions:
    """Each image three times more, as further images of the same patient."""
    repeated = np.repeat(np.arange(len(found.names)), 4)
    return replace(
        found,
        names=tuple(f"some/{number}{place // 4:04d}_{place % 4}.png" for place in range(len(repeated))),
        scores=found.scores[repeated],
        targets=found.targets[repeated],
        unfamiliarity=found.unfamiliarity[repeated],
        feature_summary=found.feature_summary[repeated],
    )


@pytest.mark.parametrize("form", FORMS)
def test_one_image_of_each_group_is_compared(form: str, run: Path, tmp_path: Path):
    """Images that are there four times are no more evidence than those that are there once."""
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    once = draw(200, seed=0), draw(150, seed=2, shift=0.5)
    many = [with_patients(found, number) for number, found in enumerate(once)]
    many[0].save(folder / "predictions" / "val.npz")
    new = write(tmp_path / form, many[1])
    grouped, _ = compare_with_val(folder, [new], group="^[0-9]+")
    single, _ = compare_with_val(run, [write(tmp_path / f"single-{form}", once[1])])
    assert (grouped.num_val, grouped.num_new) == (200, 150)
    np.testing.assert_allclose(
        [check.p_value for check in grouped.checks], [check.p_value for check in single.checks], rtol=1e-9
    )
    ignored, _ = compare_with_val(folder, [new])
    assert ignored.num_new == 600
    assert len(ignored.found) > len(grouped.found)


def test_several_images_of_a_group_in_val_are_said(run: Path, tmp_path: Path):
    """Where val was read with its groups, the command itself knows that its images are not independent."""
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    new = write(tmp_path / "new.csv", draw(50, seed=1))
    for groups, is_said in ((range(200), False), (np.arange(200) // 2, True)):
        replace(draw(200, seed=0), groups=tuple(map(str, groups))).save(folder / "predictions" / "val.npz")
        result = invoke(folder, new)
        assert result.exit_code == 0
        assert ("--group PATTERN" in result.output) == is_said
        assert ("--group PATTERN" in (folder / "monitor" / "monitor.html").read_text()) == is_said


@pytest.mark.parametrize(("pattern", "message"), [("x[0-9]", "not found in the name"), ("(", "expression")])
def test_a_group_that_cannot_be_found_is_named(pattern: str, message: str, run: Path, tmp_path: Path):
    result = invoke(run, write(tmp_path / "a.jsonl", draw(20, 1)), "--group", pattern)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert repr(pattern) in str(result.exception)


def invoke(*arguments: object):
    return CliRunner().invoke(make_app(), ["monitor", *map(str, arguments)])


def test_the_command_writes_a_page_and_json(run: Path, tmp_path: Path):
    file = write(tmp_path / "long.csv", draw(150, seed=2, shift=1.5))
    result = invoke(run, file, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "drift: 2 of 10 checks differ from val, 150 new images against 200" in result.output
    assert "not compared" not in result.output
    page = (tmp_path / "out" / "monitor.html").read_text(encoding="utf-8")
    assert "Drift: 2 of 10 checks" in page
    assert "hot, dog is present in" in page
    assert page.count(">unfamiliar share<") == 1
    assert page.count(">label rate<") == 3
    assert page.count(">mean of feature 2<") == 1
    values = json.loads((tmp_path / "out" / "monitor.json").read_text())
    assert (values["drift"], values["num_new"], len(values["checks"])) == (True, 150, 10)
    assert values["not_compared"] == []
    assert (tmp_path / "out" / "figures" / "label-rates.csv").is_file()
    assert invoke(run, file, "--output", tmp_path / "out", "--fail-on-drift").exit_code == 3
    as_json = invoke(run, file, "--output", tmp_path / "out", "--json", "--false-alarms", "1e-300")
    assert json.loads(as_json.output)["drift"] is False


def test_a_drift_of_features_is_said_in_words(run: Path, tmp_path: Path):
    file = write(tmp_path / "long.parquet", draw(150, seed=2, moved=0.8))
    result = invoke(run, file, "--output", tmp_path / "out")
    sentence = re.search(r"mean of feature 2 is (\S+), of val (\S+)", result.output)
    means = [one.feature_summary[:, 1].mean() for one in (draw(150, seed=2, moved=0.8), draw(200, seed=0))]
    assert [float(one) for one in sentence.groups()] == pytest.approx(means, abs=1e-3)


def test_where_numbers_of_images_are_missing_command_page_and_json_say_so(run: Path, tmp_path: Path):
    file = write(tmp_path / "wide.csv", draw(50, seed=3), unfamiliarity=False, features=False)
    result = invoke(run, file, "--output", tmp_path / "out", "--fail-on-drift")
    assert result.exit_code == 0, result.output
    assert "lack it: unfamiliarity, feature means" in result.output
    page = (tmp_path / "out" / "monitor.html").read_text()
    assert "Unfamiliar images are not compared" in page
    assert "Feature means are not compared" in page
    values = json.loads((tmp_path / "out" / "monitor.json").read_text())
    assert values["not_compared"] == ["unfamiliarity", "feature means"]
    assert {check["what"] for check in values["checks"]} == {"label rate", "probabilities"}


def test_a_run_whose_val_has_no_features_is_compared_without_them(run: Path, tmp_path: Path):
    older = tmp_path / "older"
    shutil.copytree(run, older)
    replace(draw(200, seed=0), feature_summary=None).save(older / "predictions" / "val.npz")
    drift, _ = compare_with_val(older, [write(tmp_path / "a.jsonl", draw(150, seed=2))])
    assert drift.not_compared == ("feature means",)
    assert len(drift.checks) == 8


def test_files_that_are_no_predictions_of_the_model_are_refused(run: Path, tmp_path: Path):
    good = pd.read_csv(write(tmp_path / "wide.csv", draw(5, seed=4)))
    for change, message in (
        (good.drop(columns="cat"), "has no probabilities of label 'cat', which the model has"),
        (good.assign(cow=0.5), "has a label 'cow', which the model does not have"),
        (good.assign(cat=2.0), "probabilities must be between 0 and 1; got 2"),
        (good.assign(unfamiliarity=-1.0), "unfamiliarity must be between 0 and 1; got -1"),
        (good.assign(cat="x"), "cannot be read as predictions"),
        (good.assign(feature_1=np.inf), "bad.csv: feature_1 must be finite; got inf"),
        (good.drop(columns="feature_1"), "bad.csv: has feature_2 without feature_1"),
        (good.assign(feature_3=1.0), "new must have 2 features, as val; got 3"),
        (good.assign(feature_x=1.0), "has a label 'feature_x', which the model does not have"),
        (good.head(0), "has no images"),
    ):
        change.to_csv(tmp_path / "bad.csv", index=False)
        with pytest.raises(InputError, match=message):
            compare_with_val(run, [tmp_path / "bad.csv"])
    good.assign(feature_3=1.0).to_csv(tmp_path / "three.csv", index=False)
    with pytest.raises(InputError, match=r"three.csv: has 3 features, and .*wide.csv has 2"):
        compare_with_val(run, [tmp_path / "wide.csv", tmp_path / "three.csv"])
    long = pd.read_csv(write(tmp_path / "long.csv", draw(5, seed=4)))
    pd.concat([long, long]).to_csv(tmp_path / "twice.csv", index=False)
    (tmp_path / "broken.json").write_text('[{"image": "a"')
    (tmp_path / "broken.jsonl").write_text('{"image": "a"}\n')
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    parquet = write(tmp_path / "long.parquet", draw(5, seed=4)).read_bytes()
    (tmp_path / "no text.parquet").write_bytes(parquet.replace(b"hot, dog", b"hot, do\xff"))
    for name, message in (
        ("twice.csv", "twice.csv: image '0.png' has label 'cat' twice"),
        ("broken.json", "broken.json: cannot be read as predictions"),
        ("broken.jsonl", "broken.jsonl: cannot be read as predictions"),
        ("broken.parquet", "broken.parquet: cannot be read as predictions"),
        ("no text.parquet", "no text.parquet: cannot be read as predictions"),
        ("none.csv", "none.csv: there is no such file"),
        ("a.txt", "a.txt: must end with one of .csv, .json, .jsonl, .parquet"),
    ):
        with pytest.raises(InputError, match=message):
            compare_with_val(run, [tmp_path / name])
    result = invoke(run, tmp_path / "wide.csv", "--false-alarms", "0")
    assert isinstance(result.exception, InputError)
    assert "false_alarm_rate must be above 0 and below 1; got 0" in str(result.exception)
