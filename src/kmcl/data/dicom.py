"""DICOM images as a radiologist sees them: rescaled, in the window that the file names, in eight bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Grey = npt.NDArray[np.float32]


def dicom_image(header: Any) -> Image.Image:
    """The picture of a DICOM dataset; the first frame of several.

    Grey values are cut to the window that the file names, or go through its table of values (VOI LUT), else
    they are scaled by the range of the stored bits, so that brightness stays comparable between images;
    MONOCHROME1 is inverted.
    """
    from pydicom.pixels.processing import apply_color_lut, apply_modality_lut

    pixels = np.asarray(header.pixel_array)
    num_samples = int(header.get("SamplesPerPixel", 1))
    if pixels.ndim > (3 if num_samples == 3 else 2):
        pixels = pixels[0]
    interpretation = header.get("PhotometricInterpretation")
    if interpretation == "PALETTE COLOR":
        colours = apply_color_lut(pixels, header)
        return Image.fromarray(_to_eight_bits(colours, 8 * colours.dtype.itemsize))
    if num_samples == 3:
        return Image.fromarray(_to_eight_bits(pixels, int(header.BitsStored)))
    grey = _grey(np.asarray(apply_modality_lut(pixels, header), dtype=np.float32), header)
    if interpretation == "MONOCHROME1":
        grey = 1 - grey
    return Image.fromarray(np.rint(255 * grey).astype(np.uint8))


def _to_eight_bits(pixels: npt.NDArray[np.generic], num_bits: int) -> npt.NDArray[np.uint8]:
    return (pixels.astype(np.int64) >> max(num_bits - 8, 0)).astype(np.uint8)


def _grey(values: Grey, header: Any) -> Grey:
    """Rescaled values from 0 (dark) to 1, by PS3.3 C.11.2 of the standard."""
    centre, width = _first(header.get("WindowCenter")), _first(header.get("WindowWidth"))
    if centre is not None and width is not None and width > 0:
        return _windowed(values, centre, width, str(header.get("VOILUTFunction") or "LINEAR"))
    if header.get("VOILUTSequence"):
        return _looked_up(values, header)
    num_values = 2 ** int(header.BitsStored)
    lowest = -num_values // 2 if int(header.get("PixelRepresentation", 0)) else 0
    slope, intercept = float(header.get("RescaleSlope", 1)), float(header.get("RescaleIntercept", 0))
    ends = [slope * value + intercept for value in (lowest, lowest + num_values - 1)]
    return _between(values, min(ends), max(ends))


def _windowed(values: Grey, centre: float, width: float, function: str) -> Grey:
    if function == "SIGMOID":
        grey: Grey = 1 / (1 + np.exp(-4 * (values - centre) / width))
        return grey
    if function == "LINEAR":  # whose window has `width` whole numbers, the ends included
        centre, width = centre - 0.5, width - 1
    return _between(values, centre - width / 2, centre + width / 2)


def _looked_up(values: Grey, header: Any) -> Grey:
    from pydicom.pixels.processing import apply_voi

    num_bits = int(header.VOILUTSequence[0].LUTDescriptor[2])
    looked_up = np.asarray(apply_voi(values.astype(np.int64), header), dtype=np.float32)
    return _between(looked_up, 0, 2**num_bits - 1)


def _between(values: Grey, low: float, high: float) -> Grey:
    scaled: Grey = np.clip((values - low) / max(high - low, 1e-6), 0, 1)
    return scaled


def _first(value: Any) -> float | None:
    """A window may have several alternatives; the first is the preferred one."""
    if value is None or value == "":
        return None
    return float(value[0] if hasattr(value, "__getitem__") and not isinstance(value, str) else value)
