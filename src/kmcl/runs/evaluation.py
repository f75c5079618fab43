"""What is measured of a run: written once, when it ends, and computed only where something else is asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from kmcl.errors import InputError
from kmcl.evaluation.abstention import Abstention, judge_abstention
from kmcl.evaluation.bootstrap import RESAMPLES, SEED, BootstrapInterval, map_interval
from kmcl.evaluation.by_rules import evaluate_by_rules, rates_by_rules
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.json_values import JsonObject, from_json_object, to_json_object
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.levels import LevelMetrics, metrics_by_level
from kmcl.evaluation.metrics import TOP_K, Evaluation
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.promised_rates import PromisedRates
from kmcl.evaluation.summary import SplitSummary
from kmcl.runs.folder import RunFolder
from kmcl.runs.guarantee import cutoff_of_run, rules_for_wish
from kmcl.storage.atomic import write_json

FORMAT = "kmcl-evaluation-1"


def write_evaluation(run: RunFolder, rules: LabelRules, summaries: Mapping[str, SplitSummary]) -> None:
    """Write what was measured of the splits whose predictions the folder has, by these rules of its model."""
    splits = {name: summary.to_json() for name, summary in summaries.items()}
    write_json(run.evaluation_file, {**_identity(run, rules, tuple(summaries)), "splits": splits})


def read_evaluation(run: RunFolder, rules: LabelRules) -> dict[str, SplitSummary]:
    """The splits that `write_evaluation` wrote; none where it was of other predictions or rules.

    A folder of an earlier version has none, and so has one whose file cannot be read.
    """
    try:
        found = json.loads(run.evaluation_file.read_text(encoding="utf-8"))
        splits = found.pop("splits")
        if found != _identity(run, rules, tuple(splits)):
            return {}
        return {name: from_json_object(SplitSummary, values) for name, values in splits.items()}
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError, InputError):
        return {}


@dataclass(frozen=True)
class RunEvaluation:
    """What `kmcl evaluate` shows of a run, or of its model on other data.

    model:     the rules of its model
    other:     predictions of other data; None for those of the run
    threshold: for all labels, a calibrated probability; None: each label's own
    wish:      a guarantee, whose thresholds are chosen on val
    top_k:     labels per image of the top-k metrics
    abstain:   the share of the decisions to leave to a person
    resamples, seed: of the interval of mAP
    """

    path: Path
    model: LabelRules
    split: str = "test"
    other: Predictions | None = None
    threshold: float | None = None
    wish: GuaranteeWish | None = None
    top_k: int = TOP_K
    abstain: float | None = None
    resamples: int = RESAMPLES
    seed: int = SEED

    @cached_property
    def predictions(self) -> Predictions:
        if self.other is not None:
            return self.other
        return Predictions.load(RunFolder(self.path).find_predictions(self.split))

    @cached_property
    def rules(self) -> LabelRules:
        """Those that decide, where no threshold is given."""
        return self.model if self.wish is None else rules_for_wish(self.model, self.wish, self.path)

    @cached_property
    def evaluation(self) -> Evaluation:
        if self._as_stored is not None and self.top_k == TOP_K:
            return self._as_stored.by_rules
        return evaluate_by_rules(self.predictions, self.rules, self.threshold, self.top_k)

    @cached_property
    def map_interval(self) -> BootstrapInterval:
        if self._stored is not None and (self.resamples, self.seed) == (RESAMPLES, SEED):
            return self._stored.map_interval
        return map_interval(self.predictions, self.resamples, self.seed)

    @cached_property
    def achieved(self) -> PromisedRates | None:
        """What the guarantee promises, as achieved here; None without one, or at a given threshold."""
        if self._as_stored is not None:
            return self._as_stored.promised_rates
        return None if self.threshold is not None else rates_by_rules(self.predictions, self.rules)

    @cached_property
    def levels(self) -> tuple[LevelMetrics, ...]:
        return metrics_by_level(self.evaluation, self.rules)

    @property
    def unsupported_thresholds(self) -> tuple[str, ...]:
        return self.rules.unsupported_thresholds if self.threshold is None else ()

    @cached_property
    def abstention(self) -> Abstention | None:
        if self.abstain is None:
            return None
        cutoff = cutoff_of_run(self.rules, self.abstain, self.path)
        return judge_abstention(self.rules, self.predictions, self.abstain, cutoff)

    def to_json(self) -> JsonObject:
        guarantee, achieved, left = self.rules.guarantee, self.achieved, self.abstention
        levels = [to_json_object(level) for level in self.levels]
        return {
            "run": str(self.path),
            "split": self.split,
            **self.evaluation.to_json(),
            "map_interval": self.map_interval.to_json(),
            "unsupported_thresholds": list(self.unsupported_thresholds),
            "guarantee": None
            if achieved is None or guarantee is None
            else asdict(guarantee) | {"achieved": achieved.to_json()},
            "abstention": None if left is None else left.to_json(),
            **({"levels": levels} if levels else {}),
        }

    @cached_property
    def _stored(self) -> SplitSummary | None:
        """What the run stored of the split."""
        if self.other is not None:
            return None
        return read_evaluation(RunFolder(self.path), self.model).get(self.split)

    @property
    def _as_stored(self) -> SplitSummary | None:
        """What the run stored, where its model's own rules decide."""
        return self._stored if self.threshold is None and self.wish is None else None


def _identity(run: RunFolder, rules: LabelRules, names: tuple[str, ...]) -> dict[str, object]:
    """What the figures follow from; uncertainties of test were fitted on val."""
    text = json.dumps(rules.to_json(), sort_keys=True)
    return {
        "format": FORMAT,
        "rules": hashlib.sha256(text.encode()).hexdigest(),
        "predictions": {name: _digest(run.predictions_file(name)) for name in names},
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
