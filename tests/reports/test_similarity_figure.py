"""The similarity figure shows what integration gives."""

from __future__ import annotations

import numpy as np
import pytest

from kmcl.reports.similarity_figure import PANELS, Kernel, similarities, similarity_picture, surfaces


def integrated_coefficient(first: Kernel, second: Kernel) -> float:
    side = np.linspace(-14, 14, 801)
    x, y = np.meshgrid(side, side)

    def density(kernel: Kernel) -> np.ndarray:
        inverse = np.linalg.inv(np.array(kernel.covariance))
        gaps = np.stack([x - kernel.mean[0], y - kernel.mean[1]], axis=-1)
        values = np.exp(-0.5 * np.einsum("...i,ij,...j->...", gaps, inverse, gaps))
        return values / values.sum()

    return float(np.sqrt(density(first) * density(second)).sum())


@pytest.mark.parametrize("panel", PANELS)
def test_the_printed_coefficient_is_the_integral(panel):
    assert similarities(*PANELS[panel]).bhattacharyya == pytest.approx(
        integrated_coefficient(*PANELS[panel]), abs=1e-6
    )


def test_panels_show_what_the_paper_says():
    both, covariances, means = (similarities(*pair) for pair in PANELS.values())
    assert covariances.mahalanobis == covariances.gaussian == 1  # blind to the covariances
    assert covariances.bhattacharyya < 0.9
    assert means.bhattacharyya == pytest.approx(means.mahalanobis)
    assert both.bhattacharyya < min(both.mahalanobis, both.gaussian)


def test_surfaces_are_highest_without_difference_and_only_rho_sees_deviations():
    mean_gaps, deviation_gaps, values = surfaces(21)
    middle = (10, 10)
    assert (mean_gaps[10], deviation_gaps[10]) == (0, 0)
    for surface in values.values():
        assert surface[middle] == pytest.approx(1)
        assert surface.max() == pytest.approx(1)
    rho, mahalanobis, _ = values.values()
    np.testing.assert_allclose(mahalanobis[10], 1)
    assert (np.diff(rho[10, 10:]) < 0).all()
    np.testing.assert_allclose(rho, rho[::-1, ::-1])


def test_the_picture_has_six_panels_and_their_values():
    picture = similarity_picture()
    assert len(picture.figure.axes) == 6
    assert len(picture.numbers.rows) == 3
    assert f"{picture.numbers.rows[0][1]:.2f}" in picture.figure.axes[3].get_xlabel()
