"""F1 on test with thresholds chosen on small validation sets: the table of docs/evaluation.md.

    python benchmarks/threshold_shrinkage.py RUN [RUN ...]

RUN is a run folder with predictions of val and test. Thresholds are chosen on random parts of val and judged
on the whole of test, as means over the parts: each label's own (best F1 on val), the common one, and own ones
that shrink towards it (what training does). "common, noisy" is the common one with random noise added.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.evaluation import Predictions, choose_thresholds
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.temperature import fit_temperatures, logit
from kmcl.models.label_rules import sigmoid

SIZES = (50, 100, 200, 500)
COMMON_ONLY = 1e9
NOISE = 0.9
"""Deviation of own thresholds on 50 images, on the calibrated logit scale."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=40, help="random parts of val for each size")
    arguments = parser.parse_args()
    names = ("own", "common", "common, noisy", "shrunk")
    print("CF1 / OF1 / mean F1 of the labels, in %\n")
    print("| run | images of val | " + " | ".join(names) + " |")
    print("|---" * (2 + len(names)) + "|")
    for run in arguments.runs:
        val, test = (Predictions.load(run / "predictions" / f"{split}.npz") for split in ("val", "test"))
        for size in [*(size for size in SIZES if size < len(val)), len(val)]:
            figures = []
            for draw in range(arguments.draws if size < len(val) else 1):
                generator = np.random.default_rng(draw)
                part = rows(val, generator.permutation(len(val))[:size])
                figures.append([judge(test, values) for values in candidates(part, generator)])
            cells = [" / ".join(f"{100 * value:.1f}" for value in each) for each in np.mean(figures, axis=0)]
            print("| " + " | ".join([run.name, str(size), *cells]) + " |", flush=True)


def candidates(val: Predictions, generator: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    calibration = fit_temperatures(val, with_bias=True)
    own, common, shrunk = (
        choose_thresholds(val, calibration=calibration, **options).values
        for options in ({"prior_count": 0.0}, {"prior_count": COMMON_ONLY}, {})
    )
    noise = NOISE * generator.normal(size=val.num_labels) * calibration.temperatures
    return [own, common, sigmoid(logit(common) + noise), shrunk]


def judge(test: Predictions, thresholds: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    metrics = decision_metrics(test, decide(test.scores, thresholds))
    return metrics.CF1, metrics.OF1, float(np.nanmean(metrics.f1))


def rows(predictions: Predictions, kept: npt.NDArray[np.int64]) -> Predictions:
    names = tuple(predictions.names[row] for row in kept)
    return Predictions(predictions.labels, names, predictions.scores[kept], predictions.targets[kept])


if __name__ == "__main__":
    main()
