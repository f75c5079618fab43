"""kmcl against scikit-learn's logistic regression on the same feature vectors and the same split.

    python benchmarks/vectors.py features:packages.parquet --keep DIR --split val     (to choose settings)
    python benchmarks/vectors.py features:packages.parquet --keep DIR --split test    (once)

Logistic regression: one per label, on standardised vectors and on vectors as they are; form and C are chosen
on val. kmcl: `kmcl train` as it is, for several seeds, on the same split. The interval of the difference of
mAP, kmcl's mean over the seeds minus logistic regression, is that of a bootstrap over the groups of --split,
or over its rows where there are none (1,000 draws, 95 %). Trainings that DIR has are not repeated.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import kmcl
from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.vectors import take_vectors
from kmcl.evaluation.ranking import average_precision, operating_points

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
NUM_DRAWS = 1000

Values = npt.NDArray[np.float64]
Targets = npt.NDArray[np.int8]


class Fitted(NamedTuple):
    """Scores of the judged split, mAP on val, and what was chosen there."""

    scores: Values
    on_val: float
    chosen: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--split", default="val", choices=["val", "test"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--budget", default="10m")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    judged = dataset.splits[arguments.split]
    began = time.monotonic()
    peer = logistic_regression(dataset, arguments.split)
    print(f"logistic regression: {described(peer, judged)}; {time.monotonic() - began:.0f} s", flush=True)
    ours = []
    for seed in arguments.seeds:
        folder = arguments.keep / f"seed-{seed}"
        began = time.monotonic()
        if not (folder / "metrics.json").is_file():
            kmcl.train(arguments.data, output=folder, seed=seed, budget=arguments.budget, progress=False)
        run = kmcl.Run(folder)
        val, predicted = run.predictions("val"), run.predictions(arguments.split)
        np.testing.assert_array_equal(predicted.targets, judged.targets)
        optimisation = run.settings.optimisation
        chosen = f"learning rate {optimisation.learning_rate:g}, {optimisation.epochs} epochs"
        scores = predicted.scores.astype(np.float64)
        ours.append(Fitted(scores, mean_average_precision(val.scores, val.targets), chosen))
        print(
            f"kmcl, seed {seed}: {described(ours[-1], judged)}; {time.monotonic() - began:.0f} s", flush=True
        )
    units = judged.groups if judged.groups is not None else np.arange(len(judged)).astype(str)
    rng = np.random.default_rng(0)
    drawn = np.array([difference(peer, ours, judged, rows) for rows in resampled(units, rng)])
    whole = difference(peer, ours, judged, np.arange(len(judged)))
    low, high = np.quantile(drawn, [0.025, 0.975])
    print(f"kmcl - logistic regression: {whole:+.1f} ({low:+.1f} to {high:+.1f})")


def logistic_regression(dataset: Dataset, split: str) -> Fitted:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    train, val, judged = (dataset.splits[name] for name in ("train", "val", split))
    found = []
    for form in ("standardised", "as they are"):
        scaler = StandardScaler(with_mean=form == "standardised", with_std=form == "standardised")
        inputs = [
            scaler.fit_transform(vectors_of(train)),
            *(scaler.transform(vectors_of(s)) for s in (val, judged)),
        ]
        for penalty in PENALTIES:
            of_val, of_judged = np.zeros(val.targets.shape), np.zeros(judged.targets.shape)
            for label in range(dataset.num_labels):
                known = train.targets[:, label] >= 0
                model = LogisticRegression(C=penalty, max_iter=1000)
                model.fit(inputs[0][known], train.targets[known, label])
                of_val[:, label] = model.decision_function(inputs[1])
                of_judged[:, label] = model.decision_function(inputs[2])
            on_val = mean_average_precision(of_val, val.targets)
            found.append(Fitted(of_judged, on_val, f"vectors {form}, C {penalty:g}"))
    return max(found, key=lambda one: one.on_val)


def vectors_of(split: Split) -> Values:
    return take_vectors(split.images, np.arange(len(split))).astype(np.float64)


def described(fitted: Fitted, judged: Split) -> str:
    reached = mean_average_precision(fitted.scores, judged.targets)
    return f"mAP {reached:.2f}, on val {fitted.on_val:.2f} ({fitted.chosen})"


def mean_average_precision(scores: npt.NDArray[np.floating], targets: Targets) -> float:
    """In percent, over the labels that occur."""
    found = [
        average_precision(operating_points(of_label.astype(np.float64)[known], truth[known] == 1))
        for of_label, truth in zip(scores.T, targets.T, strict=True)
        if (truth == 1).any() and (known := truth >= 0).any()
    ]
    return 100 * float(np.mean(found))


def resampled(units: npt.NDArray[np.str_], rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    """Rows of as many units as there are, drawn with repetition."""
    unit_of_row = np.unique(units, return_inverse=True)[1]
    rows = np.split(np.argsort(unit_of_row, kind="stable"), np.cumsum(np.bincount(unit_of_row))[:-1])
    draws = (rng.integers(0, len(rows), len(rows)) for _ in range(NUM_DRAWS))
    return [np.concatenate([rows[unit] for unit in draw]) for draw in draws]


def difference(peer: Fitted, ours: list[Fitted], judged: Split, rows: npt.NDArray[np.int64]) -> float:
    targets = judged.targets[rows]
    mean = np.mean([mean_average_precision(one.scores[rows], targets) for one in ours])
    return float(mean - mean_average_precision(peer.scores[rows], targets))


if __name__ == "__main__":
    main()
