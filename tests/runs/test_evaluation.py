"""What a run stored of its evaluation: read where it belongs to the present predictions and rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.synthetic import make_predictions
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.summary import choose_on_val, measure_splits
from kmcl.runs.evaluation import read_evaluation, write_evaluation
from kmcl.runs.folder import RunFolder

SPLITS = {"val": make_predictions(120, 3, seed=1), "test": make_predictions(90, 3, seed=2)}
CHOSEN = choose_on_val(SPLITS["val"])
RULES = CHOSEN.complete(LabelRules(SPLITS["val"].labels))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for name, predictions in SPLITS.items():
        predictions.save(folder.predictions_file(name))
    write_evaluation(folder, RULES, measure_splits(SPLITS, RULES, 0.5, None, CHOSEN))
    return folder


def test_it_is_what_was_measured(run: RunFolder) -> None:
    found = read_evaluation(run, LabelRules.from_json(json.loads(json.dumps(RULES.to_json()))))
    expected = measure_splits(SPLITS, RULES, 0.5, None, CHOSEN)
    assert list(found) == ["val", "test"]
    for name, summary in expected.items():
        assert found[name].to_json() == summary.to_json()


def test_what_belongs_to_other_rules_or_predictions_is_not_read(run: RunFolder) -> None:
    assert read_evaluation(run, replace(RULES, thresholds=(0.1, 0.2, 0.3))) == {}
    make_predictions(90, 3, seed=3).save(run.predictions_file("test"))
    assert read_evaluation(run, RULES) == {}
    run.predictions_file("test").unlink()
    assert read_evaluation(run, RULES) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"splits": {}}', '{"splits": 1}', "\udcff", "[" * 10**5])
def test_a_run_without_a_readable_one_has_none(run: RunFolder, text: str) -> None:
    run.evaluation_file.write_bytes(text.encode(errors="surrogateescape"))
    assert read_evaluation(run, RULES) == {}
    run.evaluation_file.unlink()
    assert read_evaluation(run, RULES) == {}


def test_one_of_a_version_with_other_metrics_is_not_read(run: RunFolder) -> None:
    values = json.loads(run.evaluation_file.read_text())
    del values["splits"]["test"]["by_rules"]["mean_auc"]
    run.evaluation_file.write_text(json.dumps(values))
    assert read_evaluation(run, RULES) == {}
