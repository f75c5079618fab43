"""How many planted wrong labels are found: `kmcl data audit` and Cleanlab on the same probabilities.

    python -m venv ENV && ENV/bin/pip install -r benchmarks/audit_requirements.txt
    python benchmarks/audit.py table:PATH/labels.csv --environment ENV [--groups '[0-9]{8}'] [--seeds 10:30]
    python benchmarks/audit.py table:PATH/labels.csv --copies              (near-duplicates)

Flips: in a share of the images one label, drawn from all, is turned over. Omissions: a share of the present
labels is removed. k is the number of planted errors; the share of them among the k most suspicious labels is
precision and recall at k, since both have k in the denominator. The same for images: k is the number of those
with an error. The labels count as right apart from the planted errors, so that true errors of the dataset
lower the figures of every method.

ours       left-out scores, the image's other labels and the images of its group (`kmcl.labelling`)
labels     Cleanlab: get_label_quality_scores_per_class, default settings, for labels; Datalab for images;
           with the same left-out scores as ours, turned into probabilities by logistic regression per label
own        the same with probabilities of its tutorials: sklearn's one-versus-rest logistic regression on
           pooled features, five folds (--own, slow: a minute and more for each seed)

Intervals are those of the mean difference over seeds (Student's t, 95 %). The seeds from 10 on were not used
when the method was chosen, nor were the rates below.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from scipy.stats import t as student

from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.groups import units_of_rows
from kmcl.data.selection import join_splits
from kmcl.labelling import left_out_scores as left_out
from kmcl.labelling.audit import describe_splits
from kmcl.labelling.image_features import ImageFeatures, pretrained_extractor
from kmcl.labelling.label_regression import fit_label_regression
from kmcl.labelling.label_suspicion import suspect_labels
from kmcl.labelling.near_duplicates import degraded_copy, find_near_duplicates, similarity_of_copies

PROGRAM = Path(__file__).resolve().parent / "peer_programs" / "score_cleanlab.py"
RATES = (0.02, 0.05, 0.1)
KINDS = ("flips", "omissions")

Targets = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]


class Suspected(NamedTuple):
    """How suspicious each label, N x L, and each image, N, is."""

    labels: Values
    images: Values


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--environment", type=Path, help="that has Cleanlab")
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    parser.add_argument("--seeds", default="10:30", metavar="FROM:TO")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--own", action="store_true", help="also Cleanlab with its own kind of probabilities")
    parser.add_argument("--copies", action="store_true", help="measure near-duplicates instead")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    extractor = pretrained_extractor(Console(stderr=True))
    features = describe_splits(dataset, extractor)
    if arguments.copies:
        measure_copies(dataset, features)
        return
    everything = with_groups(join_splits(dataset), features, arguments.groups)
    seeds = range(*map(int, arguments.seeds.split(":")))
    judge = Judge(everything, features, arguments.environment, own=arguments.own)
    print("| planted | ranked | k | ours | Cleanlab | difference | Cleanlab, own | difference |")
    print("|---" * 8 + "|")
    for kind in arguments.kinds:
        for rate in arguments.rates:
            for row in judge.rows(kind, rate, seeds):
                print(row, flush=True)


def with_groups(split: Split, features: ImageFeatures, pattern: str | None) -> Split:
    """The images that can be read, with groups found in their names."""
    groups = None
    if pattern is not None:
        names = [Path(split.images.name(int(row))).name for row in features.rows]
        found = [re.search(pattern, name) for name in names]
        groups = np.array([name if one is None else one[0] for name, one in zip(names, found, strict=True)])
    return Split(split.images, split.targets[features.rows], groups=groups)


def plant(targets: Targets, kind: str, rate: float, seed: int) -> tuple[Targets, Mask]:
    """Targets with errors, and where these are."""
    rng = np.random.default_rng(seed)
    planted = np.zeros(targets.shape, dtype=bool)
    if kind == "flips":
        rows = rng.permutation(len(targets))[: round(rate * len(targets))]
        planted[rows, rng.integers(0, targets.shape[1], len(rows))] = True
    else:
        present = np.argwhere(targets == 1)
        chosen = present[rng.permutation(len(present))[: round(rate * len(present))]]
        planted[chosen[:, 0], chosen[:, 1]] = True
    return np.where(planted, 1 - targets, targets).astype(np.int8), planted


def found_at_k(suspicion: Values, planted: Mask) -> float:
    """The share of the planted errors among as many of the most suspicious, in percent; NaN without any."""
    if not planted.any():
        return float("nan")
    worst = np.argsort(-suspicion, axis=None, kind="stable")[: planted.sum()]
    return 100 * float(planted.ravel()[worst].mean())


def judged(suspected: Suspected, targets: Targets, planted: Mask) -> dict[str, float]:
    """By what is ranked: all labels, those that are given, those that are not, images."""
    found = {"labels": found_at_k(suspected.labels, planted)}
    for name, value in (("given labels", 1), ("absent labels", 0)):
        inside = targets == value
        found[name] = found_at_k(suspected.labels[inside], planted[inside])
    found["images"] = found_at_k(suspected.images, planted.any(axis=1))
    return found


class Judge:
    """Scores of one dataset for any planted errors; the process is inverted once for all of them."""

    def __init__(
        self, everything: Split, features: ImageFeatures, environment: Path | None, *, own: bool
    ) -> None:
        self._everything = everything
        self._environment = environment
        self._pooled = features.statistics[:, -features.widths[-1] :][:, : features.widths[-1] // 2]
        self._own = own
        self._units = units_of_rows(everything.groups, len(everything))
        # Chosen once, with the labels as they are: those of a few errors more choose the same.
        smoothness = left_out.best_smoothness(features.directions, everything.targets, self._units)
        self._precision = left_out.inverse_covariance(torch.from_numpy(features.directions), *smoothness)

    def rows(self, kind: str, rate: float, seeds: range) -> Iterator[str]:
        drawn = [plant(self._everything.targets, kind, rate, seed) for seed in seeds]
        scores = [self._scores(targets) for targets, _ in drawn]
        methods = [
            [self._ours(one, targets) for one, (targets, _) in zip(scores, drawn, strict=True)],
            *self._cleanlab(scores, [targets for targets, _ in drawn]),
        ]
        figures = [
            [judged(one, *place) for one, place in zip(of_seeds, drawn, strict=True)] for of_seeds in methods
        ]
        for ranked in figures[0][0]:
            values = np.array([[one[ranked] for one in of_seeds] for of_seeds in figures])
            if np.isnan(values).any():
                continue
            means = [f"{value:.1f}" for value in values.mean(axis=1)]
            targets, planted = drawn[0]
            sizes = {"labels": planted, "given labels": planted & (targets == 1)}
            sizes |= {"absent labels": planted & (targets == 0), "images": planted.any(axis=1)}
            cells = [f"{100 * rate:g} % {kind}", ranked, str(sizes[ranked].sum()), *means[:2]]
            cells.append(difference(values[0] - values[1]))
            cells += [means[2], difference(values[0] - values[2])] if len(means) > 2 else ["", ""]
            yield "| " + " | ".join(cells) + " |"

    def _scores(self, targets: Targets) -> Values:
        means = left_out.left_out_means(self._precision, left_out.standardised(targets), self._units)
        scores: Values = means.double().numpy()
        return scores

    def _ours(self, scores: Values, targets: Targets) -> Suspected:
        suspicion = suspect_labels(scores, targets, self._everything.groups)
        return Suspected(suspicion.is_wrong, suspicion.is_wrong.max(axis=1))

    def _cleanlab(self, scores: list[Values], targets: list[Targets]) -> Iterator[list[Suspected]]:
        """On the same scores, turned into probabilities by logistic regression; and on its own."""
        probabilities = []
        for one, given in zip(scores, targets, strict=True):
            nothing, no_weights = np.zeros((len(one), 0)), np.zeros((0, one.shape[1]), dtype=bool)
            model = fit_label_regression(one, nothing, no_weights, given)
            probabilities.append(model.probabilities(one, nothing))
        yield run_cleanlab(self._environment, targets, probabilities=np.stack(probabilities))
        if self._own:
            yield run_cleanlab(self._environment, targets, features=self._pooled)


def run_cleanlab(
    environment: Path | None, targets: list[Targets], **given: npt.NDArray[np.floating]
) -> list[Suspected]:
    """Cleanlab's scores of each of several annotations, from its own environment."""
    if environment is None:
        raise SystemExit("--environment is missing: where Cleanlab is installed")
    with TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(inputs, targets=np.stack(targets), **given)
        command = [str(environment / "bin" / "python"), str(PROGRAM), str(inputs), str(outputs)]
        subprocess.run(command, check=True)
        with np.load(outputs) as scores:
            pairs = zip(scores["labels"], scores["images"], strict=True)
            return [Suspected(1 - labels, 1 - images) for labels, images in pairs]


