"""How often 95 % bootstrap intervals of mAP contain the true value: the table of docs/evaluation.md.

    python benchmarks/interval_coverage.py              (about three minutes on one core)
    python benchmarks/interval_coverage.py --sets 50    (a quick look)

Labels are simulated with normal logits, correlated between labels. The true mAP is that of 200,000 images. In
the rows with groups, ten images of a group share their labels and part of their logits.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from kmcl.evaluation import Predictions, bootstrap_map, mean_average_precision
from kmcl.evaluation.bootstrap import (
    _rank_labels,
    _weighted_average_precisions,
    resample,
)

Limits = tuple[float, float]


class Case(NamedTuple):
    num_images: int
    num_labels: int
    prevalence: float
    signal: float
    group_size: int = 1


CASES = (
    Case(200, 1, 0.05, 1.0),
    Case(200, 1, 0.05, 1.75),
    Case(200, 1, 0.3, 1.0),
    Case(200, 5, 0.05, 1.0),
    Case(60, 18, 0.08, 1.2),
    Case(500, 18, 0.04, 1.2),
    Case(1000, 14, 0.03, 0.5),
    Case(400, 5, 0.1, 1.0, group_size=10),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=150, help="simulated test sets of each row")
    parser.add_argument("--resamples", type=int, default=200, help="of each bootstrap")
    arguments = parser.parse_args()
    names = ("percentile", "shifted", "BCa", "used, images", "used", "used: width")
    print("| images | labels | positives | true mAP | " + " | ".join(names) + " |")
    print("|---" * (4 + len(names)) + "|")
    for case in CASES:
        truth = mean_average_precision(
            simulate(case._replace(num_images=200_000), np.random.default_rng(10**6))
        )
        covered: dict[str, list[bool]] = {}
        widths = []
        for seed in range(arguments.sets):
            predictions = simulate(case, np.random.default_rng(seed))
            if not predictions.positive.any():
                continue
            found = intervals(predictions, seed, arguments.resamples)
            for name, (low, high) in found.items():
                covered.setdefault(name, []).append(bool(low <= truth <= high))
            widths.append(found["used"][1] - found["used"][0])
        images = f"{case.num_images}" + (f" in groups of {case.group_size}" if case.group_size > 1 else "")
        cells = [images, f"{case.num_labels}", f"{100 * case.prevalence:.0f} %", f"{100 * truth:.1f}"]
        cells += [f"{100 * np.mean(values):.1f}" for values in covered.values()]
        print("| " + " | ".join([*cells, f"{100 * np.mean(widths):.1f}"]) + " |", flush=True)


def simulate(case: Case, generator: np.random.Generator) -> Predictions:
    num_groups = case.num_images // case.group_size
    shape = (num_groups, case.num_labels)
    targets = np.repeat(generator.random(shape) < case.prevalence, case.group_size, axis=0)
    of_groups = np.repeat(generator.normal(size=shape), case.group_size, axis=0)
    of_images = generator.normal(size=(case.num_images, 1))
    noise = 0.7 * generator.normal(size=targets.shape) + 0.5 * of_images + 0.5 * of_groups
    logits = noise + case.signal * (2 * targets - 1)
    return Predictions(
        labels=tuple(map(str, range(case.num_labels))),
        names=tuple(map(str, range(case.num_images))),
        scores=(1 / (1 + np.exp(-logits))).astype(np.float32),
        targets=targets.astype(np.int8),
        groups=tuple(str(image // case.group_size) for image in range(case.num_images))
        if case.group_size > 1
        else None,
    )


def intervals(predictions: Predictions, seed: int, num_resamples: int) -> dict[str, Limits]:
    """The 95 % intervals by name; all but "used" resample images even where there are groups."""
    units = replace(predictions, groups=None).units
    generator = np.random.default_rng(seed)
    (found,) = resample((predictions,), ((1.0,),), units, generator, num_resamples)
    samples = found.means[~np.isnan(found.means)]
    estimate = mean_average_precision(predictions)
    low, high = np.quantile(samples, (0.025, 0.975))
    bias = samples.mean() - estimate
    used = alone = bootstrap_map(
        replace(predictions, groups=None), np.random.default_rng(seed), num_resamples
    )
    if predictions.groups is not None:
        used = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples)
    return {
        "percentile": (low, high),
        "shifted": (low - bias, high - bias),
        "BCa": accelerated(predictions, estimate, samples),
        "used, images": (alone.low, alone.high),
        "used": (used.low, used.high),
    }


def accelerated(predictions: Predictions, estimate: float, samples: npt.NDArray[np.float64]) -> Limits:
    """The bias-corrected and accelerated interval; the acceleration from a jackknife over 50 blocks."""
    kept = (np.arange(len(predictions))[:, None] % 50 != np.arange(50)).astype(np.int32)
    labels = np.flatnonzero(predictions.positive.any(axis=0)).tolist()
    values = [_weighted_average_precisions(each, kept) for each in _rank_labels(predictions, labels)]
    left_out = np.nansum(values, axis=0) / np.maximum((~np.isnan(values)).sum(axis=0), 1)
    deviations = left_out.mean() - left_out
    scale = float((deviations**2).sum()) ** 1.5
    acceleration = float((deviations**3).sum()) / (6 * scale) if scale > 0 else 0.0
    share = np.clip(((samples < estimate).mean() + (samples <= estimate).mean()) / 2, 1e-3, 1 - 1e-3)
    correction = stats.norm.ppf(share)
    shifted = correction + stats.norm.ppf((0.025, 0.975))
    low, high = np.quantile(samples, stats.norm.cdf(correction + shifted / (1 - acceleration * shifted)))
    return float(low), float(high)


if __name__ == "__main__":
    main()
