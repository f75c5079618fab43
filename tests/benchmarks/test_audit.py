"""The comparison with Cleanlab plants what it says, and counts what is found."""

from __future__ import annotations

import numpy as np

from audit import Suspected, found_at_k, judged, plant


def test_planted_errors() -> None:
    targets = (np.random.default_rng(0).random((400, 5)) < 0.3).astype(np.int8)
    flipped, planted = plant(targets, "flips", 0.1, seed=1)
    assert planted.sum() == 40
    assert planted.sum(axis=1).max() == 1
    np.testing.assert_array_equal(flipped != targets, planted)
    without, planted = plant(targets, "omissions", 0.1, seed=1)
    assert planted.sum() == round(0.1 * targets.sum())
    assert (targets[planted] == 1).all()
    assert (without[planted] == 0).all()
    np.testing.assert_array_equal(plant(targets, "flips", 0.1, seed=1)[0], flipped)


def test_what_is_found_among_the_first_k() -> None:
    planted = np.array([[True, False], [False, True], [False, False]])
    suspicion = np.array([[0.9, 0.8], [0.1, 0.7], [0.2, 0.3]])
    assert found_at_k(suspicion, planted) == 50
    assert np.isnan(found_at_k(suspicion, np.zeros_like(planted)))
    targets = np.array([[1, 1], [0, 0], [0, 0]], dtype=np.int8)
    found = judged(Suspected(suspicion, suspicion.max(axis=1)), targets, planted)
    assert found == {"labels": 50, "given labels": 100, "absent labels": 100, "images": 100}
