"""Normalisation of pixels: what is measured, cached, trained with and saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kmcl.data import open_dataset, pixel_statistics
from kmcl.data.arrays import ArrayImages
from kmcl.data.dataset import Split
from kmcl.data.normalisation import IMAGENET_MEAN
from kmcl.data.pixel_statistics import dataset_normalisation, find_normalisation
from kmcl.errors import InputError
from kmcl.models.folder import load_model
from kmcl.runs.resolution import resolve_settings
from settings_runs import train


def make_split(num_images: int, *, seed: int = 0) -> Split:
    """Images of the counted size, each channel with its own range."""
    rng = np.random.default_rng(seed)
    side = pixel_statistics.SIDE
    pixels = rng.integers(0, [256, 128, 32], size=(num_images, side, side, 3)).astype(np.uint8)
    return Split(images=ArrayImages(pixels, "noise"), targets=np.ones((num_images, 1), dtype=np.int8))


def test_constants_are_those_of_all_pixels(tmp_path: Path):
    split = make_split(5)
    found = dataset_normalisation(split, tmp_path)
    pixels = np.stack([split.images.load(n) for n in range(5)]).astype(np.float64) / 255
    np.testing.assert_allclose(found.mean, pixels.mean(axis=(0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(found.std, pixels.std(axis=(0, 1, 2)), rtol=1e-9)


def test_constants_are_measured_once_and_a_broken_cache_does_not_matter(tmp_path: Path, monkeypatch):
    split = make_split(3)
    found = dataset_normalisation(split, tmp_path)
    measure = pixel_statistics._measure
    monkeypatch.setattr(pixel_statistics, "_measure", None)  # not called
    assert dataset_normalisation(split, tmp_path) == found
    monkeypatch.setattr(pixel_statistics, "_measure", measure)
    (file,) = tmp_path.iterdir()
    file.write_text('{"mean": [1]}')
    assert dataset_normalisation(split, tmp_path) == found
    assert dataset_normalisation(make_split(3, seed=1), tmp_path) != found
    assert len(list(tmp_path.iterdir())) == 2


def test_of_many_images_a_sample_is_counted(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(pixel_statistics, "MOST_IMAGES", 4)
    split = make_split(9)
    loaded: list[int] = []
    load = ArrayImages.load

    def remember(images: ArrayImages, index: int, min_side: int | None = None):
        loaded.append(index)
        return load(images, index, min_side)

    monkeypatch.setattr(ArrayImages, "load", remember)
    dataset_normalisation(split, tmp_path)
    assert len(set(loaded)) == 4


def test_equal_pixels_have_no_normalisation(tmp_path: Path):
    side = pixel_statistics.SIDE
    split = Split(
        images=ArrayImages(np.zeros((2, side, side, 3), dtype=np.uint8), "black"),
        targets=np.ones((2, 1), dtype=np.int8),
    )
    with pytest.raises(InputError, match="all their pixels are equal"):
        dataset_normalisation(split, tmp_path)


@pytest.mark.parametrize(
    ("text", "grey", "mean", "std"),
    [
        ("0.5,0.25", False, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ("0.1,0.2,0.3,1,2,3", False, (0.1, 0.2, 0.3), (1, 2, 3)),
        ("0.5,0.25", True, (0.5,), (0.25,)),
        ("imagenet", False, IMAGENET_MEAN, (0.229, 0.224, 0.225)),
    ],
)
def test_given_constants(text: str, grey: bool, mean, std):
    found = find_normalisation(text, 1 if grey else 3, open_dataset("digits", size=60))
    assert found == (mean, std)
    assert find_normalisation("encoder", 3, open_dataset("digits", size=60)) is None


def test_a_run_trains_with_the_constants_and_saves_them(tmp_path: Path):
    flags = {
        "encoder": "small_convnet",
        "normalisation": "dataset",
        "epochs": 1,
        "batch_size": 32,
        "augmentation": "none",
        "workers": 0,
        "posthoc": "none",
        "method": "bce",
        "cache_dir": tmp_path / "cache",
        "data_options": {"size": 60},
    }
    settings = resolve_settings("digits", flags=flags)
    train(settings, tmp_path / "run")
    expected = find_normalisation("dataset", 3, open_dataset("digits", size=60))
    assert expected is not None
    described = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    assert (tuple(described["mean"]), tuple(described["std"])) == expected
    classifier, _ = load_model(tmp_path / "run" / "model")
    np.testing.assert_allclose(classifier.pixel_scale.flatten(), 1 / np.array(expected.std), rtol=1e-6)
