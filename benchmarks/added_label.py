"""What a label is worth that `kmcl add-label` fits from a few examples, against knowing it for all images.

    python benchmarks/added_label.py table:PATH/labels.csv --keep DIR --split val --shrinkages 0.3 1 3 10
    python benchmarks/added_label.py table:PATH/labels.csv --keep DIR --split test

A label's column is hidden. Of the training images that show it, a few are drawn as examples; the others
count as remembered images of which nothing is known, and some of them show the label too. AP is the average
precision on --split; "nearest" that of the mean cosine to the examples. The discriminant is that of
`kmcl.posthoc.label_examples`, written here in NumPy. F1 is at the threshold that the command chooses, best F1
at the best one of the split. The last column has the discriminant with the label of every training image.
Means and standard deviations over the draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from frozen_statistics import Images, read_splits
from kmcl.evaluation.label_rules import sigmoid
from kmcl.evaluation.ranking import average_precision, operating_points
from kmcl.evaluation.unlabelled import calibrate_unlabelled

LABELS = ("car", "dog", "stop_sign", "parking_meter")
NUMBERS = (5, 20, 100)
SHRINKAGE = 3.0
NUM_DIRECTIONS = 512

Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]


class Discriminants:
    """The spectrum of the covariance of train, from which every shrinkage follows."""

    def __init__(self, directions: npt.NDArray[np.float32]) -> None:
        self.remembered = directions.astype(np.float16).astype(np.float64)
        self.mean = self.remembered.mean(axis=0)
        values, self.vectors = np.linalg.eigh(np.cov(self.remembered.T, bias=True))
        self.values = np.maximum(values, 0)

    def inverse(self, shrinkage: float) -> Values:
        inverse: Values = (self.vectors / (self.values + shrinkage * self.values.mean())) @ self.vectors.T
        return inverse


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--draws", default="0:5", metavar="FROM:TO")
    parser.add_argument("--labels", nargs="+", default=LABELS)
    parser.add_argument("--numbers", nargs="+", type=int, default=NUMBERS, help="of examples")
    parser.add_argument("--shrinkages", nargs="+", type=float, default=[SHRINKAGE])
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--keep", type=Path, required=True, help="folder for the features")
    arguments = parser.parse_args()
    names, splits = read_splits(
        arguments.data, ("train", arguments.split), arguments.image_size, arguments.keep, NUM_DIRECTIONS
    )
    train, judged = splits["train"], splits[arguments.split]
    discriminants = Discriminants(train.directions)
    shrinkages = " | ".join(f"AP, {each:g}" for each in arguments.shrinkages)
    print(f"| label | examples | {shrinkages} | nearest | share | F1 | best F1 | all labels |")
    print("|---" * (7 + len(arguments.shrinkages)) + "|", flush=True)
    for label in arguments.labels:
        column = names.index(label)
        shows, truth = train.targets[:, column] == 1, judged.targets[:, column] == 1
        shares = np.delete((train.targets == 1).mean(axis=0), column)
        usual = float(np.exp(np.log(shares[shares > 0]).mean()))
        everything = discriminants.inverse(arguments.shrinkages[-1]) @ (
            discriminants.remembered[shows].mean(axis=0) - discriminants.remembered[~shows].mean(axis=0)
        )
        for number in arguments.numbers:
            found = []
            for draw in range(*map(int, arguments.draws.split(":"))):
                rng = np.random.default_rng([draw, number])
                examples = rng.permutation(np.flatnonzero(shows))[:number]
                found.append(
                    from_examples(discriminants, judged, examples, truth, arguments.shrinkages, usual)
                )
            cells = [spread(np.array(values)) for values in zip(*found, strict=True)]
            cells.append(f"{100 * precision_of(judged.directions @ everything, truth):.1f}")
            share = 100 * shows.mean()
            print(f"| {label} ({share:.1f} %) | {len(examples)} | {' | '.join(cells)} |", flush=True)


def from_examples(
    discriminants: Discriminants,
    judged: Images,
    examples: npt.NDArray[np.int64],
    truth: Mask,
    shrinkages: Sequence[float],
    usual_share: float,
) -> list[float]:
    given = discriminants.remembered[examples]
    centre, number = given.mean(axis=0), len(examples)
    others = np.ones(len(discriminants.remembered), dtype=bool)
    others[examples] = False
    figures = []
    for shrinkage in shrinkages:
        inverse = discriminants.inverse(shrinkage)
        weights = inverse @ (centre - discriminants.mean)
        scores = judged.directions @ weights
        figures.append(100 * precision_of(scores, truth))
    left_out = given @ weights + ((given @ inverse) * (centre - given)).sum(axis=1) / (number - 1)
    unlabelled = discriminants.remembered[others] @ weights
    found = calibrate_unlabelled(left_out, unlabelled, usual_share=usual_share)
    probabilities = sigmoid(found.slope * scores + found.bias)
    return [
        *figures,
        100 * precision_of(judged.directions @ centre, truth),
        100 * found.share,
        100 * f1(probabilities >= found.threshold, truth),
        100 * max(f1(scores >= value, truth) for value in np.quantile(scores, np.linspace(0.3, 0.999, 100))),
    ]


def precision_of(scores: Values, truth: Mask) -> float:
    return average_precision(operating_points(scores, truth))


def f1(predicted: Mask, truth: Mask) -> float:
    return float(2 * (predicted & truth).sum() / max(predicted.sum() + truth.sum(), 1))


def spread(values: Values) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


if __name__ == "__main__":
    main()
