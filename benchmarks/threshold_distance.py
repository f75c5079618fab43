"""F1 of thresholds that are chosen on small validation sets: how far from the common one may a label's be?

    python benchmarks/threshold_distance.py RUN [RUN ...] [--test]

RUN is a run folder with predictions of val and test. The distance is to be chosen by cross-fitting inside
val, never on test: thresholds are chosen on a random part of val and judged on the rest of it, as means over
the parts. With --test, once everything is fixed, thresholds chosen on all of val are judged on test.

Infinity is each label's own best threshold on val, 0 one threshold for all labels. "far apart" is the share
of parts where the calibrated thresholds of two labels are further apart than 17 % and 54 %.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from kmcl.evaluation import Predictions, choose_thresholds
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.label_rules import logit
from kmcl.evaluation.temperature import fit_temperatures

SIZES = (50, 100, 200, 400)
DISTANCES = (math.inf, 0.875, 0.6, 0.4, 0.0)
FAR_APART = 1.751
"""Between the logits of 17 % and 54 %, and a thousandth for rounding."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=30, help="random parts of val for each size")
    parser.add_argument("--test", action="store_true", help="judge on test, with thresholds of all of val")
    arguments = parser.parse_args()
    print("CF1 / OF1 / mean F1 of the labels (far apart), in %\n")
    print("| run | images of val | " + " | ".join(f"d = {distance:g}" for distance in DISTANCES) + " |")
    print("|---" * (2 + len(DISTANCES)) + "|")
    for run in arguments.runs:
        val = Predictions.load(run / "predictions" / "val.npz")
        if arguments.test:
            test = Predictions.load(run / "predictions" / "test.npz")
            print_row(run.name, len(val), [judge_all(val, test)])
            continue
        for size in (size for size in SIZES if size < len(val)):
            figures = []
            for draw in range(arguments.draws):
                order = np.random.default_rng(draw).permutation(len(val))
                figures.append(judge_all(val.take(order[:size]), val.take(order[size:])))
            print_row(run.name, size, figures)


def judge_all(chosen_on: Predictions, judged_on: Predictions) -> list[tuple[float, float, float, float]]:
    """CF1, OF1, mean F1 and whether two thresholds are far apart, for each distance."""
    calibration = fit_temperatures(chosen_on, with_bias=True)
    found = []
    for distance in DISTANCES:
        values = choose_thresholds(chosen_on, max_distance=distance, calibration=calibration).values
        metrics = decision_metrics(judged_on, decide(judged_on.scores, values))
        calibrated = logit(values) / calibration.temperatures + calibration.biases
        is_far = float(np.ptp(calibrated) > FAR_APART)
        found.append((metrics.CF1, metrics.OF1, float(np.nanmean(metrics.f1)), is_far))
    return found


def print_row(name: str, size: int, figures: list[list[tuple[float, float, float, float]]]) -> None:
    cells = [
        " / ".join(f"{100 * value:.1f}" for value in each[:3]) + f" ({100 * each[3]:.0f})"
        for each in np.mean(figures, axis=0)
    ]
    print("| " + " | ".join([name, str(size), *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
