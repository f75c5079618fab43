"""Which number finds wrong decisions, what abstaining leaves, and whether probability intervals hold.

    python benchmarks/uncertainty.py RUN [RUN ...] [--groups '[0-9]{8}'] [--splits 100]

RUN is a run folder with predictions of val and test. Both are pooled and split again at random, as by
`guarantees.py`; calibration, thresholds, cut-offs and fits are those of the one part, judged on the other.
Figures are means over splits; of several runs (seeds) the mean, and the standard deviation between runs.

Errors: AUROC of each number as a detector of wrong decisions, over all pairs and as the mean over labels, and
the error rate among the other decisions where a tenth is left to a person, with the share that is left.

Intervals: of each label, pairs are put into bins of equal size by their probability. The frequency of the
label in a bin should be within 1.645 standard deviations of the mean probability in 90 % of the bins. The
variance is that of the frequency, alone, or with that which the interval claims. For independent images the
frequency has the variance p (1 - p) / n; with groups it is larger by a factor that is estimated for each
label on all images. "independent" is without this factor. Rare labels have fewer than 10 images or groups
on val. The width is that of the interval, mean over pairs, and relative to the larger of p and 1 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from guarantees import draw, with_groups
from kmcl.evaluation import Predictions, choose_thresholds
from kmcl.evaluation.abstention import error_probabilities
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.guarantees import Positives, controlled_threshold
from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.evaluation.predictions import Mask
from kmcl.evaluation.probability_intervals import (
    STANDARD_DEVIATIONS,
    ProbabilityIntervals,
    fit_probability_intervals,
)
from kmcl.evaluation.ranking import Values, mean_of_defined
from kmcl.evaluation.temperature import fit_temperatures
from kmcl.evaluation.uncertainty import certainty_points, detect_errors

SHARE = 0.1
BINS = 5
LEVEL = 0.9
FEW = 10
"""Images or groups with a label on val, below which it is rare."""
FITS = {
    "distance and sigma, fitted": ("distance", "sigma"),
    "error probability and sigma, fitted": ("error", "sigma"),
    "error probability and interval, fitted": ("error", "interval"),
    "error probability, distance, sigma and interval, fitted": ("error", "distance", "sigma", "interval"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    arguments = parser.parse_args()
    found = [judge_run(run, arguments.groups, arguments.splits) for run in arguments.runs]
    print("| number | AUROC | of a label | left, % | wrong of the others, % |\n|---|---|---|---|---|")
    for name in found[0][0]:
        cells = spread(np.array([rows[name] for rows, _ in found]), (3, 3, 1, 2))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| bins covered, % | " + " | ".join(Coverage._fields) + " |\n" + "|---" * 8 + "|")
    cells = spread(np.array([coverage for _, coverage in found]), (1,) * len(Coverage._fields))
    print(f"| {100 * LEVEL:.0f} wanted | " + " | ".join(cells) + " |")


def spread(figures: Values, digits: tuple[int, ...]) -> list[str]:
    """Of R runs and K figures: K means, with the standard deviation between runs where there are several."""
    means = [f"{mean:.{places}f}" for mean, places in zip(figures.mean(axis=0), digits, strict=True)]
    if len(figures) == 1:
        return means
    deviations = figures.std(axis=0, ddof=1)
    return [f"{mean} ± {one:.{places}f}" for mean, one, places in zip(means, deviations, digits, strict=True)]


def judge_run(run: Path, groups: str | None, num_splits: int) -> tuple[dict[str, Values], Values]:
    """Means over splits: of each number its row of the first table, and the row of the second."""
    val, test = (Predictions.load(run / "predictions" / f"{name}.npz") for name in ("val", "test"))
    if groups:
        val, test = with_groups(val, groups), with_groups(test, groups)
    pool = Predictions.concat([val, test])
    effects = frequency_effects(pool)
    rows: dict[str, list[list[float]]] = {}
    covered: list[Coverage] = []
    for seed in range(num_splits):
        first, second = draw(pool, len(val), np.random.default_rng(seed))
        rules = rules_of(first)
        measured = {name: evidence(rules, part, first) for name, part in (("val", first), ("test", second))}
        for name, (on_val, on_test) in uncertainties(measured, first).items():
            judged = judge(on_test, measured["test"]["wrong"] > 0, second.evaluated)
            kept = kept_by(on_val, on_test, first)
            wrong = measured["test"]["wrong"][kept & second.evaluated]
            shares = [100 * (1 - kept.mean()), 100 * wrong.mean()]
            rows.setdefault(name, []).append([*judged, *shares])
        covered.append(coverages(rules, second, measured["test"], effects, groups_with(first) < FEW))
    means = {name: np.mean(figures, axis=0) for name, figures in rows.items()}
    return means, 100 * np.nanmean(covered, axis=0)


def rules_of(part: Predictions) -> LabelRules:
    """Thresholds, calibration and intervals, fitted as at the end of a training."""
    fitted = fit_temperatures(part, with_bias=True)
    thresholds = choose_thresholds(part, calibration=fitted).values
    intervals = fit_probability_intervals(part, fitted.temperatures, fitted.biases)
    return LabelRules(
        part.labels,
        tuple(thresholds.tolist()),
        tuple(fitted.temperatures.tolist()),
        tuple(fitted.biases.tolist()),
        intervals.to_rows(),
    )


def evidence(rules: LabelRules, part: Predictions, val: Predictions) -> dict[str, Values]:
    """N x L numbers that may tell wrong decisions from right ones, and which are wrong."""
    errors, present = error_probabilities(rules, part)
    probabilities = rules.calibrate(logit(part.scores))
    rows = rules.probability_intervals or ()
    interval = ProbabilityIntervals.from_rows(rows).interval(part.scores, probabilities, part.sigma)
    width = logit(interval.high) - logit(interval.low)
    found = {
        "wrong": (present != part.positive).astype(np.float64),
        "error": logit(errors),
        "distance": np.abs(logit(part.scores) - logit(rules.score_thresholds)),
        "interval": np.log(width),
        "half": (interval.high - interval.low) / 2,
        "probability": probabilities,
    }
    if part.sigma is not None and val.sigma is not None:
        of_val = np.log(val.sigma)
        found["sigma"] = (np.log(part.sigma) - of_val.mean(axis=0)) / np.maximum(of_val.std(axis=0), 1e-6)
    return found


def uncertainties(
    measured: dict[str, dict[str, Values]], val: Predictions
) -> dict[str, tuple[Values, Values]]:
    """By name, on val and on test, higher is less certain."""
    from sklearn.linear_model import LogisticRegression

    on_val, on_test = measured["val"], measured["test"]
    found = {
        "distance to the threshold": (-on_val["distance"], -on_test["distance"]),
        "error probability": (on_val["error"], on_test["error"]),
    }
    for name, parts in FITS.items():
        if not set(parts) <= set(on_val):
            continue
        stacked = [np.stack([one[part] for part in parts], axis=-1) for one in (on_val, on_test)]
        there = val.evaluated
        model = LogisticRegression(max_iter=300).fit(stacked[0][there], on_val["wrong"][there])
        found[name] = tuple(one @ model.coef_[0] for one in stacked)  # type: ignore[assignment]
    return found


def judge(uncertainty: Values, wrong: Mask, evaluated: Mask) -> tuple[float, float]:
    of_all = detect_errors(certainty_points(uncertainty[evaluated], wrong[evaluated])).auroc
    of_labels = [
        detect_errors(certainty_points(uncertainty[there, label], wrong[there, label])).auroc
        for label, there in enumerate(evaluated.T)
    ]
    return of_all, mean_of_defined(np.array(of_labels))


def kept_by(on_val: Values, on_test: Values, val: Predictions) -> Mask:
    """The decisions on test that are not left to a person, by the cut-off of `kmcl.evaluation.abstention`."""
    weights = np.full(on_val.size, 1 / val.num_labels)
    pairs = Positives(-on_val.ravel(), weights, len(val), False)
    cutoff = controlled_threshold(pairs, GuaranteeWish("found", 1 - SHARE))
    if cutoff is None:
        raise SystemExit("val is too small")
    return np.asarray(-on_test >= cutoff)


class Coverage(NamedTuple):
    """Of one split: shares of bins whose frequency is as it should be, and the width of intervals."""

    frequency_alone: float
    with_interval: float
    of_rare_labels: float
    of_other_labels: float
    independent: float
    width: float
    relative_width: float


def coverages(
    rules: LabelRules, part: Predictions, measured: dict[str, Values], effects: Values, rare: Mask
) -> Coverage:
    """Judge the intervals by the frequencies of labels in bins."""
    gaps, of_frequency, of_interval = np.zeros((3, part.num_labels, BINS))
    for label, there in enumerate(part.evaluated.T):
        probabilities = measured["probability"][there, label]
        for place, chosen in enumerate(np.array_split(np.argsort(probabilities), BINS)):
            mean = probabilities[chosen].mean()
            gaps[label, place] = abs(part.positive[there, label][chosen].mean() - mean)
            of_frequency[label, place] = mean * (1 - mean) / len(chosen)
            half = measured["half"][there, label][chosen].mean()
            of_interval[label, place] = (half / STANDARD_DEVIATIONS) ** 2
    grouped = of_frequency * effects[:, None]
    held = gaps <= STANDARD_DEVIATIONS * np.sqrt(grouped + of_interval)
    width, probabilities = 2 * measured["half"], measured["probability"]
    return Coverage(
        float((gaps <= STANDARD_DEVIATIONS * np.sqrt(grouped)).mean()),
        float(held.mean()),
        float(held[rare].mean()) if rare.any() else np.nan,
        float(held[~rare].mean()) if not rare.all() else np.nan,
        float((gaps <= STANDARD_DEVIATIONS * np.sqrt(of_frequency + of_interval)).mean()),
        float(width.mean()),
        float((width / np.maximum(probabilities, 0.01)).mean()),
    )


def frequency_effects(pool: Predictions) -> Values:
    """How much larger the variance of a bin's frequency is than for independent images, for each label."""
    if pool.groups is None:
        return np.ones(pool.num_labels)
    probabilities = fit_temperatures(pool, with_bias=True).apply(pool.scores).astype(np.float64)
    units = pool.units
    found = []
    for label, there in enumerate(pool.evaluated.T):
        mean = probabilities[there, label]
        places = np.argsort(np.argsort(mean)) * BINS // len(mean)
        residuals = pool.positive[there, label] - mean
        sums = np.bincount(units.of_image[there] * BINS + places, weights=residuals)
        found.append(max(1.0, float((sums**2).sum() / (mean * (1 - mean)).sum())))
    return np.array(found)


def groups_with(part: Predictions) -> Values:
    """How many images or groups have each label."""
    units = part.units
    return np.array([len(set(units.of_image[there])) for there in part.positive.T], dtype=np.float64)


if __name__ == "__main__":
    main()
