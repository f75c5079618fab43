"""Which labels often occur together, from the targets of a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.target_pairs import blocks_of_rows

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


Numbers = npt.NDArray[np.float64]


class PairNumbers(NamedTuple):
    """Numbers of images for each two labels, L x L.

    num_known: that have both annotated
    num_both:  that carry both
    num_first: that carry the first and have the second annotated
    """

    num_known: Numbers
    num_both: Numbers
    num_first: Numbers

    @classmethod
    def of(cls, parts: Sequence[npt.NDArray[np.int8]]) -> Self:
        """Of the images of several splits, in blocks: memory does not grow with their number.

        Images carry few labels, so sparse matrices count what they carry; whole blocks are multiplied only
        where labels are unknown.
        """
        from scipy.sparse import csr_array

        num_labels = parts[0].shape[1]
        numbers = cls(*(np.zeros((num_labels, num_labels)) for _ in cls._fields))
        for part in parts:
            for _, block in blocks_of_rows(part):
                carries = csr_array(block == 1, dtype=np.float64)
                numbers.num_both[...] += (carries.T @ carries).toarray()
                unknown = block == UNKNOWN
                if not unknown.any():
                    numbers.num_known[...] += len(block)
                    numbers.num_first[...] += carries.sum(axis=0)[:, None]
                    continue
                known = (~unknown).astype(np.float32)  # counts of a block are exact
                numbers.num_known[...] += known.T @ known
                numbers.num_first[...] += carries.T @ known
        return numbers

    def correlations(self) -> Numbers:
        """L x L correlation (phi) of each pair of labels over the images where both are annotated.

        phi = (n n11 - n1. n.1) / sqrt(n1. (n - n1.) n.1 (n - n.1)), with n the images that have both
        annotated, n11 those that carry both, n1. and n.1 those that carry the one and the other. 0 where a
        label never varies.
        """
        first_LL, second_LL = self.num_first, self.num_first.T
        spread_LL = first_LL * (self.num_known - first_LL) * second_LL * (self.num_known - second_LL)
        covariance_LL = self.num_known * self.num_both - first_LL * second_LL
        phi: Numbers = covariance_LL / np.sqrt(np.where(spread_LL > 0, spread_LL, np.inf))
        return phi


def correlations(targets: npt.NDArray[np.int8]) -> Numbers:
    """The correlation of each pair of labels; see `PairNumbers.correlations`."""
    return PairNumbers.of([targets]).correlations()
