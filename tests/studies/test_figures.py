"""The figures of studies hold the numbers of their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kmcl.evaluation.bootstrap import BootstrapInterval, PairedDifference
from kmcl.reports.figure_files import write_picture
from kmcl.reports.study_figures import comparison_picture, size_picture, weights_picture
from kmcl.studies.results import Spread, StudyResult, VariantResult
from kmcl.studies.weight_search import SearchPoint


def interval(middle: float) -> BootstrapInterval:
    return BootstrapInterval(middle, middle - 0.01, middle + 0.02, 0.95, 0.01, 0.0, 100, 0)


def variant(
    name: str, values: tuple[float, ...], difference: float | None, **changes: object
) -> VariantResult:
    spread = Spread(sum(values) / len(values), 0.01, values)
    found = None
    if difference is not None:
        found = PairedDifference(interval(0.5), interval(0.5), interval(difference), 0.1)
    return VariantResult(
        name, "kmcl", changes, (0, 1), {"mAP": spread}, (1, 1), spread, 1e9, 10, 0.1, found, (0, 1), 1
    )


def result(*variants: VariantResult) -> StudyResult:
    return StudyResult("compare", "digits", "test", 40, 0.5, variants[0].name, variants, {}, 0)


def test_a_comparison_shows_every_training_and_every_difference(tmp_path: Path):
    picture = comparison_picture(
        result(variant("a long name of a reference", (0.5, 0.6), None), variant("b", (0.6, 0.8), 0.15))
    )
    left, right = picture.figure.axes
    dots = [point for points in left.collections[::2] for point in points.get_offsets()[:, 0]]
    assert dots == pytest.approx([50, 60, 60, 80])
    assert right.get_xlabel() == "mAP minus that of the reference (blue)"
    assert picture.numbers.rows[1] == (
        "b",
        pytest.approx(0.7),
        0.15,
        pytest.approx(0.14),
        pytest.approx(0.17),
        0.6,
        0.8,
    )
    assert picture.numbers.rows[0][2:5] == (None, None, None)
    assert picture.name == "comparison"
    write_picture(picture, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg", ".csv"}


def test_one_variant_alone_has_no_differences():
    alone = comparison_picture(replace(result(variant("a", (0.5,), None)), kind="study kernels"))
    assert len(alone.figure.axes) == 1
    assert alone.name == "kernels"


def test_sizes_are_one_curve_for_each_method():
    picture = size_picture(
        result(
            variant("kmcl 1", (0.7, 0.8), None, train_fraction=1.0),
            variant("kmcl 0.1", (0.3, 0.5), None, train_fraction=0.1),
            variant("asl 0.1", (0.2, 0.2), None, train_fraction=0.1),
        )
    )
    lines = {line.get_label(): line.get_xydata().tolist() for line in picture.figure.axes[0].lines}
    assert lines["kmcl"] == [[10.0, pytest.approx(40)], [100.0, pytest.approx(75)]]
    assert lines["asl"] == [[10.0, pytest.approx(20)]]


def test_the_axis_of_sizes_counts_images_where_they_are_known():
    counted = [
        replace(variant("kmcl 1", (0.7,), None, train_fraction=1.0), num_train_images=4200),
        replace(variant("kmcl 0.1", (0.3,), None, train_fraction=0.1), num_train_images=420),
    ]
    picture = size_picture(result(*counted))
    (axes,) = picture.figure.axes
    assert axes.lines[0].get_xdata().tolist() == [420, 4200]
    assert axes.get_xlabel() == "training images"
    assert [row[2] for row in picture.numbers.rows] == [420, 4200]
    assert "kmcl 10 % (420 images): 30.00" in picture.caption
    unknown = size_picture(result(counted[0], replace(counted[1], num_train_images=None)))
    assert unknown.figure.axes[0].get_xlabel() == "training images (%)"


def test_points_of_a_search_stand_at_their_weights():
    points = [
        SearchPoint(
            "point 01", {"reconstruction": 0.1, "classification": 0.2, "contrastive": 0.3}, 0.5, (0.5,)
        ),
        SearchPoint(
            "point 02", {"reconstruction": 0.4, "classification": 0.5, "contrastive": 0.6}, 0.7, (0.7,)
        ),
        SearchPoint("point 03", {"reconstruction": 0.4, "classification": 0.5, "contrastive": 0.6}, None, ()),
    ]
    picture = weights_picture(points)
    third = picture.figure.axes[2]
    assert third.collections[0].get_offsets().tolist() == [[0.3, 50.0], [0.6, pytest.approx(70)]]
    assert third.collections[1].get_offsets().tolist() == [[0.6, pytest.approx(70)]]
    assert "contrastive 0.6" in picture.caption
