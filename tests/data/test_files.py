"""Decoding: whatever a file holds becomes upright eight-bit RGB, or one clear error."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data.files import ImageFiles, decode_image, require_some_images
from kmcl.errors import InputError

RED, GREEN = (220, 30, 40), (20, 200, 60)


def two_halves() -> Image.Image:
    """Twelve by eight pixels, left half red, right half green."""
    image = Image.new("RGB", (12, 8), RED)
    image.paste(GREEN, (6, 0, 12, 8))
    return image


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK"])
def test_colour_modes_decode_to_the_same_picture(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    (two_halves().quantize(4) if mode == "P" else two_halves().convert(mode)).save(path)
    pixels = decode_image(path)
    assert pixels.shape == (8, 12, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels[4, 2].astype(int) - RED).max() <= 3
    assert np.abs(pixels[4, 9].astype(int) - GREEN).max() <= 3


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_grey_becomes_three_equal_channels(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (5, 4), 255).convert(mode).save(path)
    assert (decode_image(path) == 255).all()


@pytest.mark.parametrize(("largest", "expected"), [(65535, 128), (4095, 128)])
def test_sixteen_and_twelve_bits_are_scaled_by_a_fixed_factor(
    tmp_path: Path, largest: int, expected: int
) -> None:
    values = np.array([[0, largest // 2, largest]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    pixels = decode_image(tmp_path / "a.png")
    assert pixels[0, 0, 0] == 0
    assert abs(int(pixels[0, 1, 1]) - expected) <= 1
    assert pixels[0, 2, 2] == 255


def test_transparent_pixels_show_white_whatever_they_hide(tmp_path: Path) -> None:
    image = two_halves().convert("RGBA")
    image.putpixel((0, 0), (0, 0, 0, 0))
    image.save(tmp_path / "a.png")
    pixels = decode_image(tmp_path / "a.png")
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[4, 2].tolist() == list(RED)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to show
    two_halves().save(tmp_path / "a.png", exif=exif)
    pixels = decode_image(tmp_path / "a.png")
    assert pixels.shape == (12, 8, 3)
    assert pixels[2, 4].tolist() == list(RED)
    assert pixels[9, 4].tolist() == list(GREEN)


def test_draft_decoding_is_smaller_but_keeps_the_shorter_side(tmp_path: Path) -> None:
    two_halves().resize((800, 500)).save(tmp_path / "a.jpg")
    full = decode_image(tmp_path / "a.jpg")
    small = decode_image(tmp_path / "a.jpg", min_side=120)
    assert full.shape == (500, 800, 3)
    assert small.shape == (125, 200, 3)
    assert decode_image(tmp_path / "a.jpg", min_side=600).shape == (500, 800, 3)


def test_broken_files_are_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jpg"
    two_halves().resize((300, 200)).save(whole)
    cases = {
        "truncated.jpg": whole.read_bytes()[:700],
        "text.png": b"this is no image",
        "empty.jpg": b"",
        "header.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
        "strange.gif": b"GIF89a" + b"\xff" * 30,
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            decode_image(tmp_path / name)
    with pytest.raises(InputError, match=r"gone\.png does not exist"):
        decode_image(tmp_path / "gone.png")
    with pytest.raises(InputError, match="is a folder, not a file"):
        decode_image(tmp_path)
    with pytest.raises(InputError, match=r"image .*/n{80}… cannot be decoded: File name too long$"):
        decode_image(tmp_path / ("n" * 3000))


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """A pipe would wait for a writer for ever, a device may never end."""
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "device.jpg").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket.jpg"))
    for name, kind in {
        "pipe.jpg": "a named pipe",
        "device.jpg": "a device",
        "socket.jpg": "a socket",
    }.items():
        with pytest.raises(InputError, match=f"{name} is {kind}, not a file"):
            decode_image(tmp_path / name)
    two_halves().save(tmp_path / "real.jpg")
    (tmp_path / "link.jpg").symlink_to("real.jpg")
    assert decode_image(tmp_path / "link.jpg").shape == (8, 12, 3)


def test_libtiff_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It writes its warnings to the file descriptor, past Python."""
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(
        tmp_path / "a.tif", compression="tiff_lzw"
    )
    content = bytearray((tmp_path / "a.tif").read_bytes())
    for _ in range(40):
        damaged = bytearray(content)
        for place in rng.integers(8, 4000, 5):
            damaged[place] = rng.integers(256)
        (tmp_path / "b.tif").write_bytes(damaged)
        with contextlib.suppress(InputError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decode_image(tmp_path / "b.tif")
    assert capfd.readouterr().err == ""


def test_store_gives_names_and_survives_pickling(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "b.png")
    store = pickle.loads(pickle.dumps(ImageFiles(tmp_path, np.array(["a.png", "b.png"]))))
    assert len(store) == 2
    assert store.name(1) == str(tmp_path / "b.png")
    assert store.load(1).shape == (8, 12, 3)
    require_some_images(store, Path("list.txt"))
    with pytest.raises(InputError, match=r"none of the 1 images named in list\.txt"):
        require_some_images(ImageFiles(tmp_path, np.array(["a.png"])), Path("list.txt"))
