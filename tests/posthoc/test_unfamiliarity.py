"""Unfamiliarity: its distances and shares against their formulas, its false alarms, and what it detects."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from torch.nn import functional

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods.output import HeadOutput
from kmcl.posthoc import unfamiliarity
from kmcl.posthoc.unfamiliarity import (
    LEAST_VAL_IMAGES,
    SHRINKAGE,
    DirectionResidual,
    GaussianDistance,
    Unfamiliarity,
    ValShares,
)


def vectors(number: int, width: int = 7, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=torch.Generator().manual_seed(9))
    return 3 + torch.randn(number, width, generator=generator) @ mixing


def test_the_distance_is_that_of_mahalanobis_with_a_shrunk_covariance():
    fitted, asked = vectors(60), vectors(5, seed=1)
    distance = GaussianDistance(7)
    distance.fit(fitted)
    exact = fitted.double().numpy()
    deviations = exact.std(axis=0)
    correlations = np.corrcoef(exact.T)
    inverse = np.linalg.inv(correlations + SHRINKAGE * np.eye(7))
    centre = exact.mean(axis=0) / deviations
    expected = [
        2 * math.log(mahalanobis(row / deviations, centre, inverse)) for row in asked.double().numpy()
    ]
    np.testing.assert_allclose(distance(asked).numpy(), expected, rtol=1e-4)


def test_wide_vectors_keep_as_many_directions_as_saved_models_have():
    assert [GaussianDistance(width).directions.shape[1] for width in (176, 400)] == [176, 256]
    assert [DirectionResidual(width).directions.shape[1] for width in (176, 400, 1280)] == [44, 100, 128]


def test_directions_beyond_the_largest_share_a_variance(monkeypatch):
    monkeypatch.setattr(unfamiliarity, "GAUSSIAN_DIRECTIONS", 3)
    fitted, asked = vectors(60), vectors(5, seed=1)
    distance = GaussianDistance(7)
    distance.fit(fitted)
    exact = fitted.double().numpy()
    centre, deviations = exact.mean(axis=0), exact.std(axis=0)
    variances, directions = np.linalg.eigh(np.corrcoef(exact.T))
    variances[:4] = variances[:4].mean()
    covariance = directions @ np.diag(variances + SHRINKAGE) @ directions.T
    rows = (asked.double().numpy() - centre) / deviations
    expected = [math.log(row @ np.linalg.solve(covariance, row)) for row in rows]
    np.testing.assert_allclose(distance(asked).numpy(), expected, rtol=1e-4)


def test_distances_of_degenerate_vectors_are_finite():
    constant = vectors(10)
    constant[:, 2:] = 5.0
    for fitted in (constant, constant[:1].expand(4, -1), vectors(3)):
        distance = GaussianDistance(7)
        distance.fit(fitted)
        assert torch.isfinite(distance(torch.cat([fitted, 1e6 * vectors(3)]))).all()


def test_the_residual_is_what_principal_directions_leave_of_a_unit_vector():
    fitted, asked = vectors(60, width=8), vectors(5, width=8, seed=1)
    residual = DirectionResidual(8)
    residual.fit(fitted)
    centre = fitted.mean(dim=0).double().numpy()

    def units(rows: torch.Tensor) -> np.ndarray:
        from_centre = rows.double().numpy() - centre
        return from_centre / np.linalg.norm(from_centre, axis=1, keepdims=True)

    main = np.linalg.svd(units(fitted), full_matrices=False)[2][:2]
    left = units(asked) - units(asked) @ main.T @ main
    np.testing.assert_allclose(residual(asked).numpy(), (left**2).sum(axis=1), atol=1e-5)
    further = fitted.mean(dim=0) + 3 * (asked - fitted.mean(dim=0))
    torch.testing.assert_close(residual(further), residual(asked), rtol=1e-4, atol=1e-5)
    assert torch.isfinite(residual(fitted.mean(dim=0, keepdim=True))).all()


@pytest.mark.parametrize(("number", "most"), [(30, 500), (30, 7), (1, 500), (2, 500)])
def test_shares_are_below_the_counted_ones_and_close_to_them(monkeypatch, number, most):
    monkeypatch.setattr(unfamiliarity, "MOST_QUANTILES", most)
    generator = torch.Generator().manual_seed(number)
    values = torch.randn(number, generator=generator)
    shares = ValShares(1)
    shares.fit(values)
    asked = torch.cat([torch.linspace(-4, 9, 300), values])
    found = shares(asked)
    counted = torch.tensor([float((values <= one).sum()) / (number + 1) for one in asked])
    assert (found <= counted + 1e-6).all()
    assert (found >= counted - 2 / min(number, most) - 1e-6).all()
    ordered = found[:300]
    assert (ordered.diff() >= 0).all()
    if number > 1:  # beyond val the order is kept
        assert (ordered[asked[:300] > values.max()].diff() > 0).all()
    assert 0 <= float(found.min()) <= float(found.max()) < 1


def test_equal_values_of_val_are_no_problem():
    shares = ValShares(1)
    shares.fit(torch.full((40,), 2.0))
    assert shares(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([0, 0, 40 / 41], abs=0.03)


def test_images_like_those_of_val_rarely_give_alarms():
    """The mean over many val sets of the share that reaches 0.95, which is at most 0.05."""
    generator = torch.Generator().manual_seed(3)
    rates = []
    for _ in range(300):
        shares = ValShares(1)
        shares.fit(torch.randn(59, generator=generator).exp())
        rates.append(float((shares(torch.randn(200, generator=generator).exp()) >= 0.95).float().mean()))
    assert 0.025 < float(np.mean(rates)) < 0.052


def small_encoder(frozen_stages: int = 2):
    torch.manual_seed(0)
    taps = frozen_stages > 0
    return build_encoder("test_resnet", image_size=32, frozen_stages=frozen_stages, taps=taps).eval()


def observed(part: Unfamiliarity, encoder, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        encoded: EncoderFeatures = encoder(images)
        return part.observe(encoded, HeadOutput(torch.zeros(len(images), 3), encoded.pooled, None))


@pytest.mark.parametrize("frozen_stages", [0, 2])
def test_it_observes_a_stage_and_the_features(frozen_stages):
    encoder = small_encoder(frozen_stages)
    part = Unfamiliarity(encoder, 3)
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        encoded = encoder(images)
    statistics = encoded.taps.statistics[:1] if frozen_stages else ()
    torch.testing.assert_close(observed(part, encoder, images), torch.cat([*statistics, encoded.pooled], 1))
    assert len(part.widths) == 1 + len(statistics)


def fitted_part(num_val: int = 60):
    """A part that was fitted to smooth random images, and a function to ask it."""
    encoder = small_encoder()
    part = Unfamiliarity(encoder, 3)
    generator = torch.Generator().manual_seed(1)

    def smooth(number: int) -> torch.Tensor:
        coarse = torch.rand(number, 3, 6, 6, generator=generator)
        return functional.interpolate(coarse, size=32, mode="bilinear")

    def asked(images: torch.Tensor, level: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
        """What the part is asked with: observations and corrected logits."""
        return observed(part, encoder, images), level + torch.randn(len(images), 3, generator=generator)

    part.fit_images(asked(smooth(300))[0], torch.zeros(300, 3))
    seen, logits = asked(smooth(num_val))
    assert part.tune(seen, logits, lambda logits: 0.0) is logits
    return part, smooth, asked


def test_it_detects_other_images_and_a_lack_of_labels():
    part, smooth, asked = fitted_part()
    with torch.no_grad():
        known = part.unfamiliarity(*asked(smooth(200)))
        noise = part.unfamiliarity(*asked(torch.rand(50, 3, 32, 32)))
        unlabelled = part.unfamiliarity(*asked(smooth(50), level=-8.0))
    assert float((known >= 0.95).float().mean()) < 0.15
    assert (noise >= 0.95).all()
    assert (unlabelled >= 0.95).all()
    assert 0.3 < float(known.mean()) < 0.7


def components(part: Unfamiliarity, rows: torch.Tensor, logits: torch.Tensor) -> dict[str, np.ndarray]:
    """The numbers by their letters, written out."""
    parts = torch.split(rows, list(part.widths), dim=1)
    d, r = (distance(one) for distance, one in zip(part.distances, parts, strict=True))
    energies = [-sum(math.log1p(math.exp(one)) for one in row) for row in logits.tolist()]
    largest = [-max(row) for row in logits.tolist()]
    return {"e": np.array(energies), "d": d.numpy(), "r": r.numpy(), "m": np.array(largest)}


def evidence(z: float) -> float:
    return z + z * z / 2 if z > 0 else z


def standardised(of_val: np.ndarray, given: np.ndarray) -> np.ndarray:
    return (given.astype(np.float64) - of_val.mean(dtype=np.float64)) / of_val.std(dtype=np.float64)


def asked_of_many_kinds(asked, smooth) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations and logits of images with few and many labels, familiar and not."""
    several = [asked(smooth(6)), asked(smooth(6), level=5.0), asked(smooth(4), level=-3.0)]
    several.append(asked(torch.rand(3, 3, 32, 32)))
    return torch.cat([one for one, _ in several]), torch.cat([logits for _, logits in several])


