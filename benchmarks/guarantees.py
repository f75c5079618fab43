"""Do guarantees hold, and what do they cost? The table of docs/evaluation.md.

    python benchmarks/guarantees.py RUN [--groups '[0-9]{8}']     (about a minute on one core)

RUN is a run folder with predictions of val and test. Both are pooled and split again at random, into parts of
the same sizes; with groups, whole groups are drawn. Thresholds are chosen on the one part and judged on the
other. A group is what the pattern finds first in the name of an image.

"rate" is the promised rate on the other part, mean over splits: of recall and precision also over the labels
that the guarantee was given to in the split. "held" is how often the rate of a label (of found: the rate) was
at least the promised one in a split, where it was given. With a confidence it must be held that often; in
expectation it is the mean rate that must reach the promise. The columns "other" have the rate that is paid
with: precision for recall and found, recall for precision, over all decisions. The row below each guarantee
is that of the thresholds for F1 without a guarantee, on the same labels and splits.

Before the table: the processor time of choosing thresholds for 40,000 images, repeated ones, and how many
times that of determining which pairs count and what the units are.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kmcl.evaluation import Predictions, choose_thresholds
from kmcl.evaluation.decisions import decide
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds
from kmcl.evaluation.promised_rates import promised_rates
from kmcl.evaluation.ranking import Values

WISHES = (
    "recall=0.9",
    "recall=0.9,confidence=0.9",
    "found=0.9",
    "found=0.9,confidence=0.9",
    "precision=0.8",
    "precision=0.5",
    "precision=0.2",
)


class Split(NamedTuple):
    """One split's figures: rates of the labels (of found one), NaN where not given; and the other rate."""

    rates: Values
    other: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--wishes", nargs="+", default=WISHES, metavar="RATE=LEVEL")
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    arguments = parser.parse_args()
    val, test = (Predictions.load(arguments.run / "predictions" / f"{name}.npz") for name in ("val", "test"))
    if arguments.groups:
        val, test = with_groups(val, arguments.groups), with_groups(test, arguments.groups)
    pool, num_val = Predictions.concat([val, test]), len(val)
    drawn = [draw(pool, num_val, np.random.default_rng(seed)) for seed in range(arguments.splits)]
    usual = [choose_thresholds(chosen_on).values for chosen_on, _ in drawn]
    print_times(pool, arguments.wishes)
    print("| guarantee | given to labels | rate | held | other | rate, F1 | held, F1 | other, F1 |")
    print("|---" * 8 + "|")
    for wish in map(GuaranteeWish.parse, arguments.wishes):
        ours, without = [], []
        for (chosen_on, judged_on), plain in zip(drawn, usual, strict=True):
            values, guarantee = choose_guaranteed_thresholds(chosen_on, wish, plain)
            ours.append(judge(judged_on, values, guarantee))
            without.append(judge(judged_on, plain, guarantee))
        given = np.mean([(~np.isnan(one.rates)).sum() for one in ours])
        number = "" if wish.kind == "found" else f"{given:.1f} of {pool.num_labels}"
        cells = [cell for figures in (ours, without) for cell in describe(figures, wish.level)]
        print("| " + " | ".join([str(wish), number, *cells]) + " |", flush=True)


def print_times(pool: Predictions, wishes: Sequence[str], num_images: int = 40_000) -> None:
    """Processor time of choosing thresholds for so many images, beside that of what is determined once."""
    many = pool.take(np.arange(num_images) % len(pool))
    start = time.process_time()
    _ = many.evaluated, many.positive, many.units
    once = time.process_time() - start
    for wish in map(GuaranteeWish.parse, wishes):
        start = time.process_time()
        choose_guaranteed_thresholds(replace(many), wish, np.full(many.num_labels, 0.5))
        seconds = time.process_time() - start
        print(f"{wish}: {seconds:.2f} s for {num_images:,} images, {seconds / once:.0f} x masks and units")


def describe(splits: list[Split], level: float) -> list[str]:
    rates = np.concatenate([one.rates for one in splits])
    rates = rates[~np.isnan(rates)]
    if not len(rates):
        return ["-", "-", "-"]
    others = np.array([one.other for one in splits if not np.isnan(one.rates).all()])
    return [f"{100 * rates.mean():.1f}", f"{100 * (rates >= level).mean():.0f}", f"{100 * others.mean():.1f}"]


def judge(predictions: Predictions, thresholds: Values, guarantee: Guarantee) -> Split:
    """The promised rates, and the other one over all decisions about the labels that have the guarantee."""
    decisions = decide(predictions.scores, thresholds)
    found = promised_rates(predictions, decisions, guarantee)
    rates = np.array([found.rate]) if guarantee.kind == "found" else found.labels
    given = np.array([label not in guarantee.not_given for label in predictions.labels])
    right = (decisions & given & predictions.positive).sum()
    of_all = decisions & given & predictions.evaluated
    if guarantee.kind == "precision":
        of_all = predictions.positive & given
    return Split(rates, float(right / max(of_all.sum(), 1)))


def draw(pool: Predictions, num_val: int, generator: np.random.Generator) -> tuple[Predictions, Predictions]:
    """Whole groups in random order until there are enough images; then the rest."""
    units = pool.units
    places = generator.permutation(units.num_units)[units.of_image]
    order = np.argsort(places, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(places[order]) > 0, True)) + 1
    size = int(ends[np.argmin(np.abs(ends - num_val))])
    return pool.take(order[:size]), pool.take(order[size:])


def with_groups(predictions: Predictions, pattern: str) -> Predictions:
    found = [re.search(pattern, Path(name).name) for name in predictions.names]
    return replace(predictions, groups=tuple("" if one is None else one[0] for one in found))


if __name__ == "__main__":
    main()