def difference(values: Values) -> str:
    """Mean and 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():+.1f} ({values.mean() - half:+.1f} to {values.mean() + half:+.1f})"


def measure_copies(dataset: Dataset, features: ImageFeatures) -> None:
    """How many copies of other images are found, and how many other pairs are taken for copies."""
    extractor = pretrained_extractor(Console(stderr=True))
    images = join_splits(dataset).images
    least = similarity_of_copies(images, extractor, features)
    rows = np.random.default_rng(1).permutation(len(features.rows))[:200]
    pixels = [images.load(int(features.rows[row])) for row in rows]
    changes = {
        "compressed and scaled": degraded_copy,
        "without a margin of 5 %": lambda image: image[
            image.shape[0] // 20 : -(image.shape[0] // 20), image.shape[1] // 20 : -(image.shape[1] // 20)
        ],
        "mirrored": lambda image: np.ascontiguousarray(image[:, ::-1]),
    }
    print(f"similarity of at least {least:.3f}")
    for name, change in changes.items():
        copies = features.directions_of(extractor.describe_pixels([change(image) for image in pixels]))
        share = ((copies * features.directions[rows]).sum(axis=1) >= least).mean()
        print(f"{name}: {100 * share:.1f} % of {len(rows)} copies are found")
    pairs = find_near_duplicates(features.directions, least)
    print(f"{len(pairs)} pairs of {len(features.rows)} images are that similar")
    for first, second, similarity in pairs[:20]:
        names = [Path(images.name(int(features.rows[row]))).name for row in (first, second)]
        print(f"  {similarity:.3f} {names[0]} {names[1]}")


if __name__ == "__main__":
    main()
