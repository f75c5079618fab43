"""What a run measured of its predictions when it ended: written once, read by everything that shows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kmcl.errors import InputError
from kmcl.evaluation.json_values import from_json_object
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.summary import SplitSummary
from kmcl.runs.folder import RunFolder
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
