"""A label from a few examples: what the new model predicts everywhere, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import kmcl
from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.unlabelled import USUAL_SHARE
from kmcl.labelling.label_addition import AddedLabel, usual_share
from kmcl.models.folder import load_model, read_description
from kmcl.runs.evaluation import read_evaluation
from kmcl.runs.folder import RunFolder
from made_once import made_once
from tiny_runs import TINY_CACHED

SIDE = 32


def write_stripes(folder: Path, number: int, seed: int, vertical: bool = True) -> Path:
    """Images that no scene of digits looks like: coloured stripes."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        colours = rng.integers(0, 256, (2, 3))
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        for place in range(SIDE):
            where = (slice(None), place) if vertical else (place, slice(None))
            pixels[where] = colours[(place // 4) % 2]
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    def make(folder: Path) -> None:
        cache = tmp_path_factory.mktemp("cache")
        kmcl.train(
            "digits",
            output=folder,
            options={"size": 120},
            progress=False,
            cache_dir=cache,
            posthoc="frozen_gp,kernel_vote,unfamiliarity",
            kernel="isotropic",
            **{name: value for name, value in TINY_CACHED.items() if name != "data_options"},
        )

    return made_once(tmp_path_factory, "add-label-run", make)


@pytest.fixture(scope="module")
def striped(run: Path, tmp_path_factory) -> Path:
    """The run with the label `stripes` from 6 examples."""
    folder = tmp_path_factory.mktemp("striped")
    examples = write_stripes(folder / "examples", 6, 0)
    result = CliRunner().invoke(
        make_app(),
        ["add-label", str(run), str(examples), "--name", "stripes", "--output", str(folder / "new")],
    )
    assert result.exit_code == 0, result.output
    assert "stripes, from 6 examples" in result.stdout
    assert "rest on 6 images" in result.stdout
    return folder / "new"


def test_new_images_with_the_label_score_above_others(striped: Path, tmp_path: Path):
    write_stripes(tmp_path / "more", 8, 1)
    predictor = kmcl.load(striped)
    assert predictor.labels[-1] == "stripes"
    found = predictor.predict(sorted((tmp_path / "more").iterdir()))
    test = Predictions.load(striped / "predictions" / "test.npz")
    stripes = [image.labels[-1] for image in found]
    scores = np.array([label.score for label in stripes])
    assert (scores[:, None] > test.scores[None, :, -1]).mean() > 0.9
    assert np.mean([label.present for label in stripes]) > 0.5
    assert all(label.low <= label.probability <= label.high for label in stripes)


def test_the_other_labels_stay_as_they_were(run: Path, striped: Path):
    before, after = read_description(run / "model").rules, read_description(striped / "model").rules
    num = len(before.labels)
    assert after.labels == (*before.labels, "stripes")
    for name in ("score_thresholds", "temperature_values", "bias_values", "probability_thresholds"):
        np.testing.assert_array_equal(getattr(after, name)[:num], getattr(before, name))
    for split in ("val", "test"):
        old = Predictions.load(run / "predictions" / f"{split}.npz")
        new = Predictions.load(striped / "predictions" / f"{split}.npz")
        np.testing.assert_allclose(new.scores[:, :num], old.scores, atol=1e-5)
        assert (new.targets[:, num] == -1).all()
        assert new.sigma is not None
        assert new.sigma.shape == new.scores.shape


def test_evaluate_and_metrics_are_those_of_the_run(run: Path, striped: Path):
    before, after = (json.loads((path / "metrics.json").read_text()) for path in (run, striped))
    for split in ("val", "test"):
        old, new = before[split]["evaluation"], after[split]["evaluation"]
        assert new["mean_average_precision"] == pytest.approx(old["mean_average_precision"], abs=1e-4)
        assert [row["label"] for row in new["labels"]] == [
            *(row["label"] for row in old["labels"]),
            "stripes",
        ]
    assert after["thresholds"]["values"][:-1] == pytest.approx(before["thresholds"]["values"], abs=1e-4)
    assert kmcl.evaluate(striped).mean_average_precision == pytest.approx(
        kmcl.evaluate(run).mean_average_precision, abs=1e-4
    )
    rules = read_description(striped / "model").rules
    own = after["test"]["evaluation_own_thresholds"]
    assert own["labels"][-1]["threshold"] == rules.thresholds[-1]  # what the model decides by
    assert (
        own
        == json.loads(json.dumps(read_evaluation(RunFolder(striped), rules)["test"].to_metrics()))[
            "evaluation_own_thresholds"
        ]
    )
    assert json.loads((striped / "added_labels.json").read_text())[0]["examples"] == 6


def test_the_report_shows_it(striped: Path, tmp_path: Path):
    page = kmcl.Run(striped).report(output=tmp_path / "report")
    assert "stripes" in page.read_text()


def test_the_exported_file_predicts_it(striped: Path, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    file = tmp_path / "model.onnx"
    result = CliRunner().invoke(make_app(), ["export", str(striped), "--output", str(file)])
    assert result.exit_code == 0, result.output
    image = write_stripes(tmp_path / "one", 1, 5) / "0.png"
    exact, exported = (kmcl.load(path).predict(image)[0].labels[-1] for path in (striped, file))
    assert exported.label == "stripes"
    assert exported.probability == pytest.approx(exact.probability, abs=1e-3)


def test_a_second_label_leaves_the_first_as_it_is(striped: Path, tmp_path: Path):
    flat = write_stripes(tmp_path / "flat", 5, 2, vertical=False)
    again = kmcl.add_label(striped, flat, name="lines", output=tmp_path / "two", progress=False)
    added = load_model(again.path / "model")[0].added
    assert added is not None
    assert added.sizes.num_labels == 2
    first, second = (Predictions.load(path / "predictions" / "test.npz") for path in (striped, again.path))
    np.testing.assert_allclose(second.scores[:, :-1], first.scores, atol=1e-5)
    assert [entry["label"] for entry in json.loads((again.path / "added_labels.json").read_text())] == [
        "stripes",
        "lines",
    ]


def test_a_table_says_which_images_show_it_and_a_model_folder_will_do(run: Path, tmp_path: Path):
    write_stripes(tmp_path / "yes", 4, 3)
    write_stripes(tmp_path / "no", 3, 4, vertical=False)
    rows = [f"yes/{index}.png,1" for index in range(4)] + [f"no/{index}.png,0" for index in range(3)]
    (tmp_path / "more.csv").write_text("image,stripes\n" + "\n".join(rows) + "\n")
    new = kmcl.add_label(
        run / "model", f"table:{tmp_path / 'more.csv'}", name="stripes", output=tmp_path / "m", progress=False
    )
    predictor = kmcl.load(new.path)
    shown, other = (
        predictor.predict(tmp_path / name / "0.png")[0].labels[-1].score for name in ("yes", "no")
    )
    assert shown > other


def test_what_cannot_be_added_is_refused(run: Path, tmp_path: Path):
    examples = write_stripes(tmp_path / "examples", 3, 0)
    label = read_description(run / "model").labels[0]

    def add(images: Path = examples, name: str = "stripes", **changes: object) -> None:
        output = changes.pop("output", tmp_path / "new")
        kmcl.add_label(run, images, name=name, output=output, progress=False, **changes)  # type: ignore[arg-type]

    with pytest.raises(InputError, match="is a label of the model already"):
        add(name=label)
    with pytest.raises(InputError, match="at least 2 images that show it; 'stripes' has 1"):
        add(examples / "0.png")
    with pytest.raises(InputError, match="share must be above 0 and below 1; got 2"):
        add(share=2.0)
    with pytest.raises(InputError, match="exists and is not empty"):
        add(output=run)
    with pytest.raises(InputError, match="is given as an example and in --without"):
        add(without=examples / "0.png")
    with pytest.raises(InputError, match="name must be a name"):
        add(name=" ")
    (tmp_path / "bad").mkdir()
    for index in range(2):
        (tmp_path / "bad" / f"{index}.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"has 0 that can be read; .*0\.png"):
        add(tmp_path / "bad")
    assert not (tmp_path / "new").exists()


def test_a_model_that_remembers_no_images_says_what_to_train(model: Path, tmp_path: Path):
    examples = write_stripes(tmp_path / "examples", 3, 0)
    with pytest.raises(InputError, match="train it with --posthoc frozen_gp"):
        kmcl.add_label(model, examples, name="stripes", output=tmp_path / "new", progress=False)


@pytest.mark.parametrize(("low", "is_told"), [(0.3, True), (0.9, False)])
def test_examples_that_do_not_stand_out_are_told(low: float, is_told: bool) -> None:
    added = AddedLabel("kite", 30, 0, low + 0.05, low, low + 0.1, 0.05, 0.3, ())
    assert ("not clearly more than half" in added.in_words()) is is_told


def test_the_usual_share_is_that_of_the_labels_of_the_model(run: Path) -> None:
    classifier, _ = load_model(run / "model")
    targets = kmcl.data.open_dataset("digits", size=120).splits["train"].targets
    shares = (targets == 1).mean(axis=0)
    expected = np.exp(np.log(shares[shares > 0]).mean())
    assert usual_share(classifier) == pytest.approx(expected, rel=1e-5)
    del classifier.posthoc["kernel_vote"]
    assert usual_share(classifier) == USUAL_SHARE
