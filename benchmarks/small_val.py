"""Is it better to choose on a small val than not to choose at all?

    python benchmarks/small_val.py DATA [--groups '[0-9]{8}'] [--folds 4] [--draws 20]

Networks are trained on folds of train and val, as by `ablation.py`. Of each fold's images, which its network
has not seen, 100, 200 or 500 are drawn at random (whole groups) to choose on, and the others judge.
Smoothness and weight of the Gaussian process: not used; the defaults; chosen as `kmcl train` does; the best
on these images, without a penalty for their distance from the defaults. Thresholds: 0.5 of the calibrated
probability; one for all labels; chosen as `kmcl train` does; each label's best. Means over draws and folds,
and the standard error over folds of the difference to the defaults (to one threshold for all).
"""

from __future__ import annotations

import argparse
import math
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from ablation import VARIANTS, Images, Network, Parts, Rows, predictions_of, scores_of
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.evaluation.temperature import fit_temperatures
from kmcl.evaluation.thresholds import choose_thresholds
from kmcl.posthoc.frozen_gp import DEFAULT_SMOOTHNESS, SMOOTHNESS, FrozenFeatureGP
from kmcl.training.calibration import auc_of_logits

SIZES = (100, 200, 500)
PROCESS = ("no process", "defaults", "chosen", "best, no penalty")
THRESHOLDS = ("0.5", "one for all", "chosen", "each label's best")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--methods", default="asl,kmcl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = Images(arguments.data, 128, 3, arguments.groups, with_test=False)
    found: dict[tuple[str, int, str], list[list[float]]] = {}
    for fold, part in enumerate(images.folds(arguments.folds)):
        parts = Parts(images, part, images.targets)
        assert isinstance(parts.process, FrozenFeatureGP)
        for method in arguments.methods.split(","):
            network = Network(images, part, VARIANTS[method], images.targets, fold).train(arguments.epochs)
            logits = scores_of(network, images, part.judged).logits.double()
            for size in SIZES:
                draws = [draw(images, part.judged, size, seed) for seed in range(arguments.draws)]
                judged = [judge(images, part.judged, logits, parts.process, *drawn) for drawn in draws]
                for name in judged[0]:
                    means = np.mean([one[name] for one in judged], axis=0).tolist()
                    found.setdefault((method, size, name), []).append(means)
    print_tables(found, arguments.methods.split(","))


def draw(images: Images, rows: Rows, size: int, seed: int) -> tuple[Rows, Rows]:
    """Places within `rows`: about `size` of them, whole groups, and the others."""
    units = np.unique(images.groups[rows], return_inverse=True)[1]
    order = np.random.default_rng([seed, size]).permutation(units.max() + 1)
    places = np.argsort(order[units], kind="stable")
    return places[:size], places[size:]


def judge(
    images: Images, rows: Rows, logits: Tensor, process: FrozenFeatureGP, chosen_on: Rows, judged_on: Rows
) -> dict[str, list[float]]:
    """mAP and mean F1 of the labels on the one part, with what was chosen on the other."""
    observed = images.statistics[rows]
    score = auc_of_logits(predictions_of(images, rows[chosen_on], logits[chosen_on]))
    corrected = {"no process": logits}
    process.set_smoothness(*SMOOTHNESS[DEFAULT_SMOOTHNESS])
    process.set_weight(1.0)
    corrected["defaults"] = logits + process(observed)
    process.tune(observed[chosen_on], logits[chosen_on], score)
    corrected["chosen"] = logits + process(observed)
    with mock.patch("kmcl.posthoc.frozen_gp.SHRINKAGE", 0.0):
        process.tune(observed[chosen_on], logits[chosen_on], score)
    corrected["best, no penalty"] = logits + process(observed)
    figures = {
        name: [100 * mean_average_precision(predictions_of(images, rows[judged_on], one[judged_on]))]
        for name, one in corrected.items()
    }
    first, second = (
        predictions_of(images, rows[places], corrected["chosen"][places]) for places in (chosen_on, judged_on)
    )
    return figures | {f"threshold {name}": value for name, value in decisions(first, second).items()}


def decisions(chosen_on: Predictions, judged_on: Predictions) -> dict[str, list[float]]:
    """CF1 and OF1 on the one part, with thresholds of the other."""
    calibration = fit_temperatures(chosen_on, with_bias=True)
    distances = {"one for all": 0.0, "chosen": None, "each label's best": math.inf}
    values = {}
    for name, distance in distances.items():
        given = {} if distance is None else {"max_distance": distance}
        values[name] = choose_thresholds(chosen_on, calibration=calibration, **given).values
    half = {"0.5": decide(calibration.calibrate(judged_on).scores, 0.5)}
    decided = half | {name: decide(judged_on.scores, thresholds) for name, thresholds in values.items()}
    measured = {name: decision_metrics(judged_on, one) for name, one in decided.items()}
    return {name: [100 * one.CF1, 100 * one.OF1] for name, one in measured.items()}


def print_tables(found: dict[tuple[str, int, str], list[list[float]]], methods: list[str]) -> None:
    for title, names, reference in (
        ("mAP", PROCESS, "defaults"),
        ("CF1 / OF1", tuple(f"threshold {name}" for name in THRESHOLDS), "threshold one for all"),
    ):
        print(f"\n{title}\n\n| | images | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
        for method in methods:
            for size in SIZES:
                base = np.array(found[method, size, reference])
                cells = []
                for name in names:
                    values = np.array(found[method, size, name])
                    differences = values - base
                    error = differences.std(axis=0, ddof=1) / math.sqrt(len(values))
                    cell = " / ".join(f"{value:.2f}" for value in values.mean(axis=0))
                    if name != reference:
                        shown = zip(differences.mean(axis=0), error, strict=True)
                        cell += " (" + " / ".join(f"{mean:+.2f} ± {one:.2f}" for mean, one in shown) + ")"
                    cells.append(cell)
                print(f"| {method} | {size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
