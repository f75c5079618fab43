"""What a label is worth that `kmcl add-label` fits from a few examples, against knowing it for all images.

    python benchmarks/added_label.py table:PATH/labels.csv --keep DIR --split val --shrinkages 0.1 1 10
    python benchmarks/added_label.py table:PATH/labels.csv --keep DIR --split test

A label's column is hidden. Of the training images that show it, a few are drawn as examples; the others
count as remembered images of which nothing is known, and some of them show the label too. AP is the average
precision on --split; "nearest" that of the mean similarity to the examples; "process" that of a Gaussian
process that takes remembered images as absent. F1 is at the threshold that the command chooses, best F1 at
the best one of the split. The last column has the Gaussian process of `FrozenFeatureGP` with the label of
every training image. Means and standard deviations over the draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from frozen_statistics import Images, read_splits
from kmcl.evaluation.ranking import average_precision, operating_points
from kmcl.evaluation.unlabelled import calibrate_unlabelled
from kmcl.models.label_rules import sigmoid
from kmcl.posthoc.label_examples import SHRINKAGE, fit_label

LABELS = ("car", "dog", "stop_sign", "parking_meter")
NUMBERS = (5, 20, 100)
VARIANCE, NOISE = 0.2, 2.0

Mask = npt.NDArray[np.bool_]


class Process(NamedTuple):
    """The inverse of the covariance of train, and the similarities of the judged images to those of train."""

    precision: Tensor
    across: Tensor


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
        arguments.data, ("train", arguments.split), arguments.image_size, arguments.keep
    )
    train, judged = splits["train"], splits[arguments.split]
    train = train._replace(directions=train.directions.half().float())
    process = fit_process(train, judged)
    shrinkages = " | ".join(f"AP, {each:g}" for each in arguments.shrinkages)
    print(f"| label | examples | {shrinkages} | nearest | process | share | F1 | best F1 | all labels |")
    print("|---" * (8 + len(arguments.shrinkages)) + "|")
    for label in arguments.labels:
        column = names.index(label)
        shows, truth = train.targets[:, column] == 1, judged.targets[:, column] == 1
        known = process.across @ (process.precision @ torch.from_numpy(shows - shows.mean()).float())
        for number in arguments.numbers:
            found = []
            for draw in range(*map(int, arguments.draws.split(":"))):
                rng = np.random.default_rng([draw, number])
                examples = rng.permutation(np.flatnonzero(shows))[:number]
                found.append(from_examples(train, judged, examples, truth, process, arguments.shrinkages))
            cells = [spread(np.array(values)) for values in zip(*found, strict=True)]
            cells.append(f"{100 * precision_of(known, truth):.1f}")
            share = 100 * shows.mean()
            print(f"| {label} ({share:.1f} %) | {len(examples)} | {' | '.join(cells)} |", flush=True)


def from_examples(
    train: Images,
    judged: Images,
    examples: npt.NDArray[np.int64],
    truth: Mask,
    process: Process,
    shrinkages: Sequence[float],
) -> list[float]:
    given, shows = train.directions[examples], torch.ones(len(examples), dtype=torch.bool)
    figures = []
    for shrinkage in shrinkages:
        fitted = fit_label(train.directions, given, shows, shrinkage)
        scores = judged.directions @ fitted.weights
        figures.append(100 * precision_of(scores, truth))
    present = torch.zeros(len(train.directions))
    present[examples] = 1
    means = process.across @ (process.precision @ (present - present.mean()))
    calibration = calibrate_unlabelled(fitted.of_examples.double().numpy(), fitted.of_others.double().numpy())
    z = calibration.slope * scores.double().numpy() + calibration.bias
    return [
        *figures,
        100 * precision_of(process.across[:, examples].mean(dim=1), truth),
        100 * precision_of(means, truth),
        100 * calibration.share,
        100 * f1(sigmoid(z) >= calibration.threshold, truth),
        100 * max(f1(z >= value, truth) for value in np.quantile(z, np.linspace(0.3, 0.999, 300))),
    ]


def fit_process(train: Images, judged: Images) -> Process:
    covariance = torch.exp((train.directions @ train.directions.T - 1) / (4 * VARIANCE))
    covariance.diagonal().add_(NOISE)
    precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    return Process(precision, torch.exp((judged.directions @ train.directions.T - 1) / (4 * VARIANCE)))


def precision_of(scores: Tensor, truth: Mask) -> float:
    return average_precision(operating_points(scores.numpy(), truth))


def f1(predicted: Mask, truth: Mask) -> float:
    return float(2 * (predicted & truth).sum() / max(predicted.sum() + truth.sum(), 1))


def spread(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


if __name__ == "__main__":
    main()
