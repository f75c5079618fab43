"""The search for the three weights of the objective: points drawn log-uniformly, judged on val alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from kmcl.errors import InputError
from kmcl.storage.locks import file_lock, locked
from kmcl.studies.plan import StudyPlan, enter_plan, make_plan
from kmcl.studies.results import pipe_table, repeating, write_tables
from kmcl.studies.running import train_members
from kmcl.studies.study import check_start
from kmcl.studies.variants import DEFAULTS, OF_WEIGHTS, TERMS, Variant

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

POINTS_FILE = "optuna.journal"


@dataclass(frozen=True)
class SearchPoint:
    """One setting of the weights.

    values:  mAP on val of the best epoch of each seed that is finished.
    val_map: their mean; None where one failed.
    """

    name: str
    weights: Mapping[str, float]
    val_map: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class WeightResult:
    """points: the best first. failures: reasons, by member. folder: of the study."""

    points: tuple[SearchPoint, ...]
    failures: Mapping[str, str]
    folder: Path

    @property
    def table(self) -> str:
        """What `table.md` says."""
        return (self.folder / "table.md").read_text(encoding="utf-8")


@dataclass
class WeightSearch:
    """The search that a plan of `OF_WEIGHTS` describes; points that the plan has keep their settings."""

    given: StudyPlan
    failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        how = DEFAULTS[OF_WEIGHTS] | dict(self.given.arguments)
        self.num_points, self.low, self.high, self.sampler = how.values()
        self.seeds = self.given.seeds

    def run(
        self, folder: Path, *, jobs: int = 1, ray: str | None = None, console: Console | None = None
    ) -> WeightResult:
        """Train every point that is missing and write table.md, table.csv, results.json; best point first.

        Test is never evaluated. The points are stored in `optuna.journal`, the trainings in `members`: after
        an interruption, or alongside another process, the same call continues the search.
        """
        check_start(self.plan([Variant("point 01", "kmcl")]), ray)
        folder = folder.absolute() if ray else folder
        study, joined = self._open(folder)
        while True:
            with locked(folder / "locks" / "points.lock"):
                pending = self._pending(study) or self._draw(study, jobs)
                if not pending:
                    break
                joined = enter_plan(folder, self.plan([_variant(trial) for trial in study.trials], joined))
            names = {_variant(trial).name for trial in pending}
            members = [member for member in joined.members(folder) if member.variant in names]
            self.failures |= train_members(members, jobs, console or Console(quiet=True), ray)
            with locked(folder / "locks" / "points.lock"):
                for trial in pending:
                    values = self._val_maps(joined, folder, trial)
                    if len(values) == len(self.seeds):
                        study.tell(trial.number, float(np.mean(values)), skip_if_finished=True)
        points = [self._point(joined, folder, trial) for trial in study.trials]
        points.sort(key=lambda point: -1.0 if point.val_map is None else point.val_map, reverse=True)
        _write(points, folder, self)
        return WeightResult(tuple(points), dict(self.failures), folder)

    def plan(self, variants: Sequence[Variant], known: StudyPlan | None = None) -> StudyPlan:
        base, how = self.given.base, self.given.arguments
        return make_plan(OF_WEIGHTS, base, variants, self.seeds, arguments=how, known=known or self.given)

    def _open(self, folder: Path) -> tuple[optuna.Study, StudyPlan]:
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        how = {"low": self.low, "high": self.high, "sampler": self.sampler, "seeds": list(self.seeds)}
        # The plan is checked first: a folder with other contents must not be modified.
        joined = enter_plan(folder, self.given)
        lock: Any = file_lock(folder / "locks" / "optuna.lock")
        storage = JournalStorage(JournalFileBackend(str(folder / POINTS_FILE), lock_obj=lock))
        with locked(folder / "locks" / "points.lock"):
            study = optuna.create_study(
                storage=storage, study_name=OF_WEIGHTS, direction="maximize", load_if_exists=True
            )
            before = study.user_attrs.get("how")
            if before is None:
                study.set_user_attr("how", how)
            elif before != how:
                name = next(name for name in how if how[name] != before.get(name))
                raise InputError(
                    f"{folder}: the search was started with {name} {before.get(name)!r}, "
                    f"now it is {how[name]!r}; use another --output"
                )
        return study, joined

    def _pending(self, study: optuna.Study) -> list[FrozenTrial]:
        """Points that were drawn and have no value yet, except those that failed in this call."""
        return [
            trial
            for trial in study.trials
            if not trial.state.is_finished()
            and not any(self._member_name(trial, s) in self.failures for s in self.seeds)
        ]

    def _draw(self, study: optuna.Study, jobs: int) -> list[FrozenTrial]:
        """New points: all missing ones if they are independent, otherwise one for each job.

        The random numbers of a point depend on its index alone, so that an interruption does not change them.
        """
        import optuna

        first = len(study.trials)
        left = self.num_points - first
        count = left if self.sampler == "random" else min(jobs, left)
        for number in range(first, first + count):
            study.sampler = (
                optuna.samplers.RandomSampler(seed=number)
                if self.sampler == "random"
                else optuna.samplers.TPESampler(seed=number, n_startup_trials=5)
            )
            trial = study.ask()
            for term in TERMS:
                trial.suggest_float(f"{term}_weight", self.low, self.high, log=True)
        return study.trials[first:]

    def _member_name(self, trial: FrozenTrial, seed: int) -> str:
        return f"{_variant(trial).slug}-seed{seed}"

    def _val_maps(self, plan: StudyPlan, folder: Path, trial: FrozenTrial) -> tuple[float, ...]:
        """mAP on val of the finished trainings of a point only."""
        names = [self._member_name(trial, seed) for seed in self.seeds]
        members = [member for member in plan.members(folder) if member.name in names and member.is_finished]
        return tuple(float(member.run.read_metrics()["best"]["val_map"]) for member in members)

    def _point(self, plan: StudyPlan, folder: Path, trial: FrozenTrial) -> SearchPoint:
        weights = {term: trial.params[f"{term}_weight"] for term in TERMS}
        return SearchPoint(_variant(trial).name, weights, trial.value, self._val_maps(plan, folder, trial))


def _variant(trial: FrozenTrial) -> Variant:
    return Variant(f"point {trial.number + 1:02d}", "kmcl", dict(trial.params))


def _write(points: Sequence[SearchPoint], folder: Path, search: WeightSearch) -> None:
    header = ["point", "val mAP", *(f"{term} weight" for term in TERMS), *(f"seed {s}" for s in search.seeds)]
    rows = []
    for point in points:
        value = "failed" if point.val_map is None else f"{100 * point.val_map:.2f}"
        seeds = [f"{100 * value:.2f}" for value in point.values]
        seeds += ["-"] * (len(search.seeds) - len(seeds))
        rows.append([point.name, value, *(f"{point.weights[term]:.4g}" for term in TERMS), *seeds])
    where = f"{search.low:g} to {search.high:g}, log-uniform, {search.sampler}"
    how = "judged by mAP on val, best epoch of each training; test was not measured."
    parts = [
        repeating(OF_WEIGHTS),
        f"{search.given.data}: weights from {where};\n{how}",
        pipe_table(header, rows),
    ]
    best = points[0]
    if best.val_map is not None:
        flags = " ".join(f"--{term}-weight {best.weights[term]:.4g}" for term in TERMS)
        parts.append(f"The best point: `{flags}`")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["point", "val mAP", *(f"{term}_weight" for term in TERMS)])
    writer.writerows([p.name, p.val_map, *(p.weights[term] for term in TERMS)] for p in points)
    values = {"points": [_as_json(point) for point in points]}
    write_tables(folder, "\n\n".join(parts) + "\n", text.getvalue(), values)


def _as_json(point: SearchPoint) -> dict[str, Any]:
    return {
        "point": point.name,
        "weights": dict(point.weights),
        "val_map": point.val_map,
        "values": list(point.values),
    }
