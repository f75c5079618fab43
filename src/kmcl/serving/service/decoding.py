"""From the bytes of an untrusted upload to pixels at the model's size."""

from __future__ import annotations

import warnings
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from kmcl.data.files import load_rgb
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.predictions import Pixels
from kmcl.serving.service.errors import ServiceError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Common formats of photographs. Other formats of Pillow run programs (EPS) or are little tested."""


def decode_upload(content: bytes, name: str, predictor: ImagePredictor, max_pixels: int) -> Pixels:
    """The image at the model's size; a ServiceError says what is wrong with it.

    Width and height are read from the header and checked before any pixel is decoded, so a decompression
    bomb costs nothing.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit decides
            image = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        formats = ", ".join(FORMATS)
        raise ServiceError(
            415, "unsupported_image", f"{name} is not an image of a supported format ({formats})"
        ) from None
    except Image.DecompressionBombError:
        raise ServiceError(
            413, "too_many_pixels", f"{name} has more than the {max_pixels:,} pixels that are accepted"
        ) from None
    except Exception as error:
        raise _broken(name, error) from error
    with image:
        width, height = image.size
        if width * height > max_pixels:
            raise ServiceError(
                413,
                "too_many_pixels",
                f"{name} has {width} x {height} pixels; at most {max_pixels:,} are accepted",
            )
        try:
            return predictor.resize(load_rgb(image, predictor.image_size))
        except MemoryError:
            raise
        except Exception as error:
            # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, zlib.error and others.
            raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ServiceError:
    reason = str(error) or type(error).__name__
    return ServiceError(422, "broken_image", f"{name} cannot be decoded: {reason}")
