"""What a run stored of its evaluation: the figures that are computed else, read where they are still true."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.synthetic import make_predictions, with_gaps
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.label_hierarchy import ParentRows
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.summary import choose_on_val, measure_splits
from kmcl.runs import evaluation as stored
from kmcl.runs.evaluation import RunEvaluation, read_evaluation, write_evaluation
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import resolve_settings

SPLITS = {"val": make_predictions(120, 3, seed=1), "test": make_predictions(90, 3, seed=2)}
CHOSEN = choose_on_val(SPLITS["val"])
RULES = CHOSEN.complete(LabelRules(SPLITS["val"].labels))
COUNTS = np.array([30, 10, 20])


def finish(
    path: Path,
    splits: dict[str, Predictions],
    wish: GuaranteeWish | None = None,
    parents: ParentRows | None = None,
) -> LabelRules:
    """Write what a run leaves of its evaluation; returns the rules of its model."""
    folder = RunFolder(path)
    folder.write_settings(resolve_settings("digits"))
    for name, predictions in splits.items():
        predictions.save(folder.predictions_file(name))
    chosen = choose_on_val(splits.get("val"), wish=wish)
    rules = chosen.complete(LabelRules(splits["test"].labels, parents=parents))
    write_evaluation(folder, rules, measure_splits(splits, rules, 0.5, COUNTS, chosen))
    return rules


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    finish(tmp_path, SPLITS)
    return RunFolder(tmp_path)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was computed and not read."""
    names: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (names.append(name), function(*given))[1]

    for name in ("evaluate_by_rules", "map_interval", "rates_by_rules"):
        monkeypatch.setattr(stored, name, noted(name, getattr(stored, name)))
    return names


GAPS = {name: with_gaps(split) for name, split in SPLITS.items()}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"splits": SPLITS},
    "no val": {"splits": {"test": SPLITS["test"]}},
    "unknown labels": {"splits": GAPS},
    "parents": {"splits": SPLITS, "parents": ((), (0,), (1,))},
    "guarantee": {"splits": SPLITS, "wish": GuaranteeWish("recall", 0.8)},
    "all of them": {"splits": GAPS, "wish": GuaranteeWish("found", 0.8), "parents": ((), (), (0, 1))},
}


@pytest.mark.parametrize("kind", RUNS)
def test_what_is_read_is_what_is_computed(kind: str, tmp_path: Path, measured: list[str]) -> None:
    rules = finish(tmp_path, **RUNS[kind])
    for split in RUNS[kind]["splits"]:
        read = json.dumps(RunEvaluation(tmp_path, rules, split).to_json())
        assert measured == []
        computed = json.dumps(RunEvaluation(tmp_path, rules, split, RUNS[kind]["splits"][split]).to_json())
        assert computed == read
        assert measured == ["rates_by_rules", "evaluate_by_rules", "map_interval"]
        measured.clear()
    assert bool(json.loads(read)["guarantee"]) == ("wish" in RUNS[kind])
    assert ("levels" in json.loads(read)) == ("parents" in RUNS[kind])


@pytest.mark.parametrize(
    ("asked", "computed"),
    [
        ({"threshold": 0.3}, ["evaluate_by_rules"]),
        ({"top_k": 2}, ["evaluate_by_rules"]),
        ({"wish": GuaranteeWish("found", 0.8)}, ["rates_by_rules", "evaluate_by_rules"]),
        ({"seed": 1}, ["map_interval"]),
        ({"resamples": 100}, ["map_interval"]),
    ],
)
def test_only_what_is_asked_differently_is_computed(
    run: RunFolder, measured: list[str], asked: dict[str, Any], computed: list[str]
) -> None:
    found = RunEvaluation(run.path, RULES, **asked).to_json()
    assert measured == computed
    run.evaluation_file.unlink()  # as in a run of an earlier version
    assert RunEvaluation(run.path, RULES, **asked).to_json() == found
    assert found != RunEvaluation(run.path, RULES).to_json()


def test_it_is_what_was_measured(run: RunFolder) -> None:
    found = read_evaluation(run, LabelRules.from_json(json.loads(json.dumps(RULES.to_json()))))
    expected = measure_splits(SPLITS, RULES, 0.5, COUNTS, CHOSEN)
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
