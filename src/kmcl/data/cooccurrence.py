"""Which labels often occur together, from the targets of a split."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kmcl.data.label_correlations import PairNumbers

MAX_COOCCURRING = 5
MIN_IMAGES = 2
"""Minimum number of images with both labels: a single image is no evidence."""
MIN_SHARE = 0.1

Cooccurrence = tuple[tuple[tuple[int, float], ...], ...]
"""For each label its co-occurring labels, the most frequent first: (index of the label, share of images)."""


def find_cooccurring_labels(targets: npt.NDArray[np.int8], most: int = MAX_COOCCURRING) -> Cooccurrence:
    """For each label at most `most` others that are more frequent with it than overall.

        share(j | i) = images with i and j / images with i of which j is known

    Label j co-occurs with label i where this share exceeds the share of all (known) images that have j, is at
    least a tenth, and at least two images have both.

    targets: N x L, 1 present, 0 absent, -1 not annotated
    """
    numbers = PairNumbers.of([targets])
    together = numbers.num_both
    share = together / np.maximum(numbers.num_first, 1)
    overall = together.diagonal() / np.maximum(numbers.num_known.diagonal(), 1)
    cooccurs = (share > overall) & (share >= MIN_SHARE) & (together >= MIN_IMAGES)
    np.fill_diagonal(cooccurs, False)
    found = []
    for label, others in enumerate(cooccurs):
        order = np.argsort(-share[label], kind="stable")
        chosen = [int(other) for other in order if others[other]][:most]
        found.append(tuple((other, round(float(share[label, other]), 4)) for other in chosen))
    return tuple(found)
