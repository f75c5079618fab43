"""The Gaussian process against its formula written out, its limits, and what it is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.options import read_parts
from kmcl.options.posthoc import FrozenGPOptions
from kmcl.posthoc.frozen_gp import DEFAULT_SMOOTHNESS, SHRINKAGE, SMOOTHNESS, WEIGHTS, FrozenFeatureGP
from kmcl.training.calibration import auc_of_logits
from random_inputs import make_targets

NUM_STAGES = 2


def small_encoder(seed=0):
    torch.manual_seed(seed)
    return build_encoder("test_resnet", image_size=32, frozen_stages=NUM_STAGES, taps=True).eval()


def filled(num_images=12, num_labels=3, unknown=0.2):
    process = FrozenFeatureGP(small_encoder(), num_labels)
    statistics = torch.randn(num_images, sum(process.widths), generator=torch.Generator().manual_seed(1))
    targets = make_targets(num_images, num_labels, unknown=unknown, seed=3)
    process.fit_images(statistics, targets)
    process.set_weight(0.7)
    return process, statistics, targets


def test_it_observes_the_frozen_stages_and_the_last_map_before_training():
    encoder = small_encoder()
    process = FrozenFeatureGP(encoder, num_labels=2)
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        before = encoder(images)
        expected = [*before.taps.statistics, before.spatial.mean(1), before.spatial.std(1, correction=0)]
        for name, parameter in encoder.backbone.named_parameters():
            if name.startswith("layer4"):  # as training does
                parameter.add_(0.1)
        after = encoder(images)
        assert not torch.allclose(after.spatial, before.spatial)
        seen = process.train().statistics(after.taps)
    torch.testing.assert_close(seen, torch.cat(expected, dim=1), rtol=1e-4, atol=1e-5)
    assert seen.shape[1] == sum(process.widths)
    assert not any(parameter.requires_grad for parameter in process.parameters())


def test_without_the_last_map_it_reads_the_frozen_stages_alone_and_copies_nothing():
    encoder = small_encoder()
    process = FrozenFeatureGP(encoder, 2, **FrozenGPOptions(last_map=False).arguments)
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        taps = encoder(images).taps
        seen = process.statistics(taps)
    torch.testing.assert_close(seen, torch.cat(taps.statistics, dim=1), rtol=0, atol=0)
    assert process.widths == encoder.statistic_widths
    assert list(process.parameters()) == []
    with_last_map = FrozenFeatureGP(encoder, 2, **FrozenGPOptions().arguments)
    assert with_last_map.widths == (*process.widths, 2 * encoder.spatial_dim)
    again = FrozenFeatureGP(encoder, 2, **process.sizes)
    assert again.state_dict().keys() == process.state_dict().keys()


@pytest.mark.parametrize("last_map", [False, True])
def test_it_may_read_fewer_of_the_frozen_stages(last_map):
    encoder = small_encoder()
    options = FrozenGPOptions(last_map=last_map, stages=1)
    process = FrozenFeatureGP(encoder, 2, num_images=5, **options.arguments)
    with torch.no_grad():
        taps = encoder(torch.randn(3, 3, 32, 32)).taps
        seen = process.statistics(taps)
    width = encoder.statistic_widths[-1]
    torch.testing.assert_close(seen[:, :width], taps.statistics[-1], rtol=0, atol=0)
    assert process.widths == (width, *([2 * encoder.spatial_dim] if last_map else []))
    assert seen.shape[1] == len(process.centre) == sum(process.widths)
    again = FrozenFeatureGP(encoder, 2, **process.sizes)
    assert {name: tensor.shape for name, tensor in again.state_dict().items()} == {
        name: tensor.shape for name, tensor in process.state_dict().items()
    }


@pytest.mark.parametrize(("last_map", "stages"), [(False, 0), (False, 2), (True, 0)])
def test_it_may_read_where_something_is(last_map, stages):
    encoder = small_encoder()
    process = FrozenFeatureGP(
        encoder, 2, num_images=5, **FrozenGPOptions(last_map=last_map, stages=stages, grid=2).arguments
    )
    with torch.no_grad():
        taps = encoder(torch.randn(3, 3, 32, 32)).taps
        seen = process.statistics(taps)
    of_stages = sum(encoder.statistic_widths[len(encoder.statistic_widths) - stages :])
    cells = 4 * taps.maps.shape[1]
    expected = torch.nn.functional.adaptive_avg_pool2d(taps.maps, 2).flatten(1)
    torch.testing.assert_close(seen[:, of_stages : of_stages + cells], expected)
    assert seen.shape[1] == len(process.centre) == sum(process.widths)
    assert seen.shape[1] == of_stages + cells + (2 * encoder.spatial_dim if last_map else 0)
    again = FrozenFeatureGP(encoder, 2, **process.sizes)
    assert again.widths == process.widths


def test_a_process_that_reads_nothing_is_refused():
    with pytest.raises(ValueError, match="needs last_map, stages or grid"):
        FrozenGPOptions(last_map=False, stages=0)
    with pytest.raises(InputError, match=r"^posthoc part frozen_gp needs last_map, stages or grid; got"):
        read_parts([{"name": "frozen_gp", "last_map": False, "stages": 0}])


@pytest.mark.parametrize("smoothness", [None, *SMOOTHNESS])
def test_the_correction_is_the_mean_of_the_gaussian_process_written_out(smoothness):
    process, statistics, targets = filled()
    if smoothness is not None:
        process.set_smoothness(*smoothness)
    variance, noise = smoothness or SMOOTHNESS[DEFAULT_SMOOTHNESS]
    # Mixtures of the training images, so that no direction of them is lost in the projection.
    shares_of_images = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))
    asked = (shares_of_images / shares_of_images.sum(dim=1, keepdim=True)) @ statistics
    deviations, centre = torch.std_mean(statistics.double(), dim=0, correction=0)
    shares = torch.cat([torch.full((width,), width**-0.5) for width in process.widths])

    def directions(rows):
        scaled = (rows.double() - centre) / deviations * shares
        return scaled / scaled.norm(dim=1, keepdim=True)

    def similarity(one, other):
        return math.exp(-float((one - other).square().sum()) / (8 * variance))

    remembered, new = directions(statistics), directions(asked)
    covariance = np.array([[similarity(n, m) for m in remembered] for n in remembered])
    expected = np.zeros((4, 3))
    for k in range(3):
        known = (targets[:, k] != -1).numpy()
        rate = float((targets[:, k] == 1).sum()) / known.sum()
        residuals = np.where(known, (targets[:, k] == 1).numpy() - rate, 0)
        coefficients = np.linalg.inv(covariance + noise * np.eye(12)) @ residuals
        for n in range(4):
            likeness = [similarity(new[n], m) for m in remembered]
            expected[n, k] = 0.7 * (likeness @ coefficients) / math.sqrt(rate * (1 - rate))
    found = process(asked).double()
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=2e-3, rtol=2e-3)  # float16 directions


def test_the_same_images_give_the_same_process_and_no_random_state_is_touched():
    process, statistics, targets = filled()
    state = torch.get_rng_state()
    again = FrozenFeatureGP(small_encoder(), 3)
    torch.set_rng_state(state)
    again.fit_images(statistics, targets)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again.directions, process.directions)
    assert torch.equal(again.coefficients, process.coefficients)


def test_degenerate_images_and_labels_stay_finite():
    process, statistics, targets = filled()
    statistics[:, :5] = 3.0  # channels that are dead
    targets[:, 0], targets[:, 1], targets[:, 2] = -1, 0, 1
    process.fit_images(statistics, targets)
    correction = process(torch.cat([statistics, 1e4 * statistics, torch.zeros(1, statistics.shape[1])]))
    assert torch.isfinite(correction).all()
    assert (correction.abs() < 1e-3).all()  # nothing was learned where nothing differs
    process.fit_images(statistics[:1].expand(4, -1), targets[:4])
    assert torch.isfinite(process(statistics)).all()


def test_under_autocast_it_computes_in_float32():
    encoder = small_encoder()
    process = FrozenFeatureGP(encoder, num_labels=2)
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        exact = process.statistics(encoder(images).taps)
        process.fit_images(exact, torch.eye(8, 2, dtype=torch.int8))
        process.set_weight(1.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen = process.statistics(encoder(images).taps)
            correction = process(seen)
    assert seen.dtype == correction.dtype == torch.float32
    # The first stages compute in bfloat16, good to some 1 %.
    torch.testing.assert_close(correction, process(exact), rtol=0, atol=0.1)
    assert process(exact).abs().max() > 0.3


def test_a_loaded_part_cannot_be_solved_again():
    with pytest.raises(RuntimeError, match="not been fitted"):
        FrozenFeatureGP(small_encoder(), 3, num_images=12).set_smoothness(0.2, 2.0)


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_val_decides_how_smooth_it_is(smoothness):
    """The score is the nearness to the correction at one smoothness, which is then found."""
    process, statistics, _ = filled()
    process.set_smoothness(*smoothness)
    process.set_weight(1.0)
    wanted = process(statistics).double()
    logits = process.tune(
        statistics, torch.zeros(12, 3).double(), lambda logits: -float((logits - wanted).square().sum())
    )
    assert float(process.variance) == pytest.approx(smoothness[0])
    assert float(process.weight) == 1.0
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(process(statistics).double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
@pytest.mark.parametrize(("wanted", "found"), [(0.1, 0.0), (0.6, 0.5), (1.2, 1.0), (5.0, 4.0), (50.0, 8.0)])
def test_smoothness_by_the_process_alone_then_the_weight(smoothness, wanted, found):
    """Beside logits 100, a score that sees how far the sum is from 100 + `wanted` times the process."""
    process, statistics, _ = filled()
    process.set_smoothness(*smoothness)
    process.set_weight(1.0)
    mean = process(statistics).double()
    given = torch.full((12, 3), 100.0).double()

    def score(logits):
        is_alone = bool((logits.abs() < 50).any())
        aim = mean if is_alone else given + wanted * mean
        return -float((logits - aim).abs().mean() / mean.abs().mean())

    process.tune(statistics, given, score)
    assert float(process.variance) == pytest.approx(smoothness[0])
    assert float(process.weight) == found


def test_a_loss_on_val_within_chance_does_not_drop_the_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kmcl.posthoc.frozen_gp.SHRINKAGE", 0.0)
    process, statistics, _ = filled()
    given = torch.full((12, 3), 7.0).double()
    kept = []
    for loss in (0.004, 0.006):
        scores = {True: 0.5, False: 0.5 - loss}
        process.tune(statistics, given, lambda logits, scores=scores: scores[torch.equal(logits, given)])
        kept.append(process.is_worth_keeping)
    assert kept == [True, False]


def scored_by_weight(scores: dict[float, float]):
    """The weight and smoothness of a process that is tuned on 12 images whose score depends on the weight."""
    process, statistics, _ = filled()
    process.set_weight(1.0)
    given = torch.full((12, 3), 7.0).double()
    alone = {pair: process._mean_with(pair, statistics).double() for pair in SMOOTHNESS}

    def score(logits: torch.Tensor) -> float:
        for mean in alone.values():
            for weight, found in scores.items():
                if torch.allclose(logits, given + weight * mean):
                    return found
        return 0.5

    process.tune(statistics, given, score)
    return float(process.weight)


@pytest.mark.parametrize(("gain", "weight"), [(0.9, 1.0), (1.1, 4.0)])
def test_a_small_val_stays_near_the_default_weight(gain: float, weight: float):
    """Weight 4 is two doublings away: it must gain twice the margin of 12 images."""
    margin = SHRINKAGE / 12**0.5
    assert scored_by_weight({0.5: 0.6, 1.0: 0.6, 2.0: 0.6, 4.0: 0.6 + 2 * gain * margin, 8.0: 0.6}) == weight


def test_a_small_val_stays_with_the_default_smoothness():
    """Another must gain more than the margin of 12 images."""
    found = []
    for gain in (0.9, 1.1):
        process, statistics, _ = filled()
        smooth = process._mean_with(SMOOTHNESS[2], statistics).double()
        margin = SHRINKAGE / 12**0.5

        def score(logits: torch.Tensor, smooth=smooth, gain=gain, margin=margin) -> float:
            return 0.5 + gain * margin * torch.equal(logits, smooth)

        process.tune(statistics, torch.zeros(12, 3).double(), score)
        found.append(round(float(process.variance), 6))
    assert found == [SMOOTHNESS[DEFAULT_SMOOTHNESS][0], SMOOTHNESS[2][0]]


def test_a_weight_below_zero_is_refused():
    with pytest.raises(ValueError, match="weight must be at least 0"):
        filled()[0].set_weight(-0.1)


def test_val_decides_how_much_it_counts():
    process = FrozenFeatureGP(small_encoder(), 2)
    rng = np.random.default_rng(0)
    targets = (rng.random((300, 2)) < 0.4).astype(np.int8)
    statistics = rng.normal(size=(300, sum(process.widths))).astype(np.float32)
    statistics[:, :40] += 2 * targets[:, :1]
    statistics[:, 40:80] += 2 * targets[:, 1:]
    seen = torch.from_numpy(statistics)
    process.fit_images(seen[:200], torch.from_numpy(targets[:200]))
    names = tuple(f"{row}.jpg" for row in range(100))

    def val(scores):
        return Predictions(("a", "b"), names, scores.astype(np.float32), targets[200:])

    def tuned(predictions):
        logits = torch.logit(torch.from_numpy(predictions.scores).double())
        return logits, process.tune(seen[200:], logits, auc_of_logits(predictions))

    logits, corrected = tuned(val(0.4 + 0.2 * rng.random((100, 2))))
    assert process.is_worth_keeping
    assert float(process.weight) in WEIGHTS
    torch.testing.assert_close(corrected, logits + process(seen[200:]), rtol=1e-5, atol=1e-5)
    process.fit_images(seen[:200], torch.from_numpy(1 - targets[:200]))  # it learns the opposite
    logits, unchanged = tuned(val(0.45 + 0.1 * targets[200:]))
    torch.testing.assert_close(unchanged, logits)
    assert not process.is_worth_keeping
