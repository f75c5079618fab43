"""The search for weights: points that an interruption does not change, judged on val and on nothing else."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from kmcl.errors import InputError
from kmcl.studies.plan import Member, read_plan
from kmcl.studies.running import StudyRun
from kmcl.studies.study import plan_study
from kmcl.studies.weight_search import WeightSearch
from planned_runs import planned_study
from studies_settings import TINY

pytest.importorskip("optuna")


def search(
    points: int = 3, seeds: tuple[int, ...] = (0,), values: dict[str, object] = TINY, **how: object
) -> WeightSearch:
    values = {"data": "digits", **values}
    return WeightSearch(plan_study("study weights", values, {"points": points, **how}, given={}, seeds=seeds))


def answer(member: Member) -> float:
    """A val mAP that is highest at a reconstruction weight of 0.1, whatever the others."""
    return float(
        0.9 - 0.1 * abs(np.log10(member.settings.method.reconstruction_weight) + 1) - 0.001 * member.seed
    )


class AnsweredRun(StudyRun):
    """Instead of training, writes what a finished member leaves: these tests are about the search."""

    trained: list[str] = []  # noqa: RUF012
    until = 1000

    def run(self, members):
        for member in members:
            if member.is_finished:
                continue
            if len(self.trained) >= self.until:
                raise KeyboardInterrupt
            assert member.settings.evaluation.measure_test is False
            self.trained.append(member.name)
            member.run.create(member.settings)
            best = {"best": {"val_map": answer(member)}, "test": {"never": "read"}}
            member.run.metrics_file.write_text(json.dumps(best))
            member.cost_file.write_text("{}")
        return {}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> type[AnsweredRun]:
    monkeypatch.setattr("kmcl.studies.running.StudyRun", AnsweredRun)
    AnsweredRun.trained, AnsweredRun.until = [], 1000
    return AnsweredRun


def test_points_are_trained_for_real_and_test_is_not_measured(tmp_path: Path):
    points = search(2).run(tmp_path / "study").points
    assert len(points) == 2
    for point in points:
        run = tmp_path / "study" / "members" / f"{point.name.replace(' ', '-')}-seed0"
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["test"] is None
        assert not (run / "predictions" / "test.npz").exists()
        assert point.val_map == metrics["best"]["val_map"]
    assert points[0].val_map >= points[1].val_map
    text = (tmp_path / "study" / "table.md").read_text()
    assert text.startswith("    kmcl study weights --config study.yaml --output NEW\n")
    again = planned_study("study", "weights", "--config", str(tmp_path / "study" / "study.yaml"))
    assert again == read_plan(tmp_path / "study")
    assert again.arguments == {"points": 2, "low": 0.01, "high": 1.0, "sampler": "random"}
    assert f"| {points[0].name} | {100 * points[0].val_map:.2f} |" in text


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_an_interruption_changes_no_point(sampler: str, answered: type[AnsweredRun], tmp_path: Path):
    made = {"sampler": sampler, "seeds": (0, 1)}
    whole = search(8, **made).run(tmp_path / "whole").points
    assert len(answered.trained) == 16
    answered.trained, answered.until = [], 5
    with pytest.raises(KeyboardInterrupt):
        search(8, **made).run(tmp_path / "stopped")
    answered.until = 1000
    finished = search(8, **made).run(tmp_path / "stopped").points
    assert finished == whole
    assert sorted(answered.trained) == sorted(set(answered.trained))
    assert whole[0].val_map == max(point.val_map for point in whole)
    assert whole[0].val_map == pytest.approx(np.mean(whole[0].values))
    more = search(10, **made).run(tmp_path / "stopped").points
    assert {point.name for point in more} == {f"point {n:02d}" for n in range(1, 11)}
    assert len(answered.trained) == 20


def test_points_are_log_uniform_in_their_range(answered: type[AnsweredRun], tmp_path: Path):
    points = search(30, low=0.001, high=10.0).run(tmp_path / "study").points
    for term in ("reconstruction", "classification", "contrastive"):
        logs = np.log10([point.weights[term] for point in points])
        assert -3 <= logs.min() < -2
        assert 0 < logs.max() <= 1
        assert logs.mean() == pytest.approx(-1, abs=0.5)
    with (tmp_path / "study" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val mAP"]) for row in rows] == [point.val_map for point in points]


def test_what_differs_or_makes_no_sense_is_refused(answered: type[AnsweredRun], tmp_path: Path):
    search().run(tmp_path / "study")
    with pytest.raises(InputError, match=r"started with low 0\.01, now it is 0\.1"):
        search(low=0.1).run(tmp_path / "study")
    with pytest.raises(InputError, match="started with epochs 1, now it is 2"):
        search(values={**TINY, "epochs": 2}).run(tmp_path / "study")
    with pytest.raises(InputError, match="low must be above 0 and below high; got 2 and 1"):
        search(low=2.0)
    with pytest.raises(InputError, match="points must be at least 1; got 0"):
        search(0)
