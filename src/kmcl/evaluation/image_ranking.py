"""How well one image ranks its labels: ranking loss, coverage, label ranking average precision.

Each is a mean over the images where it is defined. scikit-learn counts an image where it is undefined (no
label present, or none absent) as perfect; here such images are left out and the number of the others is
returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values

# Positive pairs compared with all labels at once: 2^22 comparisons keep the temporaries near 10 MB.
_COMPARISONS_AT_ONCE = 2**22


class ImageRanking(NamedTuple):
    """Ranking quality averaged over images.

    ranking_loss:                    share of (present, absent) label pairs of an image in the wrong order,
                                     equal scores counting as wrong; lower is better.
    coverage:                        how many labels must be taken from the top of an image's ranking to
    include all present ones, at best the number present; lower is better. label_ranking_average_precision:
    for each present label, the share of present ones among the labels
                                     that score at least as high; higher is better.
    num_images_with_both:            images with a present and an absent label, over which the ranking loss is
    averaged. num_images_with_positives:       images with a present label, over which the other two are
    averaged.
    """

    ranking_loss: float
    coverage: float
    label_ranking_average_precision: float
    num_images_with_both: int
    num_images_with_positives: int


class _Places(NamedTuple):
    """For each positive pair: how many labels of its image score at least as high."""

    images: npt.NDArray[np.int64]
    positives_above: Values
    negatives_above: Values


def image_ranking(predictions: Predictions) -> ImageRanking:
    """Compute the three over all evaluated pairs; a metric that is defined for no image is NaN."""
    places = _places_of_positives(predictions)
    num_images = len(predictions)
    num_positives = predictions.positive.sum(axis=1)
    num_negatives = predictions.negative.sum(axis=1)
    with_positives = num_positives > 0
    with_both = with_positives & (num_negatives > 0)

    wrong_pairs = np.bincount(places.images, weights=places.negatives_above, minlength=num_images)
    ranks = places.positives_above + places.negatives_above
    precision_sums = np.bincount(places.images, weights=places.positives_above / ranks, minlength=num_images)
    coverage = np.zeros(num_images)
    np.maximum.at(coverage, places.images, ranks)

    pairs = num_positives[with_both] * num_negatives[with_both]
    return ImageRanking(
        ranking_loss=_mean(wrong_pairs[with_both] / pairs),
        coverage=_mean(coverage[with_positives]),
        label_ranking_average_precision=_mean(precision_sums[with_positives] / num_positives[with_positives]),
        num_images_with_both=int(with_both.sum()),
        num_images_with_positives=int(with_positives.sum()),
    )


def _places_of_positives(predictions: Predictions) -> _Places:
    """Compare each positive pair with its image's labels: P x L, P far below N x L on sparse targets."""
    positive, negative = predictions.positive, predictions.negative
    images, labels = np.nonzero(positive)
    positives_above = np.empty(len(images))
    negatives_above = np.empty(len(images))
    step = max(1, _COMPARISONS_AT_ONCE // predictions.num_labels)
    for start in range(0, len(images), step):
        rows, columns = images[start : start + step], labels[start : start + step]
        above = predictions.scores[rows] >= predictions.scores[rows, columns, None]
        positives_above[start : start + step] = (above & positive[rows]).sum(axis=1)
        negatives_above[start : start + step] = (above & negative[rows]).sum(axis=1)
    return _Places(images, positives_above, negatives_above)


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else float("nan")
