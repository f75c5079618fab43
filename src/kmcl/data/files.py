"""Images as files: decoding any mode to RGB, and the store over a folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from kmcl.data.image_formats import open_image
from kmcl.data.libtiff import silence_libtiff
from kmcl.errors import InputError

TWELVE_BITS = 1 << 12
TIFF_INTERPRETATION, WHITE_IS_ZERO = 262, 0

FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True)
class ImageFiles:
    """Image files by their paths below a folder.

    names: N paths relative to `root` (or absolute ones). A numpy array, so that forked workers share it.
    """

    root: Path
    names: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return str(self.root / str(self.names[index]))

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_image(self.root / str(self.names[index]), min_side)


def decode_image(path: Path, min_side: int | None = None) -> npt.NDArray[np.uint8]:
    """Decode an image file to height x width x 3 uint8 RGB, upright; raise InputError naming the file.

    With `min_side` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size as long as its shorter side keeps
    that many pixels: several times faster for a large photograph.

    Only regular files are opened: a named pipe would wait for a writer, a device may never end.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        raise InputError(f"image {path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"image {path} cannot be decoded: {reason}") from error
    if kind != stat.S_IFREG:
        raise InputError(f"image {path} is {FILE_KINDS.get(kind, 'not a regular file')}, not a file")
    try:
        with open_image(path) as image:
            return load_rgb(image, min_side)
    except FileNotFoundError:
        raise InputError(f"image {path} does not exist") from None
    except MemoryError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, zlib.error and others.
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"image {path} cannot be decoded: {reason}") from error


def load_rgb(image: Image.Image, min_side: int | None = None) -> npt.NDArray[np.uint8]:
    """The pixels of an image that Pillow has opened, as `decode_image` gives them; errors are Pillow's."""
    if min_side is not None:
        image.draft(None, (min_side, min_side))
    is_negative = False
    if image.format == "TIFF":
        silence_libtiff()
        # Pillow inverts an image in which white is 0 if it has eight bits, and not if it has 16.
        tags = getattr(image, "tag_v2", {})
        is_negative = image.mode.startswith("I") and tags.get(TIFF_INTERPRETATION) == WHITE_IS_ZERO
    image.load()
    pixels = _to_rgb_array(_upright(image))
    return 255 - pixels if is_negative else pixels


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        # A broken EXIF block is no reason to lose the picture: without an orientation it stays as stored.
        return image


def _to_rgb_array(image: Image.Image) -> npt.NDArray[np.uint8]:
    if image.mode.startswith("I") or image.mode == "F":
        grey = _to_eight_bits(np.asarray(image))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            # The colour of a transparent pixel is arbitrary, so it becomes white.
            ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(ground, image)
    return np.array(image.convert("RGB"), dtype=np.uint8)


def _to_eight_bits(pixels: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Grey values of more than eight bits to eight.

    The scale is fixed (12 or 16 bits, by the largest value), not stretched to each image's own range, so
    that brightness stays comparable between images. Twelve-bit X-rays usually come in 16-bit files. Float
    images count as 0 to 1 when nothing exceeds 1, as 0 to 255 otherwise.
    """
    values = np.nan_to_num(pixels.astype(np.float32))
    largest = float(values.max(initial=0.0))
    if pixels.dtype.kind == "f":
        full_scale = 1.0 if largest <= 1 else 255.0
    elif largest < 256:
        full_scale = 255.0
    else:
        full_scale = TWELVE_BITS - 1 if largest < TWELVE_BITS else 65535.0
    scaled: npt.NDArray[np.float32] = np.clip(np.rint(values * (255.0 / full_scale)), 0, 255)
    return scaled.astype(np.uint8)


def require_folder(path: Path, what: str) -> Path:
    if not os.path.isdir(path):
        state = "is not a folder" if os.path.exists(path) else "does not exist"
        raise InputError(f"{what} {path} {state}")
    return path


def require_file(path: Path, what: str) -> Path:
    if not os.path.isfile(path):
        state = "is not a file" if os.path.exists(path) else "does not exist"
        raise InputError(f"{what} {path} {state}")
    return path


def some_image_exists(images: ImageFiles) -> bool:
    step = max(1, len(images) // 50)
    likely = [*range(0, len(images), step), *range(len(images))]
    # os.path, not pathlib, whose `isfile` raises for a name that is longer than a file name may be.
    return any(os.path.isfile(images.root / str(images.names[index])) for index in likely)


def require_some_images(images: ImageFiles, source: Path | str) -> None:
    """Raise InputError if none of the images exists; single missing files are found when they are loaded."""
    if not some_image_exists(images):
        raise InputError(
            f"none of the {len(images)} images named in {source} exists; the first would be {images.name(0)}"
        )
