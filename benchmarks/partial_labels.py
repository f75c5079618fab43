"""What treatments of unknown labels are worth where only one label of each training image is known.

    python benchmarks/partial_labels.py table:PATH/labels.csv --split test --keep DIR

Of every training image one present label is kept, drawn with the seed; nothing else is known. Val and test
are fully labelled. A linear classifier on frozen features is trained with binary cross-entropy and Adam. The
treatments are those of `kmcl.losses.unknown_labels`, written here in NumPy. Each has the same epochs and the
same learning rates to choose from; the choice, of the rate and (where there is one) of the share of large
losses, is made on val, for each seed. The figures are mAP, mean and standard deviation over the seeds. The
first row has all labels of the training images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from frozen_statistics import Images, read_splits
from kmcl.evaluation.ranking import average_precision, operating_points

EPOCHS, BATCH = 6, 128
RATES = (5e-3, 2e-2)
SHARES = (0.03, 0.08)
NUM_DIRECTIONS = 96
ALL_KNOWN = "all labels known"
TREATMENTS = (ALL_KNOWN, "ignore", "negative", "weak_negative", "ll_r", "ll_ct")

Floats = npt.NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--seeds", default="0:3", metavar="FROM:TO")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--keep", type=Path, required=True, help="folder for the features")
    arguments = parser.parse_args()
    wanted = tuple(dict.fromkeys(["train", "val", arguments.split]))
    _, splits = read_splits(arguments.data, wanted, arguments.image_size, arguments.keep, NUM_DIRECTIONS)
    print(f"| treatment | val | {arguments.split} | chosen |\n|---|---|---|---|", flush=True)
    for name in TREATMENTS:
        found = [
            best_of(splits, name, arguments.split, seed)
            for seed in range(*map(int, arguments.seeds.split(":")))
        ]
        val, judged = (np.array([run[place] for run in found]) for place in (0, 1))
        chosen = "; ".join(run[2] for run in found)
        print(f"| {name} | {spread(val)} | {spread(judged)} | {chosen} |", flush=True)


def best_of(splits: dict[str, Images], name: str, judged: str, seed: int) -> tuple[float, float, str]:
    """mAP on val and on the judged split of the setting that is best on val, and the setting."""
    train = splits["train"]
    targets = train.targets if name == ALL_KNOWN else one_positive_each(train.targets, seed)
    found = []
    for share in SHARES if name in ("ll_r", "ll_ct") else (0.0,):
        for rate in RATES:
            weights = fit(train.directions, targets, name, share, rate, seed)
            figures = [100 * judge(weights, splits[split]) for split in ("val", judged)]
            found.append((figures[0], figures[1], f"{rate:g}" + (f", {share:g}" if share else "")))
    return max(found)


def one_positive_each(targets: npt.NDArray[np.int8], seed: int) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(seed)
    drawn = np.where(targets == 1, rng.random(targets.shape), -1.0).argmax(axis=1)
    rows = np.flatnonzero((targets == 1).any(axis=1))
    kept = np.full_like(targets, -1)
    kept[rows, drawn[rows]] = 1
    return kept


def fit(
    directions: Floats, targets: npt.NDArray[np.int8], name: str, share: float, rate: float, seed: int
) -> Floats:
    """Weights with the bias as last row."""
    rng = np.random.default_rng(seed)
    inputs = with_bias(directions)
    weights = np.zeros((inputs.shape[1], targets.shape[1]), np.float32)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    steps = len(inputs) // BATCH
    for epoch in range(EPOCHS):
        order = rng.permutation(len(inputs))
        for step in range(steps):
            rows = order[step * BATCH : (step + 1) * BATCH]
            logits = inputs[rows] @ weights
            residuals = gradient(logits, targets[rows], name, share * epoch / (EPOCHS - 1))
            slope = inputs[rows].T @ residuals / BATCH
            number = epoch * steps + step + 1
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            decayed = rate * (1 - number / (EPOCHS * steps + 1))
            move = first / (1 - 0.9**number) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
            weights = weights - decayed * move
    return weights


def gradient(logits: Floats, targets: npt.NDArray[np.int8], name: str, share: float) -> Floats:
    """Of the binary cross-entropy in the logits, with unknown labels treated."""
    probabilities = 1 / (1 + np.exp(-logits))
    residuals = probabilities - (targets == 1)
    unknown = targets == -1
    if name in (ALL_KNOWN, "ignore"):
        residuals[unknown] = 0
    elif name == "weak_negative":
        residuals[unknown] /= targets.shape[1] - 1
    number = int(share * unknown.sum())
    if number:  # ll_r, ll_ct
        ranked = np.argsort(np.where(unknown, -logits, np.inf), axis=None, kind="stable")[:number]
        large = np.unravel_index(ranked, logits.shape)
        residuals[large] = 0 if name == "ll_r" else probabilities[large] - 1
    return residuals


def with_bias(directions: Floats) -> Floats:
    scaled = directions * np.float32(directions.shape[1] ** 0.5)
    return np.column_stack([scaled, np.ones(len(scaled), np.float32)])


def judge(weights: Floats, images: Images) -> float:
    scores = with_bias(images.directions) @ weights
    return float(
        np.mean(
            [
                average_precision(operating_points(label_scores, label_targets == 1))
                for label_scores, label_targets in zip(scores.T, images.targets.T, strict=True)
            ]
        )
    )


def spread(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


if __name__ == "__main__":
    main()
