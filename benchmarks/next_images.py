"""Learning curves: what the strategies of `kmcl select` are worth against random images.

    python benchmarks/next_images.py table:PATH/labels.csv --split val                 (to choose a strategy)
    python benchmarks/next_images.py table:PATH/labels.csv --split test --seeds 10:20  (once)

Each repetition starts from 200 random images of train and labels 100 more at a time, up to 1,000. The
classifier is the Gaussian process of `FrozenFeatureGP` on features of a pretrained encoder, solved anew at
each step with the smoothness that suits the first 200 best; its left-out means give the probabilities by a
logistic regression that all labels share. The figures are mAP on --split, the mean over the steps after the
first, and at the end. Every strategy starts from the same images; intervals are those of the mean difference
over repetitions (Student's t, 95 %).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy.stats import t as student

from kmcl.data import open_dataset
from kmcl.evaluation.ranking import average_precision, operating_points
from kmcl.labelling.image_features import Floats, pretrained_extractor
from kmcl.labelling.strategies import STRATEGIES, Candidates, Places, entropies, spread_out
from kmcl.posthoc.frozen_gp import SMOOTHNESS

FIRST, STEP, LAST = 200, 100, 1000
SHARE_OF_UNCERTAIN = 5

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CountedCandidates(Candidates):
    """label_counts: L, how many labelled images have each label"""

    label_counts: Values


class Images(NamedTuple):
    directions: Floats
    targets: Values


class Classifier(NamedTuple):
    """A Gaussian process fitted to labelled images, and the logistic regression on its left-out means."""

    labelled: Images
    coefficients: Values
    smoothness: tuple[float, float]
    slope: float
    shift: float

    def means(self, directions: Floats) -> Values:
        return similarities(directions, self.labelled.directions, self.smoothness[0]) @ self.coefficients

    def probabilities(self, directions: Floats) -> Values:
        rates = smoothed_rates(self.labelled.targets)
        scores = self.means(directions) / np.sqrt(rates * (1 - rates))
        return sigmoid(self.slope * scores + np.log(rates / (1 - rates)) + self.shift)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--seeds", default="0:10", metavar="FROM:TO")
    parser.add_argument("--strategies", nargs="+", default=list(COMPARED), choices=list(COMPARED))
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.data)
    extractor = pretrained_extractor(Console(stderr=True))
    described = {name: extractor.describe(dataset.splits[name], name) for name in ("train", arguments.split)}
    pool, judged = (
        Images(
            described["train"].directions_of(found.statistics),
            dataset.splits[name].targets[found.rows].astype(np.float64),
        )
        for name, found in described.items()
    )
    seeds = range(*map(int, arguments.seeds.split(":")))
    curves: dict[str, Values] = {}
    print("| strategy | mean mAP | against random | mAP at the end | against random | against uncertain |")
    print("|---" * 6 + "|")
    for name in dict.fromkeys(["random", "uncertain", *arguments.strategies]):
        curves[name] = np.array([curve(pool, judged, COMPARED[name], seed) for seed in seeds])
        print(row(name, curves), flush=True)


def curve(pool: Images, judged: Images, strategy: Callable[..., Places], seed: int) -> list[float]:
    """mAP after each step, in percent."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(pool.directions))[:FIRST]
    smoothness = best_smoothness(Images(pool.directions[chosen], pool.targets[chosen]))
    figures = []
    while True:
        model = fit(Images(pool.directions[chosen], pool.targets[chosen]), smoothness)
        figures.append(100 * mean_average_precision(model.means(judged.directions), judged.targets))
        if len(chosen) >= LAST:
            return figures
        others = np.setdiff1d(np.arange(len(pool.directions)), chosen)
        candidates = CountedCandidates(
            model.probabilities(pool.directions[others]),
            pool.directions[others],
            model.labelled.directions,
            model.labelled.targets.sum(axis=0),
        )
        chosen = np.concatenate([chosen, others[strategy(candidates, STEP, rng)]])


def fit(labelled: Images, smoothness: tuple[float, float]) -> Classifier:
    coefficients, means = solve(labelled, smoothness)
    return Classifier(labelled, coefficients, smoothness, *fit_logistic(means, labelled.targets))


def solve(labelled: Images, smoothness: tuple[float, float]) -> tuple[Values, Values]:
    """The coefficients of the process, and its left-out means."""
    covariance = similarities(labelled.directions, labelled.directions, smoothness[0])
    covariance[np.diag_indices_from(covariance)] += smoothness[1]
    precision = np.linalg.inv(covariance)
    residuals = labelled.targets - labelled.targets.mean(axis=0)
    coefficients = precision @ residuals
    return coefficients, residuals - coefficients / np.diag(precision)[:, None]


def best_smoothness(labelled: Images) -> tuple[float, float]:
    """Whose left-out means rank the labels best."""
    return max(
        SMOOTHNESS,
        key=lambda pair: mean_average_precision(solve(labelled, pair)[1], labelled.targets),
    )


