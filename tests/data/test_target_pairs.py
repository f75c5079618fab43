"""Targets as pairs: what is computed from them is what the whole matrix gives, also over several blocks."""

from __future__ import annotations

import numpy as np
import pytest

from kmcl.data import target_pairs
from kmcl.data.cooccurrence import PairNumbers
from kmcl.data.splitting import stratify
from kmcl.data.target_pairs import blocks_of_rows, present_pairs


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(target_pairs, "BLOCK_ROWS", 7)


def make_targets(num_rows: int, num_labels: int, seed: int, unknown: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    targets = (rng.random((num_rows, num_labels)) < rng.random(num_labels) / 3).astype(np.int8)
    targets[rng.random(targets.shape) < unknown] = -1
    return targets


@pytest.mark.parametrize("num_rows", [0, 1, 7, 30])
def test_pairs_and_blocks_are_those_of_the_matrix(num_rows: int):
    targets = make_targets(num_rows, 5, seed=num_rows, unknown=0.2)
    rows, labels = np.nonzero(targets == 1)
    found = present_pairs(targets)
    assert found.rows.tolist() == rows.tolist()
    assert found.labels.tolist() == labels.tolist()
    blocks = list(blocks_of_rows(targets))
    assert [start for start, _ in blocks] == list(range(0, num_rows, 7))
    assert np.array_equal(np.concatenate([targets[:0], *(block for _, block in blocks)]), targets)


@pytest.mark.parametrize("unknown", [0.0, 0.3])
def test_numbers_of_label_pairs(unknown: float):
    parts = [make_targets(20, 4, 1, unknown), make_targets(9, 4, 2, unknown)]
    whole = np.concatenate(parts)
    numbers = PairNumbers.of(parts)
    for first in range(4):
        for second in range(4):
            one, two = whole[:, first], whole[:, second]
            both_known = (one != -1) & (two != -1)
            assert numbers.num_known[first, second] == both_known.sum()
            assert numbers.num_both[first, second] == ((one == 1) & (two == 1)).sum()
            assert numbers.num_first[first, second] == ((one == 1) & both_known).sum()
            if both_known.sum() and one[both_known].std() and two[both_known].std():
                expected = np.corrcoef(one[both_known], two[both_known])[0, 1]
                assert numbers.correlations()[first, second] == pytest.approx(expected)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_stratify_is_the_published_algorithm_on_the_whole_matrix(seed: int, grouped: bool):
    """Against plain loops over the matrix, with the same random numbers."""
    targets = make_targets(60, 6, seed, unknown=0.1)
    groups = np.random.default_rng(seed).integers(0, 25, 60).astype(str) if grouped else None
    fractions = (0.6, 0.3, 0.1)
    assert stratify(targets, fractions, seed, groups).tolist() == by_loops(targets, fractions, seed, groups)


def by_loops(targets, fractions, seed, groups) -> list[int]:
    rng = np.random.default_rng(seed)
    units = np.arange(len(targets)) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = units.max() + 1
    carried = np.array([(targets[units == unit] == 1).sum(axis=0) for unit in range(count)])
    sizes = np.bincount(units)
    ties, order = rng.random((count, len(fractions))), rng.permutation(count)
    lacking = np.outer(fractions, carried.sum(axis=0))
    lacking_rows = np.array(fractions) * len(targets)
    part_of = dict.fromkeys(range(count), -1)

    def assign(unit: int, keys: list[tuple[float, ...]]) -> None:
        part = max(range(len(fractions)), key=lambda part: keys[part])
        part_of[unit] = part
        lacking[part] -= carried[unit]
        lacking_rows[part] -= sizes[unit]

    while any(part_of[unit] < 0 and carried[unit].any() for unit in range(count)):
        left = carried[[unit for unit in range(count) if part_of[unit] < 0]].sum(axis=0)
        label = min((number, label) for label, number in enumerate(left) if number)[1]
        members = [unit for unit in order if part_of[unit] < 0 and carried[unit, label]]
        for unit in sorted(members, key=lambda unit: -carried[unit, label]):
            assign(unit, [(lacking[p, label], lacking_rows[p], ties[unit, p]) for p in range(len(fractions))])
    for unit in sorted((unit for unit in order if part_of[unit] < 0), key=lambda unit: -sizes[unit]):
        assign(unit, [(lacking_rows[p], ties[unit, p]) for p in range(len(fractions))])
    return [part_of[unit] for unit in units]
