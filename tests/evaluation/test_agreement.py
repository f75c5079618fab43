from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from kmcl.errors import InputError
from kmcl.evaluation.agreement import label_agreement, label_cooccurrence


def symmetric(seed: int, num_labels: int = 12, decimals: int = 2) -> np.ndarray:
    matrix = np.random.default_rng(seed).random((num_labels, num_labels)).round(decimals)
    return (matrix + matrix.T) / 2


@pytest.mark.parametrize("decimals", [1, 8])
def test_the_correlation_is_scipys_over_pairs_of_different_labels(decimals: int) -> None:
    first, second = symmetric(0, decimals=decimals), symmetric(1, decimals=decimals)
    second += 0.5 * first
    found = label_agreement(first, second, np.random.default_rng(0), 99)
    pairs = np.triu_indices(12, k=1)
    assert found.correlation == pytest.approx(spearmanr(first[pairs], second[pairs]).statistic)
    assert found.num_pairs == 66


@pytest.mark.parametrize("num_labels", [3, 5])
def test_the_p_value_is_the_share_of_renamings(num_labels: int) -> None:
    first = symmetric(0, num_labels)
    second = symmetric(1, num_labels) + first
    pairs = np.triu_indices(num_labels, k=1)
    observed = spearmanr(first[pairs], second[pairs]).statistic
    all_renamings = [
        spearmanr(first[pairs], second[np.ix_(renaming, renaming)][pairs]).statistic
        for renaming in itertools.permutations(range(num_labels))
    ]
    exact = np.mean(np.array(all_renamings) >= observed - 1e-12)
    found = label_agreement(first, second, np.random.default_rng(0), 4000)
    assert found.p_value == pytest.approx(exact, abs=0.03)


def test_a_matrix_agrees_with_itself_and_its_opposite_does_not() -> None:
    matrix = symmetric(0, decimals=8)
    same = label_agreement(matrix, np.exp(matrix), np.random.default_rng(0), 199)
    assert same.correlation == pytest.approx(1)
    assert same.p_value == 1 / 200
    opposite = label_agreement(matrix, -matrix, np.random.default_rng(0), 199)
    assert opposite.correlation == pytest.approx(-1)
    assert opposite.p_value == 1


def test_the_diagonal_does_not_count() -> None:
    matrix = symmetric(0)
    changed = matrix + np.diag(np.arange(12.0) * 100)
    found = label_agreement(matrix, changed, np.random.default_rng(0), 9)
    assert found.correlation == pytest.approx(1)


def test_a_constant_matrix_is_undefined() -> None:
    found = label_agreement(np.ones((4, 4)), symmetric(0, 4), np.random.default_rng(0), 9)
    assert np.isnan(found.correlation)
    assert np.isnan(found.p_value)
    assert (found.num_pairs, found.num_permutations) == (6, 9)
    swapped = label_agreement(symmetric(0, 4), np.ones((4, 4)), np.random.default_rng(0), 9)
    assert np.isnan([swapped.correlation, swapped.p_value]).all()


def test_a_matrix_of_three_labels_is_the_smallest() -> None:
    found = label_agreement(symmetric(0, 3, 8), symmetric(0, 3, 8), np.random.default_rng(0))
    assert found.correlation == pytest.approx(1)
    assert (found.num_pairs, found.num_permutations) == (3, 999)
    one = label_agreement(symmetric(0, 3, 8), symmetric(0, 3, 8), np.random.default_rng(0), 1)
    assert one.p_value in (0.5, 1)
    assert one.to_json()["num_permutations"] == 1


def test_labels_that_nobody_has_do_not_occur_together() -> None:
    targets = np.array([[1, 0, -1, 0], [1, 0, -1, 0]], dtype=np.int8)
    found = label_cooccurrence(targets)
    np.testing.assert_array_equal(found, np.eye(4))
    alone = label_cooccurrence(np.array([[1, 1]], dtype=np.int8))
    assert alone[0, 1] == 1


def test_cooccurrence_is_the_jaccard_index_of_what_both_have_annotated() -> None:
    targets = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, -1], [-1, 1, 0]], dtype=np.int8)
    found = label_cooccurrence(targets)
    # Labels 0 and 1 are both annotated in the first four images: both present in two, either in four.
    assert found[0, 1] == pytest.approx(2 / 4)
    assert found[0, 2] == found[1, 2] == 0
    assert np.diag(found).tolist() == [1, 1, 1]
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 2)), r"cooccurrence must be L x L.*\(2, 2\)"),
        (symmetric(0), np.full((12, 12), np.nan), "similarity must be finite, got nan"),
        (symmetric(0), np.where(np.eye(12) == 1, np.nan, symmetric(0)), "similarity must be finite, got nan"),
        (symmetric(0), np.arange(144.0).reshape(12, 12), "similarity must be symmetric, differs by 121"),
        (symmetric(0), symmetric(0, 11), r"\(12, 12\) and \(11, 11\)"),
        (np.ones((3, 4)), symmetric(0), r"cooccurrence must be L x L.*\(3, 4\)"),
        (np.ones(9), symmetric(0), r"cooccurrence must be L x L.*\(9,\)"),
        (np.ones((3, 3, 3)), symmetric(0), r"cooccurrence must be L x L.*\(3, 3, 3\)"),
        (np.full((4, 4), np.inf), symmetric(0, 4), "cooccurrence must be finite, got inf"),
    ],
)
def test_unfit_matrices_are_refused(first, second, message: str) -> None:
    with pytest.raises(InputError, match=message):
        label_agreement(first, second, np.random.default_rng(0))


def test_no_permutation_is_refused() -> None:
    with pytest.raises(InputError, match="num_permutations must be at least 1, got 0"):
        label_agreement(symmetric(0), symmetric(1), np.random.default_rng(0), 0)
