"""The image formats that are decoded: those of Pillow, and DICOM and HEIC if their packages are installed."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from kmcl.errors import InputError

HEIC_SUFFIXES = (".heic", ".heif", ".hif")
DICOM_SUFFIXES = (".dcm", ".dicom")
HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}

NOT_DECODED = {"BUFR", "GRIB", "HDF5", "WMF", "MPEG", "EPS"}
"""Formats that Pillow recognises and cannot decode, or only with a program of somebody else's."""


@cache
def image_suffixes() -> frozenset[str]:
    """Suffixes of the files that can be decoded, in lower case: `.jpg`, `.png`, ..."""
    Image.init()
    of_pillow = {
        suffix
        for suffix, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in NOT_DECODED
    }
    return frozenset({*of_pillow, *HEIC_SUFFIXES, *DICOM_SUFFIXES})


def open_image(source: Path | BinaryIO) -> Image.Image:
    """Open an image; for DICOM and HEIC without their packages, InputError says what to install."""
    try:
        return Image.open(source)
    except UnidentifiedImageError:
        start = _first_bytes(source)
        if start[4:8] == b"ftyp" and start[8:12] in HEIC_BRANDS:
            return _open_heic(source)
        if start[128:132] == b"DICM":
            return _open_dicom(source)
        if not start:
            raise InputError("the file is empty") from None
        raise InputError("it is not in an image format that can be read") from None


def _first_bytes(source: Path | BinaryIO) -> bytes:
    if isinstance(source, Path):
        with source.open("rb") as file:
            return file.read(132)
    source.seek(0)
    start = source.read(132)
    source.seek(0)
    return start


def _open_heic(source: Path | BinaryIO) -> Image.Image:
    try:
        import pillow_heif
    except ImportError:
        raise InputError("HEIC needs the package pillow-heif: pip install 'kmcl[formats]'") from None
    content = BytesIO(source.read_bytes()) if isinstance(source, Path) else source
    image: Image.Image = pillow_heif.open_heif(content).to_pillow()
    return image


def _open_dicom(source: Path | BinaryIO) -> Image.Image:
    try:
        import pydicom
    except ImportError:
        raise InputError("DICOM needs the package pydicom: pip install 'kmcl[formats]'") from None
    return dicom_image(pydicom.dcmread(source))


def dicom_image(header: Any) -> Image.Image:
    """The picture of a DICOM dataset as a radiologist sees it; the first frame of several.

    Grey values are cut to the window that the file names, else to the range of its stored bits, so that
    brightness stays comparable between images; MONOCHROME1 is inverted.
    """
    from pydicom.pixels.processing import apply_modality_lut

    pixels = np.asarray(header.pixel_array)
    is_colour = int(header.get("SamplesPerPixel", 1)) == 3
    if pixels.ndim > (3 if is_colour else 2):
        pixels = pixels[0]
    if is_colour:
        return Image.fromarray(pixels.astype(np.uint8))
    values = np.asarray(apply_modality_lut(pixels, header), dtype=np.float32)
    low, high = _grey_range(header)
    grey = np.clip((values - low) / max(high - low, 1e-6), 0, 1)
    if header.get("PhotometricInterpretation") == "MONOCHROME1":
        grey = 1 - grey
    return Image.fromarray(np.rint(255 * grey).astype(np.uint8))


def _grey_range(header: Any) -> tuple[float, float]:
    """The values that are shown as black and as white."""
    centre, width = _first(header.get("WindowCenter")), _first(header.get("WindowWidth"))
    if centre is not None and width is not None and width > 0:
        return centre - width / 2, centre + width / 2
    num_values = 2 ** int(header.BitsStored)
    lowest = -num_values // 2 if int(header.get("PixelRepresentation", 0)) else 0
    slope, intercept = float(header.get("RescaleSlope", 1)), float(header.get("RescaleIntercept", 0))
    ends = [slope * value + intercept for value in (lowest, lowest + num_values - 1)]
    return min(ends), max(ends)


def _first(value: Any) -> float | None:
    """A window may have several alternatives; the first is the preferred one."""
    if value is None or value == "":
        return None
    return float(value[0] if hasattr(value, "__getitem__") and not isinstance(value, str) else value)
