"""Rank correlation of two label-by-label matrices: do labels with similar kernels occur together?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.ranking import Values


@dataclass(frozen=True)
class Agreement:
    """Spearman's correlation over pairs of different labels, with a Mantel test.

    p_value: share of random permutations of the labels that correlate at least as well, the observed order
    included. Pairs of one label are not independent, so the usual p-value of Spearman would be too small.
    """

    correlation: float
    p_value: float
    num_pairs: int
    num_permutations: int

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def label_agreement(
    cooccurrence: Values, similarity: Values, generator: np.random.Generator, num_permutations: int = 999
) -> Agreement:
    """Compare two symmetric L x L matrices without their diagonals; higher means closer in both.

    NaN correlation and p-value when one of the matrices is the same for all pairs.
    """
    for name, matrix in (("cooccurrence", cooccurrence), ("similarity", similarity)):
        _check_symmetric(name, matrix)
    if cooccurrence.shape != similarity.shape:
        raise InputError(f"the matrices differ in shape: {cooccurrence.shape} and {similarity.shape}")
    if num_permutations < 1:
        raise InputError(f"num_permutations must be at least 1, got {num_permutations}")
    num_labels = len(cooccurrence)
    rows, columns = np.triu_indices(num_labels, k=1)
    first, second = (_standard_ranks(matrix[rows, columns]) for matrix in (cooccurrence, similarity))
    if not first.any() or not second.any():
        return Agreement(float("nan"), float("nan"), len(rows), num_permutations)
    second_matrix = np.zeros((num_labels, num_labels))
    second_matrix[rows, columns] = second_matrix[columns, rows] = second
    observed = float(first @ second)
    at_least = 0
    for _ in range(num_permutations):
        renamed = generator.permutation(num_labels)
        # The margin counts permutations with the same correlation up to rounding of another summation order.
        at_least += int(first @ second_matrix[renamed[rows], renamed[columns]] >= observed - 1e-12)
    return Agreement(observed, (1 + at_least) / (1 + num_permutations), len(rows), num_permutations)


def label_cooccurrence(targets: npt.NDArray[np.int8]) -> Values:
    """L x L Jaccard index: images with both labels over images with either, where both are annotated.

    targets: N x L of 1, 0 and -1 (unknown). 0 for two labels that never occur; the diagonal is 1.
    """
    present, known = (mask.astype(np.float64) for mask in (targets == 1, targets != UNKNOWN))
    both = present.T @ present
    of_first = present.T @ known
    either = of_first + of_first.T - both
    index: Values = both / np.maximum(either, 1)
    np.fill_diagonal(index, 1.0)
    return index


def _check_symmetric(name: str, matrix: Values) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        raise InputError(f"{name} must be L x L with at least 3 labels, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise InputError(f"{name} must be finite, got {matrix[~np.isfinite(matrix)][0]}")
    if not np.allclose(matrix, matrix.T):
        raise InputError(f"{name} must be symmetric, differs by {np.abs(matrix - matrix.T).max():.3g}")


def _standard_ranks(values: Values) -> Values:
    """Ranks with ties averaged, centred and of norm 1; all 0 when all values are equal.

    The product of two such vectors is Spearman's correlation.
    """
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    centred = ranks - ranks.mean()
    length = np.linalg.norm(centred)
    return np.asarray(centred / length if length > 0 else np.zeros_like(centred))