def test_the_statistic_is_its_formula_written_out():
    part, smooth, asked = fitted_part()
    val, given = asked(smooth(40)), asked_of_many_kinds(asked, smooth)
    part.tune(*val, lambda logits: 0.0)
    of_val = components(part, *val)
    z = {name: standardised(of_val[name], one) for name, one in components(part, *given).items()}
    on_val = {name: standardised(one, one) for name, one in of_val.items()}
    slope = np.corrcoef(on_val["e"], on_val["r"])[0, 1]
    u_of_val = on_val["r"] - slope * np.clip(on_val["e"], -2, 0)
    u = standardised(u_of_val, z["r"] - slope * np.clip(z["e"], -2, 0))
    expected = [
        evidence(u) + evidence(m) / 2 + evidence(max(0, e - 0.5)) + 3 * evidence(max(0, d - 2.5))
        for u, m, e, d in zip(u, z["m"], z["e"], z["d"], strict=True)
    ]
    assert z["d"].min() < 2.5 < z["d"].max()
    assert z["e"].min() < -2
    assert z["e"].max() > 0.5
    with torch.no_grad():
        found = part.statistic(*given)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-2)


def test_many_labels_hide_nothing_new():
    """The same residual is stranger in an image with many labels, where it is usually small."""
    part, smooth, asked = fitted_part()
    generator = torch.Generator().manual_seed(2)
    seen, _ = asked(smooth(300))
    residuals = components(part, seen, torch.zeros(300, 3))["r"]
    strange = torch.from_numpy(standardised(residuals, residuals)).float()
    level = -3 * strange + 0.3 * torch.randn(300, generator=generator)  # the smaller, the more labels
    logits = level.unsqueeze(1).expand(-1, 3)
    part.tune(seen, logits, lambda logits: 0.0)
    one = seen[strange.argsort()[150]].unsqueeze(0)
    with torch.no_grad():
        few, many = (part.unfamiliarity(one, torch.full((1, 3), level)) for level in (0.0, 4.0))
    assert float(many) > float(few) + 0.1


