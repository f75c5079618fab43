"""A guarantee of a run: settings, the refusal before training, thresholds chosen on its val predictions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import kmcl
from evaluation.synthetic import make_predictions
from kmcl.cli.app import make_app
from kmcl.data.arrays import ArrayImages
from kmcl.data.dataset import Dataset, Split
from kmcl.errors import InputError
from kmcl.evaluation.abstention import choose_cutoff, judge_abstention
from kmcl.evaluation.by_rules import with_guarantee
from kmcl.evaluation.decisions import decide
from kmcl.evaluation.drift import predicted_images
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.promised_rates import recalls
from kmcl.evaluation.summary import measure, metrics_of
from kmcl.evaluation.thresholds import choose_thresholds
from kmcl.models.folder import ModelDescription, read_description, save_description
from kmcl.options import read_options
from kmcl.runs.dataset import take_part
from kmcl.runs.folder import RunFolder
from kmcl.runs.guarantee import cutoff_of_run, refuse_impossible, rules_for_wish
from kmcl.runs.resolution import resolve_settings
from kmcl.training.calibration import completed_rules

VAL, TEST = make_predictions(200, 3, seed=1), make_predictions(200, 3, seed=2)
RECALL = GuaranteeWish("recall", 0.9)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What is left of a finished run for those who need no weights."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_settings(resolve_settings("digits"))
    for name, predictions in (("val", VAL), ("test", TEST)):
        predictions.save(folder.predictions_file(name))
    rules = LabelRules(VAL.labels, thresholds=(0.3, 0.6, 0.7))
    method = read_options({"name": "asl"})
    save_description(folder.model, ModelDescription(rules, method, "test_resnet", image_size=32))
    return folder.path


def make_dataset(positives: int, groups: int | None = None, has_val: bool = True) -> Dataset:
    """Twenty images in train and val; the first `positives` have the label, in so many groups."""
    targets = (np.arange(20) < positives).astype(np.int8)[:, None]
    images = ArrayImages(np.zeros((20, 8, 8, 3), dtype=np.uint8), "memory")
    names = None if groups is None else np.array([str(image % groups) for image in range(20)])
    split = Split(images, targets, groups=names)
    return Dataset("mine", ("cat",), {"train": split} | ({"val": split} if has_val else {}))


@pytest.mark.usefixtures("no_shape_checks")
def test_the_setting_is_checked_and_spelled_out():
    settings = resolve_settings("digits", flags={"guarantee": "precision=0.8"})
    assert settings.evaluation.guarantee == "precision=0.8,confidence=0.9"
    assert settings.evaluation.guarantee_wish == GuaranteeWish("precision", 0.8)
    assert resolve_settings("digits").evaluation.guarantee_wish is None
    with pytest.raises(InputError, match=r"settings: a guarantee must be .*did you mean 'recall'"):
        resolve_settings("digits", flags={"guarantee": "recal=0.8"})


def test_training_does_not_start_for_a_guarantee_that_val_cannot_support():
    refuse_impossible(RECALL, make_dataset(9))
    with pytest.raises(InputError, match=r"at least 9 images of val with the label; 'cat'.* has 8"):
        refuse_impossible(RECALL, make_dataset(8))
    with pytest.raises(InputError, match=r"at least 9 groups of val with the label; 'cat'.* has 5"):
        refuse_impossible(RECALL, make_dataset(20, groups=5))
    with pytest.raises(InputError, match="it needs a val split, and mine has none; -o val_fraction"):
        refuse_impossible(RECALL, make_dataset(9, has_val=False))
    settings = resolve_settings("digits", flags={"guarantee": "recall=0.9"})
    with pytest.raises(InputError, match=r"recall=0\.9 cannot be guaranteed"):
        take_part(settings, make_dataset(8))
    assert take_part(settings, make_dataset(9)).name == "mine"


def test_a_trained_model_has_the_guarantee_and_the_metrics_say_what_it_achieved():
    settings = resolve_settings("digits", flags={"guarantee": "recall=0.9"})
    rules, chosen = completed_rules(LabelRules(VAL.labels), settings, VAL.targets, VAL)
    found = measure(TEST, rules)
    assert rules.guarantee is not None
    assert rules.guarantee.wish == RECALL
    plain = LabelRules(VAL.labels, thresholds=(0.5,) * 3)
    assert rules.thresholds == with_guarantee(plain, VAL, RECALL).thresholds
    achieved = recalls(TEST, decide(TEST.scores, rules.score_thresholds))
    np.testing.assert_array_equal(found.promised_rates.labels, achieved)
    assert pytest.approx(achieved.mean()) == found.evaluation_own_thresholds.at_threshold.CR
    written = json.loads(json.dumps(metrics_of(chosen, {"test": found})))
    assert written["guarantee"] == json.loads(json.dumps(asdict(rules.guarantee)))
    without, _ = completed_rules(LabelRules(VAL.labels), resolve_settings("digits"), VAL.targets, VAL)
    assert without.guarantee is None
    assert measure(TEST, without).promised_rates is None


def test_the_thresholds_of_a_run_are_chosen_on_its_val(run: Path):
    rules = read_description(run / "model").rules
    given = rules_for_wish(rules, RECALL, run)
    assert given == with_guarantee(rules, VAL, RECALL)
    # The model's own guarantee is kept as it is, and needs no run.
    assert rules_for_wish(given, RECALL, run / "nowhere") is given
    # Another one starts from the thresholds that the run would have without any.
    other = rules_for_wish(given, GuaranteeWish("found", 0.8), run)
    plain = replace(rules, thresholds=tuple(choose_thresholds(VAL).values.tolist()))
    assert other == with_guarantee(plain, VAL, GuaranteeWish("found", 0.8))


def test_what_has_no_val_predictions_is_refused(run: Path):
    rules = read_description(run / "model").rules
    message = r"model: has no predictions of val .* give the folder .* or train or export with"
    with pytest.raises(InputError, match=message + r" --guarantee recall=0\.9\. Its own guarantee: none"):
        rules_for_wish(rules, RECALL, run / "model")
    given = rules_for_wish(rules, GuaranteeWish("found", 0.8), run)
    with pytest.raises(InputError, match=r"Its own guarantee: found=0\.8"):
        rules_for_wish(given, RECALL, run / "model")
    with pytest.raises(InputError, match="its labels are not those of the model"):
        rules_for_wish(replace(rules, labels=("a", "b", "c")), RECALL, run)


def test_evaluate_shows_promised_and_achieved(run: Path):
    command = ["evaluate", str(run), "--guarantee", "recall=0.9", "--resamples", "100"]
    found = json.loads(CliRunner().invoke(make_app(), [*command, "--json"]).stdout)["runs"][0]
    rules = with_guarantee(read_description(run / "model").rules, VAL, RECALL)
    rates = recalls(TEST, decide(TEST.scores, rules.score_thresholds))
    assert found["guarantee"]["achieved"]["labels"] == rates.tolist()
    assert (found["guarantee"]["kind"], found["guarantee"]["num_images"]) == ("recall", 200)
    assert found["at_threshold"]["CR"] == pytest.approx(rates.mean())
    assert pytest.approx(rates.mean()) == kmcl.evaluate(run, guarantee="recall=0.9").at_threshold.CR
    shown = " ".join(CliRunner().invoke(make_app(), command).stdout.split())
    assert "Guarantee: of the images that have a label, at least 90 % are found" in shown
    assert f"On test: mean recall of the labels {100 * rates.mean():.1f} % (promised 90 %), lowest" in shown
    plain = json.loads(CliRunner().invoke(make_app(), ["evaluate", str(run), "--json"]).stdout)["runs"][0]
    assert plain["guarantee"] is None
    for more in (["--threshold", "0.5"], ["--published"]):
        refused = CliRunner().invoke(make_app(), [*command, *more])
        assert f"{more[0]} cannot be given with it" in str(refused.exception)
    with pytest.raises(InputError, match="takes no threshold, no bare predictions"):
        kmcl.evaluate(TEST, guarantee="recall=0.9")


def test_evaluate_says_what_abstaining_leaves(run: Path):
    rules = read_description(run / "model").rules
    cutoff = cutoff_of_run(rules, 0.1, run)
    assert cutoff == choose_cutoff(rules, VAL, 0.1)
    command = ["evaluate", str(run), "--abstain", "0.1", "--resamples", "100"]
    found = json.loads(CliRunner().invoke(make_app(), [*command, "--json"]).stdout)["runs"][0]
    expected = judge_abstention(rules, TEST, 0.1, cutoff)
    assert found["abstention"] == expected.to_json()
    shown = " ".join(CliRunner().invoke(make_app(), command).stdout.split())
    assert (
        f"{100 * expected.share:.1f} % of the decisions on test are left to a person (wanted 10 %)" in shown
    )
    assert f"{100 * expected.remaining:.2f} % are wrong, of all {100 * expected.error:.2f} %." in shown
    refused = CliRunner().invoke(make_app(), [*command, "--threshold", "0.5"])
    assert "--abstain is about the run's own thresholds and data" in str(refused.exception)
    with pytest.raises(InputError, match="has no predictions of val to choose the decisions to abstain from"):
        cutoff_of_run(rules, 0.1, run / "model")


def test_serve_leaves_what_val_says_to_a_person(run: Path, monkeypatch):
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    rules, served = read_description(run / "model").rules, {}
    monkeypatch.setattr(
        "kmcl.serving.loading.load",
        lambda source, guarantee: SimpleNamespace(
            rules=rules, labels=(), refuse_vectors=lambda command: None
        ),
    )
    monkeypatch.setattr("kmcl.serving.service.server.with_engine", lambda loaded, *others: loaded)
    monkeypatch.setattr("kmcl.serving.service.server.open_socket", lambda host, port: None)
    monkeypatch.setattr("kmcl.serving.service.server.answered_hosts", lambda *others: None)
    monkeypatch.setattr(
        "kmcl.serving.service.server.serve_until_stopped", lambda *others, **options: served.update(options)
    )
    CliRunner().invoke(make_app(), ["serve", str(run), "--abstain", "0.1"], catch_exceptions=False)
    assert served["cutoff"] == choose_cutoff(rules, VAL, 0.1)
    CliRunner().invoke(make_app(), ["serve", str(run)], catch_exceptions=False)
    assert served["cutoff"] is None
    expected = predicted_images(VAL, rules)
    np.testing.assert_array_equal(served["val"].present, expected.present)
    np.testing.assert_array_equal(served["val"].probabilities, expected.probabilities)
    CliRunner().invoke(make_app(), ["serve", str(run / "model")], catch_exceptions=False)
    assert served["val"] is None  # a model without its run
    refused = CliRunner().invoke(make_app(), ["serve", str(run), "--abstain", "1.5"])
    assert "must be above 0 and below 1; got 1.5" in str(refused.exception)