def fit_logistic(means: Values, targets: Values) -> tuple[float, float]:
    """Slope and shift, shared by all labels, by Newton's method."""
    rates = smoothed_rates(targets)
    scores, offsets = means / np.sqrt(rates * (1 - rates)), np.log(rates / (1 - rates))
    values = np.array([1.0, 0.0])
    for _ in range(25):
        p = sigmoid(values[0] * scores + offsets + values[1])
        residuals, weights = p - targets, p * (1 - p)
        gradient = np.array([(residuals * scores).sum(), residuals.sum()])
        across = (weights * scores).sum()
        curvature = np.array([[(weights * scores**2).sum(), across], [across, weights.sum()]])
        step = np.linalg.solve(curvature + 1e-3 * np.eye(2), gradient)
        values = values - step
        if np.abs(step).max() < 1e-6:
            break
    return float(values[0]), float(values[1])


def smoothed_rates(targets: Values) -> Values:
    rates: Values = (targets.sum(axis=0) + 0.5) / (len(targets) + 1)
    return rates


def sigmoid(values: Values) -> Values:
    return 1 / (1 + np.exp(-values))


def similarities(first: Floats, second: Floats, variance: float) -> Values:
    return np.exp((first @ second.T - 1) / (4 * variance)).astype(np.float64)


def mean_average_precision(scores: Values, targets: Values) -> float:
    found = [
        average_precision(operating_points(label_scores, label_targets == 1))
        for label_scores, label_targets in zip(scores.T, targets.T, strict=True)
        if (label_targets == 1).any()
    ]
    return float(np.mean(found))


def nearest_to_centres(vectors: Floats, count: int, rng: np.random.Generator) -> Places:
    """The image nearest to each of `count` centres of k-means."""
    from sklearn.cluster import KMeans

    model = KMeans(count, n_init=1, max_iter=20, random_state=int(rng.integers(1 << 31))).fit(vectors)
    chosen = dict.fromkeys(model.transform(vectors).argmin(axis=0).tolist())
    others = [place for place in rng.permutation(len(vectors)).tolist() if place not in chosen]
    return np.array([*chosen, *others[: count - len(chosen)]])


def farthest_first(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    """k-centre: always the image that is farthest from what is labelled or chosen."""
    nearest = (candidates.directions @ candidates.labelled.T).max(axis=1)
    chosen = []
    for _ in range(count):
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, candidates.directions @ candidates.directions[chosen[-1]])
        nearest[chosen] = np.inf
    return np.array(chosen)


def typical(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    return nearest_to_centres(candidates.directions, count, rng)


def typical_of_uncertain(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    uncertainty = entropies(candidates.probabilities).sum(axis=1)
    unclear = np.argsort(-uncertainty, kind="stable")[: SHARE_OF_UNCERTAIN * count]
    return unclear[nearest_to_centres(candidates.directions[unclear], count, rng)]


def uncertain_and_spread(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    return spread_out(candidates, count, entropies(candidates.probabilities).sum(axis=1))


def uncertain_rare(candidates: CountedCandidates, count: int, rng: np.random.Generator) -> Places:
    """Entropies with weights: the fewer examples of a label, the larger."""
    weights = 1 / np.sqrt(candidates.label_counts + 1)
    uncertainty = (entropies(candidates.probabilities) * weights).sum(axis=1)
    return np.argsort(-uncertainty, kind="stable")[:count]


def rare_labels(candidates: CountedCandidates, count: int, rng: np.random.Generator) -> Places:
    """Greedily raise Σ_k log(c_k + 1), c_k the examples of label k: labelled ones, and p_k of each choice."""
    counts = candidates.label_counts + 1
    chosen: list[int] = []
    for _ in range(count):
        gains = np.log1p(candidates.probabilities / counts).sum(axis=1)
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
        counts = counts + candidates.probabilities[chosen[-1]]
    return np.array(chosen)


COMPARED: dict[str, Callable[..., Places]] = {
    **STRATEGIES,
    "k-centre": farthest_first,
    "typical": typical,
    "typical of uncertain": typical_of_uncertain,
    "uncertain and spread": uncertain_and_spread,
    "uncertain, rare labels": uncertain_rare,
    "rare labels": rare_labels,
}


def row(name: str, curves: dict[str, Values]) -> str:
    own = curves[name]
    after = own[:, 1:].mean(axis=1)
    cells = [name, f"{after.mean():.1f}"]
    cells += [compare(after, [c[:, 1:].mean(axis=1) for c in (curves["random"],)], name != "random")]
    cells += [f"{own[:, -1].mean():.1f}", compare(own[:, -1], [curves["random"][:, -1]], name != "random")]
    known = name not in ("random", "uncertain")
    cells += [compare(after, [curves["uncertain"][:, 1:].mean(axis=1)] if known else [], known)]
    return "| " + " | ".join(cells) + " |"


def compare(values: Values, others: Sequence[Values], wanted: bool) -> str:
    """Mean difference and its 95 % interval."""
    if not wanted:
        return ""
    differences = values - others[0]
    spread = differences.std(ddof=1) / len(differences) ** 0.5
    half = student.ppf(0.975, len(differences) - 1) * spread
    mean = differences.mean()
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


if __name__ == "__main__":
    main()
