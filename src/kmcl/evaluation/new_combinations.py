"""How labels fare in combinations that training did not have.

A label that is present in an image with others is in one of three kinds of combination:

    seen       a training image has all labels of the image
    new whole  no training image has all of them, but each pair with the label occurs in training
    new pair   no training image has the label together with one of the others

A label that no training image has is left out: it is new itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import Weights, weight_blocks
from kmcl.evaluation.contrasts import Contrast, Strata, contrast
from kmcl.evaluation.predictions import Mask, Predictions, Scores
from kmcl.evaluation.ranking import Values

RESAMPLES = 500


class Combinations(NamedTuple):
    """N x L each: the evaluated positives in each kind of combination."""

    seen: Mask
    new_whole: Mask
    new_pair: Mask


class NewPair(NamedTuple):
    """Two labels that no training image has together.

    num_images:           of the evaluated images, those that have both.
    num_first, num_second: in how many of them the first label was decided, and the second.
    """

    first: int
    second: int
    num_images: int
    num_first: int
    num_second: int


class CombinationContrast(NamedTuple):
    """Positives in new combinations minus positives of the same labels in seen ones.

    recall:  share of them that was decided.
    ranking: mean share of the images without the label that score lower.
    """

    recall: Contrast
    ranking: Contrast


def find_combinations(predictions: Predictions, train: npt.NDArray[np.int8]) -> Combinations:
    """The kind of combination of each evaluated positive of an image with several labels.

    train: M x L targets of the training images; unknown labels count as absent.
    """
    if train.ndim != 2 or train.shape[1] != predictions.num_labels:
        raise InputError(f"train must have {predictions.num_labels} labels, got shape {train.shape}")
    present = (predictions.targets == 1).astype(np.float32)
    in_train = (train == 1).astype(np.float32)
    together = in_train.T @ in_train
    counted = predictions.positive & (present.sum(axis=1, keepdims=True) > 1) & (np.diag(together) > 0)
    has_new_pair = counted & (present @ (together == 0) > 0)
    is_seen = _seen_whole(present, in_train)[:, None]
    return Combinations(
        counted & is_seen, counted & ~is_seen & ~has_new_pair, counted & ~is_seen & has_new_pair
    )


def list_new_pairs(predictions: Predictions, decided: Mask, train: npt.NDArray[np.int8]) -> list[NewPair]:
    """The pairs of labels that training has, but never together, the most frequent first."""
    positive = predictions.positive
    in_train = (train == 1).astype(np.float32)
    together = in_train.T @ in_train
    occurs = np.diag(together) > 0
    pairs = []
    for first, second in np.argwhere(np.triu((together == 0) & occurs & occurs[:, None], k=1)).tolist():
        both = positive[:, first] & positive[:, second]
        if both.any():
            found = decided[both]
            numbers = int(both.sum()), int(found[:, first].sum()), int(found[:, second].sum())
            pairs.append(NewPair(first, second, *numbers))
    return sorted(pairs, key=lambda pair: -pair.num_images)


def measure_combinations(
    predictions: Predictions,
    decided: Mask,
    new: Mask,
    seen: Mask,
    generator: np.random.Generator,
    level: float,
    num_resamples: int = RESAMPLES,
) -> CombinationContrast:
    """Contrast positives in new combinations with those in seen ones, label by label.

    Labels of new combinations are other labels than most, often rare ones. So each positive in a new
    combination is compared with the mean over the seen positives of its own label:

        first = mean over new positives of v,    second = mean over new positives of m(label)

    v is 0 or 1 (decided) or the rank, m its mean over the label's seen positives. Labels without a positive
    in either are left out.
    """
    both = new.any(axis=0) & seen.any(axis=0)
    new, seen = new & both, seen & both
    units = predictions.units
    kinds = (decided.astype(np.float64), _ranks(predictions))
    drawn = [
        [_stratified(values, new, seen, weights) for values in kinds]
        for weights in weight_blocks(units, num_resamples, generator)
    ]
    resamples = np.concatenate(drawn, axis=2)
    once = np.ones((len(predictions), 1), dtype=np.int32)
    images = int(new.sum()), int(seen.sum())
    num_units = tuple(len(np.unique(units.of_image[mask.any(axis=1)])) for mask in (new, seen))
    contrasts = [
        contrast(
            Strata(_stratified(values, new, seen, once)[:, 0], resamples[kind], images, num_units), level
        )
        for kind, values in enumerate(kinds)
    ]
    return CombinationContrast(*contrasts)


def _seen_whole(present: Scores, in_train: Scores) -> Mask:
    """N: whether some training image has all labels of the image."""
    sets, index = np.unique(present, axis=0, return_inverse=True)
    known = np.unique(in_train, axis=0)
    contained = (sets @ known.T >= sets.sum(axis=1, keepdims=True)).any(axis=1)
    return np.asarray(contained[index.reshape(-1)])


def _ranks(predictions: Predictions) -> Values:
    """N x L: the share of the label's negatives that score lower, equal scores counting one half."""
    shares = np.zeros(predictions.scores.shape)
    for label in range(predictions.num_labels):
        negatives = np.sort(predictions.scores[predictions.negative[:, label], label])
        scores = predictions.scores[:, label]
        below = np.searchsorted(negatives, scores, "left") + np.searchsorted(negatives, scores, "right")
        shares[:, label] = below / 2 / max(len(negatives), 1)
    return shares


def _stratified(values: Values, new: Mask, seen: Mask, weights: Weights) -> Values:
    """2 x R: mean over the new positives, and over the means of the seen ones of the same labels."""
    drawn = weights.T.astype(np.float64)
    num_new, num_seen = drawn @ new, drawn @ seen
    num_new = np.where(num_seen > 0, num_new, 0.0)
    of_new = drawn @ (new * values) / np.maximum(drawn @ new, 1)
    of_seen = drawn @ (seen * values) / np.maximum(num_seen, 1)
    total = num_new.sum(axis=1)
    sums = np.stack([(num_new * means).sum(axis=1) for means in (of_new, of_seen)])
    return np.where(total > 0, sums / np.maximum(total, 1), np.nan)
