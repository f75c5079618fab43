"""The kernel vote against its formula written out, its limits, and what it is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kmcl.evaluation.predictions import Predictions
from kmcl.kernels import KernelMixture, pairwise_log_similarity
from kmcl.options.posthoc import KernelVoteOptions
from kmcl.posthoc.kernel_vote import SMOOTHING, KernelVote
from kmcl.training.calibration import auc_of_logits
from random_inputs import make_targets


def fitted_vote(num_images=7, feature_dim=5, num_labels=3, unknown=0.2):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(num_images, feature_dim, generator=generator)
    targets = make_targets(num_images, num_labels, unknown=unknown, seed=3)
    vote = KernelVote(None, num_labels)
    vote.fit_images(features, targets)
    return vote, features, targets


def test_the_correction_is_the_formula_written_out():
    vote, features, targets = fitted_vote()
    vote.set_scale(variance=0.3, weight=0.7)
    asked = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    centre = features.double().mean(dim=0)

    def direction(feature):
        moved = feature.double() - centre
        return moved / moved.norm()

    def log_odds(share):
        return math.log(share + SMOOTHING) - math.log(1 - share + SMOOTHING)

    expected = torch.zeros(4, 3)
    for n in range(4):
        for k in range(3):
            likeness = [
                math.exp(-float((direction(asked[n]) - direction(f)).square().sum()) / (8 * 0.3))
                for f in features
            ]
            known = [m for m in range(7) if targets[m, k] != -1]
            present = [m for m in known if targets[m, k] == 1]
            share = sum(likeness[m] for m in present) / sum(likeness[m] for m in known)
            expected[n, k] = 0.7 * (log_odds(share) - log_odds(len(present) / len(known)))
    torch.testing.assert_close(vote(asked), expected, atol=2e-3, rtol=2e-3)  # directions are float16


def test_labels_known_on_distant_images_only_have_the_share_of_the_formula():
    """Similarities of exp(-40) beside 1: no bound on the denominator may be reached."""
    near, far = torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.05], [-1.0, -0.4], [-1.0, 0.2]])
    # All positive; positive on the two nearer of the three; known nowhere.
    targets = torch.tensor([[-1, -1, -1], [1, 0, -1], [1, 1, -1], [1, 1, -1]])
    vote = KernelVote(None, 3)
    vote.fit_images(torch.cat([near, far]), targets)
    vote.set_scale(variance=0.0125, weight=1.0)
    cosines = vote.directions_of(near).double()[0] @ vote.directions.double().T
    similarities = [math.exp((float(cosine) - 1) / (4 * 0.0125)) for cosine in cosines]
    assert sum(similarities[1:]) < 1e-15
    expected = sum(similarities[2:]) / sum(similarities[1:])
    torch.testing.assert_close(vote.shares(near)[0], torch.tensor([1.0, expected, 0.0]), atol=1e-4, rtol=1e-4)
    assert vote(near)[0, 0] == 0
    assert vote(near)[0, 2] == 0


def test_what_no_float_can_hold_corrects_nothing():
    vote = KernelVote(None, 1)
    vote.fit_images(torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, 0.0]]), torch.tensor([[-1], [1], [0]]))
    vote.set_scale(variance=1e-3, weight=1.0)
    assert vote(torch.tensor([[1.0, 0.0]])).tolist() == [[0.0]]


def test_similarity_is_the_bhattacharyya_coefficient_of_the_kernels():
    vote, features, _ = fitted_vote(num_images=4)
    vote.set_scale(variance=0.3, weight=1.0)
    directions = torch.nn.functional.normalize(features - features.mean(dim=0), dim=1)
    kernels = KernelMixture(
        torch.zeros(4, 1), directions.unsqueeze(1), torch.full((4, 1, 5), 0.3), 5, kernel="anisotropic"
    )
    images = torch.arange(4)
    expected = pairwise_log_similarity(kernels, kernels, images, torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(vote.log_similarities(features), expected, atol=2e-3, rtol=0)


def test_a_new_part_corrects_nothing():
    vote, features, _ = fitted_vote()
    assert (vote(features) == 0).all()


def test_labels_without_images_and_sharp_kernels_stay_finite():
    vote, features, targets = fitted_vote()
    targets[:, 1] = -1
    targets[:, 2] = 0
    vote.fit_images(features, targets)
    vote.set_scale(variance=1e-4, weight=1.0)
    correction = vote(torch.cat([features, 1e4 * features, torch.zeros(1, 5)]))
    assert torch.isfinite(correction).all()
    assert (correction[:, 1].abs() < 1e-6).all()


@pytest.mark.parametrize(("variance", "weight"), [(0.0, 1.0), (1.0, -0.1), (math.nan, 1.0)])
def test_impossible_scales_are_refused(variance, weight):
    with pytest.raises(ValueError, match="variance must be above 0"):
        fitted_vote()[0].set_scale(variance, weight)


def make_predictions(features, targets, scores):
    names = tuple(f"{row}.jpg" for row in range(len(features)))
    return Predictions(
        ("a", "b"),
        names,
        scores.astype(np.float32),
        targets.astype(np.int8),
        features=features.astype(np.float32),
    )


def clusters(num_images, seed):
    """Two labels, each with its own direction; scores that know nothing."""
    rng = np.random.default_rng(seed)
    targets = (rng.random((num_images, 2)) < 0.4).astype(np.int8)
    features = rng.normal(size=(num_images, 6)) * 0.5
    features[:, 0] += 3 * targets[:, 0]
    features[:, 1] += 3 * targets[:, 1]
    return features, targets, rng.random((num_images, 2))


def fitted_on(train, val, max_images=1000, seed=0):
    """A vote fitted on the one and tuned on the other, and val's corrected logits."""
    vote = KernelVote(None, 2)
    options = KernelVoteOptions(max_images=max_images)
    vote.fit(torch.from_numpy(train.features), torch.from_numpy(train.targets), options, seed)
    logits = torch.logit(torch.from_numpy(val.scores).double(), eps=1e-12)
    return vote, vote.tune(torch.from_numpy(val.features), logits, auc_of_logits(val))


def test_a_vote_that_helps_on_val_counts_and_one_that_does_not_is_silent():
    train, val = make_predictions(*clusters(200, 0)), make_predictions(*clusters(100, 1))
    vote, corrected = fitted_on(train, val)
    assert vote.sizes == {"num_images": 200, "feature_dim": 6}
    assert float(vote.weight) > 0
    score = auc_of_logits(val)
    assert score(corrected) > score(torch.logit(torch.from_numpy(val.scores).double()))
    features, targets, _ = clusters(100, 1)
    perfect = make_predictions(features, targets, 0.25 + 0.5 * targets)
    silent, unchanged = fitted_on(train, perfect)
    assert float(silent.weight) == 0
    assert silent.is_worth_keeping
    torch.testing.assert_close(unchanged.sigmoid().float(), torch.from_numpy(perfect.scores))
    assert (silent(torch.from_numpy(perfect.features)) == 0).all()
    # It still tells which labels go together.
    assert np.corrcoef(silent.shares(torch.from_numpy(perfect.features))[:, 0], targets[:, 0])[0, 1] > 0.5


def test_a_large_training_set_is_drawn_from_by_the_seed():
    train, val = make_predictions(*clusters(200, 0)), make_predictions(*clusters(100, 1))
    first, again, other = (fitted_on(train, val, max_images=50, seed=seed)[0] for seed in (0, 0, 1))
    assert first.num_images == 50
    assert torch.equal(first.directions, again.directions)
    assert not torch.equal(first.directions, other.directions)