def test_it_corrects_no_logits_and_needs_enough_of_val():
    part, smooth, asked = fitted_part(LEAST_VAL_IMAGES)
    assert part.is_worth_keeping
    assert not part.corrects_logits
    seen, logits = asked(smooth(LEAST_VAL_IMAGES - 1))
    with pytest.raises(NotImplementedError, match="Unfamiliarity corrects no logits"):
        part(seen)
    part.tune(seen, logits, lambda logits: 0.0)
    assert not part.is_worth_keeping


def test_a_loaded_part_says_the_same():
    part, smooth, asked = fitted_part()
    again = Unfamiliarity(small_encoder(), 3, **part.sizes)
    again.load_state_dict(part.state_dict())
    given = asked(smooth(5))
    with torch.no_grad():
        assert torch.equal(again.unfamiliarity(*given), part.unfamiliarity(*given))
    assert again.sizes == part.sizes


def test_parts_that_only_correct_give_none():
    from kmcl.posthoc import KernelVote

    with pytest.raises(NotImplementedError, match="KernelVote only corrects logits"):
        KernelVote(None, 3).unfamiliarity(torch.zeros(2, 1), torch.zeros(2, 3))
    assert not KernelVote.gives_unfamiliarity
    with pytest.raises(NotImplementedError, match="KernelVote does not summarise features"):
        KernelVote(None, 3).feature_summary(torch.zeros(2, 1))
    assert KernelVote(None, 3).summary_size == 0
    assert Unfamiliarity.uses_taps(2)
    assert not Unfamiliarity.uses_taps(0)


def test_under_autocast_it_computes_in_float32():
    part, smooth, asked = fitted_part()
    given = asked(smooth(8))
    with torch.no_grad():
        exact = part.unfamiliarity(*given)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = part.unfamiliarity(*given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact)


def test_features_are_summarised_along_the_main_directions():
    """Those of the stage as principal components of unit variance, those of unit vectors by their SVD."""
    part, smooth, asked = fitted_part()
    encoder, images = small_encoder(), smooth(300)
    seen, width = observed(part, encoder, images), part.widths[0]
    part.fit_images(seen, torch.zeros(300, 3))
    found = part.feature_summary(seen).double().numpy()
    assert found.shape == (300, part.summary_size) == (300, 8)
    stage, pooled = seen[:, :width].double().numpy(), seen[:, width:].double().numpy()
    deviations = stage.std(axis=0)
    stage = (stage - stage.mean(axis=0)) / np.where(deviations > 1e-6, deviations, np.inf)
    components = np.linalg.svd(stage, full_matrices=False)[2][:4]
    expected = stage @ components.T
    expected /= np.sqrt((expected**2).mean(axis=0) + SHRINKAGE * (stage**2).mean())
    units = pooled - pooled.mean(axis=0)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    main = np.linalg.svd(units, full_matrices=False)[2][:4]
    expected = np.hstack([expected, units @ main.T])
    signs = np.sign((found * expected).sum(axis=0))  # a direction and its opposite are equally good
    np.testing.assert_allclose(found * signs, expected, atol=2e-3)
    new, _ = asked(smooth(3))
    alone = torch.cat([part.feature_summary(one.unsqueeze(0)) for one in new])
    torch.testing.assert_close(part.feature_summary(new), alone)


@pytest.mark.parametrize(("frozen_stages", "size"), [(2, 8), (0, 8)])
def test_the_summary_has_eight_numbers_with_or_without_stages(frozen_stages, size):
    encoder = small_encoder(frozen_stages)
    part = Unfamiliarity(encoder, 3)
    seen = observed(part, encoder, torch.rand(30, 3, 32, 32))
    part.fit_images(seen, torch.zeros(30, 3))
    assert part.feature_summary(seen).shape == (30, size)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = part.feature_summary(seen)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, part.feature_summary(seen))
