"""Covered regions: which they are; a planted dependence is found, and one that is not there is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from coloured_squares import GREEN, RED, squares, squares_classifier
from kmcl.errors import InputError
from kmcl.evaluation.contrasts import joint_level, mean_difference
from kmcl.explain.evidence import label_evidence
from kmcl.explain.masking import choose_regions, cover, masked_logits


def spot(row: int, column: int, size: int = 40) -> np.ndarray:
    """Heat that falls with the distance from a place."""
    rows, columns = np.mgrid[:size, :size]
    return np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / 50)


def test_regions_are_equally_large_and_apart():
    for seed in range(5):
        found = choose_regions(spot(8, 8), spot(30, 30), np.random.default_rng(seed))
        assert found.other.sum() == found.control.sum() == 400
        assert not (found.other & found.control).any()
        assert found.other[30, 30]
        assert not found.other[8, 8]
        assert not found.control[8, 8]


def test_controls_differ_between_draws():
    controls = [choose_regions(spot(8, 8), spot(30, 30), np.random.default_rng(k)).control for k in range(4)]
    assert len({control.tobytes() for control in controls}) == 4


def test_a_label_with_the_same_evidence_does_not_protect_it():
    found = choose_regions(spot(30, 30), spot(30, 30), np.random.default_rng(0))
    assert found.other[30, 30]


def test_no_evidence_at_all_covers_two_random_parts():
    nothing = np.zeros((20, 20))
    found = choose_regions(nothing, nothing, np.random.default_rng(0))
    assert found.other.sum() == found.control.sum() == 100
    assert not (found.other & found.control).any()
    with pytest.raises(InputError, match=r"share must be in \(0, 1/3\], got 0.5"):
        choose_regions(nothing, nothing, np.random.default_rng(0), share=0.5)


def test_covered_pixels_have_the_mean_colour_and_others_are_kept():
    image = np.random.default_rng(0).integers(0, 255, (10, 10, 3), dtype=np.uint8)
    region = np.zeros((10, 10), dtype=bool)
    region[2:5, 3:7] = True
    covered = cover(image, region)
    assert (covered[~region] == image[~region]).all()
    mean = image.reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(covered[region], np.tile(mean, (12, 1)), atol=0.5)


@pytest.mark.parametrize("leans", [True, False])
def test_a_planted_dependence_is_found_and_one_that_is_not_there_is_not(leans):
    classifier = squares_classifier(leans)
    images, _ = squares(30, has_green=True, has_red=True)
    logits = masked_logits(classifier, images, [GREEN] * 30, [RED] * 30, np.random.default_rng(0))
    clean, masked, control = (1 / (1 + np.exp(-each)) for each in logits[:3])
    assert (clean > 0.9).all()
    assert (clean[:, RED] - masked[:, RED]).mean() > 0.8  # the red square was covered
    found = mean_difference((control - masked)[:, GREEN], joint_level(10))
    assert found.excludes_zero == leans
    assert (found.estimate > 0.7) == leans
    assert (logits.masked_images != images).any(axis=3).mean() <= 0.25


def test_progress_reaches_the_end():
    images, _ = squares(11, has_green=True, has_red=True)
    seen: list[float] = []
    masked_logits(
        squares_classifier(False), images, [0] * 11, [1] * 11, np.random.default_rng(0), seen.append
    )
    assert seen == [8 / 11, 1.0]


def test_arguments_are_checked():
    images, _ = squares(2, has_green=True, has_red=True)
    classifier = squares_classifier(False)
    with pytest.raises(InputError, match="one for each of 2 images, at least one; got 1 and 2"):
        masked_logits(classifier, images, [0], [1, 1], np.random.default_rng(0))
    with pytest.raises(InputError, match="one row for each of 2 images"):
        label_evidence(classifier, images, [[0, 1]])


def test_evidence_leaves_classifier_and_gradients_as_they_were():
    images, _ = squares(3, has_green=True, has_red=True)
    classifier = squares_classifier(True)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    found = label_evidence(classifier, images, [[0, 1]] * 3)
    assert torch.is_grad_enabled()
    np.testing.assert_allclose(found.logits, classifier(pixels).logits.detach().numpy(), atol=1e-5)
    assert found.heats.shape == (3, 2, 8, 8)
    assert all(parameter.grad is None for parameter in classifier.parameters())
    assert not any(
        isinstance(module, nn.Identity) and module._forward_hooks for module in classifier.modules()
    )
