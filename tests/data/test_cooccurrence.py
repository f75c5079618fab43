"""Co-occurring labels: shares against loops, and which are left out."""

from __future__ import annotations

import numpy as np

from kmcl.data.cooccurrence import find_cooccurring_labels


def test_shares_are_those_of_a_loop_and_sorted():
    rng = np.random.default_rng(0)
    targets = rng.choice([-1, 0, 1], size=(200, 7), p=[0.1, 0.5, 0.4]).astype(np.int8)
    targets[targets[:, 0] == 1, 3] = 1  # 3 always occurs together with 0
    found = find_cooccurring_labels(targets, most=3)
    for label, row in enumerate(found):
        expected = []
        for other in range(7):
            carriers = [line for line in targets if line[label] == 1 and line[other] != -1]
            together = sum(line[other] == 1 for line in carriers)
            overall = (targets[:, other] == 1).sum() / (targets[:, other] != -1).sum()
            if other != label and together >= 2 and together / len(carriers) > overall:
                expected.append((-together / len(carriers), other))
        assert [index for index, _ in row] == [index for _, index in sorted(expected)][:3]
        shares = [share for _, share in row]
        np.testing.assert_allclose(shares, [-share for share, _ in sorted(expected)][:3], atol=5e-5)
    assert found[0][0] == (3, 1.0)


def test_labels_of_all_images_and_pairs_of_one_image_do_not_count():
    targets = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=np.int8)
    # 0 is in all images, so its share with 1 is no higher; 1 and 2 share one image only.
    assert find_cooccurring_labels(targets) == ((), (), ())


def test_a_label_without_positives():
    assert find_cooccurring_labels(np.array([[0, 1], [-1, 1], [0, 1]], dtype=np.int8)) == ((), ())


def test_rare_pairs_do_not_count():
    targets = np.zeros((100, 2), dtype=np.int8)
    targets[:40, 0] = 1
    targets[:3, 1] = 1  # in 3 of 40: more frequent than overall, but below a tenth
    assert find_cooccurring_labels(targets) == ((), ((0, 1.0),))
