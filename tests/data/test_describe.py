"""Descriptions: counts against plain loops, correlations against numpy, figures that are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.data.cooccurrence import correlations
from kmcl.data.describe import describe
from kmcl.data.figures import save_figures
from kmcl.data.files import ImageFiles
from kmcl.errors import InputError


def small_dataset() -> Dataset:
    train = np.array([[1, 1, 0], [1, 1, 0], [0, 0, -1], [0, 0, 0]], dtype=np.int8)
    test = np.array([[1, 0, 1], [-1, 0, 0]], dtype=np.int8)
    groups = np.array(["a", "a", "b", "c"])
    return Dataset(
        "small",
        ("x", "y", "z"),
        {
            "train": Split(ArrayImages(np.zeros((4, 5, 7), dtype=np.uint8), "t"), train, groups=groups),
            "test": Split(ArrayImages(np.zeros((2, 9, 3), dtype=np.uint8), "e"), test),
        },
    )


def test_counts() -> None:
    found = describe(small_dataset())
    train, test = found.splits
    assert (train.name, train.num_images, train.num_unlabelled, train.num_groups) == ("train", 4, 2, 3)
    assert train.labels_per_image == 1.0
    assert test.num_groups is None
    x, _, z = found.labels
    assert x.positives == {"train": 2, "test": 1}
    assert x.unknown == {"train": 0, "test": 1}
    assert x.prevalence == 3 / 5
    assert z.prevalence == 1 / 5
    assert found.labels_histogram == pytest.approx((3 / 6, 0, 3 / 6))
    assert found.together == ((3, 2, 1), (2, 2, 0), (1, 0, 1))
    assert found.image_sizes.widths == (3, 7, 7)
    assert found.image_sizes.heights == (5, 5, 9)


def test_correlation_is_numpys_over_the_annotated_images() -> None:
    rng = np.random.default_rng(0)
    targets = rng.integers(-1, 2, (200, 5)).astype(np.int8)
    targets[:, 4] = 0
    phi = correlations(targets)
    for first in range(4):
        for second in range(4):
            both = (targets[:, first] >= 0) & (targets[:, second] >= 0)
            expected = np.corrcoef(targets[both, first], targets[both, second])[0, 1]
            assert phi[first, second] == pytest.approx(expected)
    assert (phi[4] == 0).all()


def test_strongest_pairs_come_first_whatever_their_sign() -> None:
    dataset = open_dataset("digits", size=400)
    pairs = describe(dataset, num_sampled=3).correlations
    strengths = [abs(pair.correlation) for pair in pairs]
    assert strengths == sorted(strengths, reverse=True)
    assert {("zero", "one"), ("two", "three")} <= {(pair.first, pair.second) for pair in pairs[:5]}


def test_unreadable_images_are_counted(tmp_path: Path) -> None:
    Image.new("RGB", (8, 4)).save(tmp_path / "a.png")
    images = ImageFiles(tmp_path, np.array(["a.png", "gone.png"]))
    dataset = Dataset("x", ("a",), {"train": Split(images, np.ones((2, 1), dtype=np.int8))})
    sizes = describe(dataset).image_sizes
    assert (sizes.num_sampled, sizes.num_unreadable, sizes.widths) == (2, 1, (8, 8, 8))


def test_figures_are_images_with_something_in_them(tmp_path: Path) -> None:
    paths = save_figures(describe(small_dataset()), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["labels_per_image.png", "co_occurrence.png"]
    for path in paths:
        with Image.open(path) as image:
            assert image.width > 400
            assert len(image.convert("RGB").getcolors(1 << 20) or []) > 10
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_figures(describe(small_dataset()), tmp_path / "file")
