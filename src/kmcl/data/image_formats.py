"""The image formats that are decoded: those of Pillow, and DICOM and HEIC if their packages are installed."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from kmcl.data.dicom import dicom_image
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
