"""Labels that come along: shares against loops, and which are left out."""

from __future__ import annotations

import numpy as np

from kmcl.data.companions import find_companions


def test_shares_are_those_of_a_loop_and_sorted():
    rng = np.random.default_rng(0)
    targets = rng.choice([-1, 0, 1], size=(200, 7), p=[0.1, 0.5, 0.4]).astype(np.int8)
    targets[targets[:, 0] == 1, 3] = 1  # 3 comes along with 0
    found = find_companions(targets, most=3)
    for label, row in enumerate(found):
        expected = []
        for other in range(7):
            carriers = [line for line in targets if line[label] == 1 and line[other] != -1]
            together = sum(line[other] == 1 for line in carriers)
            everywhere = (targets[:, other] == 1).sum() / (targets[:, other] != -1).sum()
            if other != label and together >= 2 and together / len(carriers) > everywhere:
                expected.append((-together / len(carriers), other))
        assert [index for index, _ in row] == [index for _, index in sorted(expected)][:3]
        shares = [share for _, share in row]
        np.testing.assert_allclose(shares, [-share for share, _ in sorted(expected)][:3], atol=5e-5)
    assert found[0][0] == (3, 1.0)


def test_a_label_that_is_everywhere_or_seen_once_together_does_not_come_along():
    targets = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=np.int8)
    # 0 is in all images, so its share with 1 is no higher; 1 and 2 share one image only.
    assert find_companions(targets) == ((), (), ())


def test_a_label_that_nothing_carries():
    assert find_companions(np.array([[0, 1], [-1, 1], [0, 1]], dtype=np.int8)) == ((), ())


def test_what_rarely_comes_along_does_not_count():
    targets = np.zeros((100, 2), dtype=np.int8)
    targets[:40, 0] = 1
    targets[:3, 1] = 1  # in 3 of 40: more often than elsewhere, and yet rare
    assert find_companions(targets) == ((), ((0, 1.0),))
