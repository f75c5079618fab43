"""The table of `ablation.py`: each variant with each choice of post-hoc parts, against a reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kmcl.evaluation.bootstrap import compare_mean_map
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision

CHOICES = ("none", "frozen_gp", "kernel_vote", "frozen_gp+kernel_vote")


class Found(NamedTuple):
    """The judged predictions of one network, by choice of parts."""

    predictions: Mapping[str, Predictions]
    is_fold: bool


Networks = dict[str, dict[int, Found]]
"""By variant, and by seed or fold."""


def print_table(folder: Path, reference: str) -> None:
    """mAP, mean ± standard deviation over seeds or folds, and the difference to the reference with the same
    parts.

    Its interval: of seeds, 95 % paired bootstrap over test images; of folds, ± the standard error of the mean
    difference.
    """
    for setting, networks in _read(folder).items():
        print(f"\n{setting}\n\n| | n | " + " | ".join(CHOICES) + " |\n|---|---|" + "---|" * len(CHOICES))
        for variant, found in networks.items():
            cells = [
                _cell(found, networks.get(reference, {}), choice, variant == reference) for choice in CHOICES
            ]
            print(f"| {variant} | {len(found)} | " + " | ".join(cells) + " |")


def _cell(found: dict[int, Found], reference: dict[int, Found], choice: str, is_reference: bool) -> str:
    values = 100 * np.array([mean_average_precision(one.predictions[choice]) for one in found.values()])
    text = f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
    both = [seed for seed in found if seed in reference]
    if is_reference or not both:
        return text
    mine, other = ([side[seed].predictions[choice] for seed in both] for side in (found, reference))
    if found[both[0]].is_fold:
        pairs = zip(mine, other, strict=True)
        differences = [mean_average_precision(one) - mean_average_precision(two) for one, two in pairs]
        error = np.std(differences, ddof=1) / np.sqrt(len(both)) if len(both) > 1 else np.nan
        return f"{text}, {100 * np.mean(differences):+.2f} ± {100 * error:.2f}"
    paired = compare_mean_map(mine, other, np.random.default_rng(0)).difference
    estimate, low, high = (100 * value for value in (paired.estimate, paired.low, paired.high))
    return f"{text}, {estimate:+.2f} ({low:+.2f} to {high:+.2f})"


def _read(folder: Path) -> dict[str, Networks]:
    settings: dict[str, Networks] = {}
    for file in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime):
        with np.load(file) as arrays:
            about = json.loads(str(arrays["about"]))
            labels = tuple(map(str, arrays["labels"]))
            names = tuple(map(str, range(len(arrays["targets"]))))
            groups = tuple(map(str, arrays["groups"]))
            predictions = {
                choice: Predictions(
                    labels, names, 1 / (1 + np.exp(-arrays[choice])), arrays["targets"], groups=groups
                )
                for choice in CHOICES
            }
        of_setting = settings.setdefault(f"{about['setting']}, {'folds' if about['folds'] else 'test'}", {})
        of_setting.setdefault(about["variant"], {})[about["seed"]] = Found(predictions, about["folds"] > 0)
    return settings
