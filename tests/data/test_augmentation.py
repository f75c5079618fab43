from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from kmcl.data import randaugment
from kmcl.data.augmentation import (
    AUGMENTATIONS,
    AugmentationName,
    Pixels,
    crop_box,
    cutout,
    jitter_colours,
    light,
    medical,
    paper,
    photo,
    resize,
    rotation_and_zoom,
)
from kmcl.data.sampling import DRAWS_PER_IMAGE, image_uniforms, order_generator

SIZE = 32


def pictures(count: int, side: int, seed: int = 0) -> Pixels:
    """Smooth random images, so that resampling errors stay small."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return np.stack([resize(image, side, side) for image in coarse])


def middle_draws(count: int) -> npt.NDArray[np.float64]:
    return np.full((count, DRAWS_PER_IMAGE), 0.5)


def test_a_row_of_draws_does_not_depend_on_what_is_asked_for_beside_it() -> None:
    together = image_uniforms(7, 3, first_position=10, num_images=6)
    np.testing.assert_array_equal(together[4:5], image_uniforms(7, 3, first_position=14, num_images=1))
    assert 0 <= together.min() <= together.max() < 1


def test_draws_differ_by_seed_epoch_position_and_purpose() -> None:
    rows = [
        image_uniforms(seed, epoch, position, 1)[0]
        for seed, epoch, position in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    ]
    rows.append(order_generator(0, 0).random(DRAWS_PER_IMAGE))
    assert len(np.unique(np.concatenate(rows))) == 5 * DRAWS_PER_IMAGE


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
def test_the_result_for_an_image_does_not_depend_on_its_batch(name: AugmentationName) -> None:
    augmentation = AUGMENTATIONS[name]
    images = pictures(12, augmentation.working_size(SIZE))
    before = images.copy()
    draws = image_uniforms(0, 0, 0, 12)
    together = augmentation.apply(images, SIZE, draws)
    assert together.shape == (12, SIZE, SIZE, 3)
    assert together.dtype == np.uint8
    for number in range(12):
        alone = augmentation.apply(images[number : number + 1], SIZE, draws[number : number + 1])
        np.testing.assert_array_equal(alone[0], together[number])
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("name", ["paper", "photo", "medical", "light"])
def test_different_draws_give_different_images(name: AugmentationName) -> None:
    augmentation = AUGMENTATIONS[name]
    images = np.repeat(pictures(1, augmentation.working_size(SIZE)), 20, axis=0)
    results = augmentation.apply(images, SIZE, image_uniforms(0, 0, 0, 20))
    assert len({result.tobytes() for result in results}) >= 15


def test_resizing_agrees_with_pillow() -> None:
    image = pictures(1, 50)[0]
    expected = np.asarray(Image.fromarray(image).resize((20, 33), Image.Resampling.BILINEAR))
    ours = resize(image, 33, 20)
    assert np.abs(ours.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("place", "rows", "columns"),
    [((0.5, 0.5), (8, 24), (8, 24)), ((0.0, 0.999), (0, 8), (23, 32)), ((0.999, 0.0), (23, 32), (0, 8))],
)
def test_cutout_covers_the_clipped_square_with_one_colour(
    place: tuple[float, float], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    images = np.zeros((1, SIZE, SIZE, 3), dtype=np.uint8)
    cutout(images, np.array([[*place, 0.5, 0.25, 0.999]]), side=0.5)
    expected = np.zeros_like(images)
    expected[0, rows[0] : rows[1], columns[0] : columns[1]] = (128, 64, 255)
    np.testing.assert_array_equal(images, expected)


def test_paper_cuts_out_before_it_augments() -> None:
    """With Invert twice (the last operation) RandAugment is the identity, and only the Cutout remains."""
    images = pictures(1, SIZE)
    draws = middle_draws(1)
    draws[0, 5] = draws[0, 8] = 0.999
    result = paper(images, SIZE, draws)[0]
    assert (result[8:24, 8:24] == 128).all()
    changed = (result != images[0]).any(axis=-1)
    changed[8:24, 8:24] = False
    assert not changed.any()
    draws[0, 8] = 0.5  # now one Invert and one Solarize at half strength
    assert paper(images, SIZE, draws)[0, 10, 10].tolist() != [128, 128, 128]


def test_paper_and_medical_and_light_never_mirror() -> None:
    """A dark left half stays left: the paper's table has no flip, digits and chests have a handedness."""
    for name in ("medical", "light"):
        augmentation = AUGMENTATIONS[name]  # type: ignore[index]
        side = augmentation.working_size(SIZE)
        images = np.full((200, side, side, 3), 220, dtype=np.uint8)
        images[:, :, : side // 2] = 40
        results = augmentation.apply(images, SIZE, image_uniforms(0, 0, 0, 200))
        assert (results[:, :, : SIZE // 2].mean((1, 2, 3)) < results[:, :, SIZE // 2 :].mean((1, 2, 3))).all()
    assert not any("flip" in operation.__name__ for operation in randaugment.OPERATIONS)


def test_photo_mirrors_half_of_the_images() -> None:
    side = AUGMENTATIONS["photo"].working_size(SIZE)
    images = np.full((400, side, side, 3), 220, dtype=np.uint8)
    images[:, :, : side // 2] = 40
    results = photo(images, SIZE, image_uniforms(0, 0, 0, 400))
    mirrored = results[:, :, :4].mean((1, 2, 3)) > results[:, :, -4:].mean((1, 2, 3))
    assert 0.4 < mirrored.mean() < 0.6


def test_light_shifts_and_repeats_the_border() -> None:
    image = np.arange(16 * 16, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)
    draws = middle_draws(1)
    draws[0, :2] = 0.99, 0.0  # two down, two to the left
    shifted = light(image, 16, draws)[0, ..., 0]
    padded = np.pad(image[0, ..., 0], 2, mode="edge")
    np.testing.assert_array_equal(shifted, padded[0:16, 4:20])
    np.testing.assert_array_equal(light(image, 16, middle_draws(1)), image)


def test_crop_boxes_keep_to_their_range() -> None:
    boxes = [crop_box(100, row[:4]) for row in image_uniforms(0, 0, 0, 500)]
    for top, left, height, width in boxes:
        assert 0 <= top <= top + height <= 100
        assert 0 <= left <= left + width <= 100
        assert height * width >= 0.43 * 100 * 100  # the aspect is cut where it would leave the square
        assert 0.78 < height / width < 1.28
    assert min(height * width for _, _, height, width in boxes) < 5500


def test_medical_without_angle_zoom_or_jitter_is_a_resize() -> None:
    side = AUGMENTATIONS["medical"].working_size(56)
    images = pictures(1, side)
    draws = middle_draws(1)
    draws[0, 1] = 0.0
    difference = medical(images, 56, draws)[0].astype(int) - resize(images[0], 56, 56)
    assert np.abs(difference[1:-1, 1:-1]).max() <= 4


def test_rotation_and_zoom_turn_about_the_chosen_centre() -> None:
    a, b, c, d, e, f = rotation_and_zoom(64, 32, np.array([1.0, 1.0, 0.5, 0.5]))
    centre = (a * 16 + b * 16 + c, d * 16 + e * 16 + f)
    assert centre == pytest.approx((32, 32))
    scale = 64 * 0.85 / 32
    assert np.hypot(a, d) == pytest.approx(scale)
    assert np.degrees(np.arctan2(b, a)) == pytest.approx(10)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [((1, 1, 1), (200, 100, 50)), ((0.5, 1, 1), (100, 50, 25)), ((1, 0.5, 1), (164, 114, 89)),
     ((1, 1, 0), (124, 124, 124)), ((2, 1, 1), (255, 200, 100))],
)  # fmt: skip
def test_colour_jitter_follows_its_formula(
    gains: tuple[float, float, float], expected: tuple[int, int, int]
) -> None:
    pixel = jitter_colours(Image.new("RGB", (1, 1), (200, 100, 50)), *gains).getpixel((0, 0))
    assert np.abs(np.subtract(pixel, expected)).max() <= 1


def test_rand_augment_draws_every_operation_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, float, int]] = []

    def recorder(number: int) -> randaugment.Operation:
        def record(image: Image.Image, strength: float, direction: int) -> Image.Image:
            calls.append((number, strength, direction))
            return image

        return record

    operations = tuple(recorder(number) for number in range(len(randaugment.OPERATIONS)))
    monkeypatch.setattr(randaugment, "OPERATIONS", operations)
    for row in image_uniforms(0, 0, 0, 3500):
        randaugment.rand_augment(Image.new("RGB", (2, 2)), row)
    numbers, strengths, directions = (np.array(column) for column in zip(*calls, strict=True))
    assert len(calls) == 2 * 3500
    assert np.bincount(numbers).min() > 400
    assert np.bincount(numbers).max() < 600
    assert abs(strengths.mean() - 0.5) < 0.02
    assert abs(directions.mean()) < 0.05


def test_rand_augment_ranges_are_the_papers() -> None:
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3)))
    values = np.asarray(ramp)[0, :, 0].astype(int)

    def row(image: Image.Image) -> npt.NDArray[np.int64]:
        return np.asarray(image)[128, :, 0].astype(np.int64)

    assert len(np.unique(row(randaugment.posterize(ramp, 1.0, 1)))) == 16
    assert len(np.unique(row(randaugment.posterize(ramp, 0.0, 1)))) == 256
    np.testing.assert_array_equal(row(randaugment.solarize(ramp, 0.0, 1)), values)
    np.testing.assert_array_equal(row(randaugment.solarize(ramp, 1.0, 1)), 255 - values)
    np.testing.assert_array_equal(row(randaugment.solarize(ramp, 0.5, 1))[:128], values[:128])
    np.testing.assert_allclose(row(randaugment.brightness(ramp, 1.0, -1)), 0.1 * values, atol=1)
    shifted = row(randaugment.translate_x(ramp, 1.0, 1))
    assert shifted[10] == pytest.approx(10 + 256 * 150 / 331, abs=1)
    assert (shifted[-100:] == 128).all()
    sheared = np.asarray(randaugment.shear_x(ramp, 1.0, 1))[:, 100, 0].astype(int)
    assert sheared[200] - sheared[100] == pytest.approx(30, abs=1)
    half = Image.fromarray(
        np.repeat(np.array([[0, 255]], np.uint8), 128, axis=1)[..., None].repeat(3, 2).repeat(256, 0)
    )
    rotated = np.asarray(randaugment.rotate(half, 1.0, 1))[..., 0].astype(int)
    edges = [np.flatnonzero(rotated[y, 40:216] > 127)[0] for y in (100, 156)]
    assert abs(edges[0] - edges[1]) == pytest.approx(56 * np.tan(np.radians(30)), abs=2)
