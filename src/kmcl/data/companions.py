"""Which labels usually come along with a label, from the targets of a split."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN

MOST_COMPANIONS = 5
LEAST_TOGETHER = 2
"""One image with two labels is no habit."""
LEAST_SHARE = 0.1

Companions = tuple[tuple[tuple[int, float], ...], ...]
"""For each label the labels that come along, the most frequent first: (its index, share of images)."""


def find_companions(targets: npt.NDArray[np.int8], most: int = MOST_COMPANIONS) -> Companions:
    """For each label at most `most` others that are there more often with it than anywhere.

        share(j | i) = images with i and j / images with i of which j is known

    A label comes along where its share exceeds the share of all (known) images that have it and is at least
    a tenth, and at least two images have both.

    targets: N x L, 1 present, 0 absent, -1 not annotated
    """
    positive = (targets == 1).astype(np.float32)
    known = (targets != UNKNOWN).astype(np.float32)
    together = positive.T @ positive
    share = together / np.maximum(positive.T @ known, 1)
    everywhere = positive.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    comes_along = (share > everywhere) & (share >= LEAST_SHARE) & (together >= LEAST_TOGETHER)
    np.fill_diagonal(comes_along, False)
    found = []
    for label, others in enumerate(comes_along):
        order = np.argsort(-share[label], kind="stable")
        chosen = [int(other) for other in order if others[other]][:most]
        found.append(tuple((other, round(float(share[label, other]), 4)) for other in chosen))
    return tuple(found)
