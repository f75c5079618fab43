"""Formats besides the usual ones: decoded, or answered with the package to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from kmcl.data.files import decode_image
from kmcl.data.image_formats import image_suffixes
from kmcl.errors import InputError

WITHOUT = """
import sys
from pathlib import Path
sys.modules[sys.argv[1]] = None
from kmcl.data.files import decode_image
try:
    decode_image(Path(sys.argv[2]))
except ValueError as error:
    print(error)
"""


def write_dicom(path: Path, pixels: np.ndarray, **elements: object) -> None:
    pydicom = pytest.importorskip("pydicom", reason="DICOM needs pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    header = pydicom.dataset.Dataset()
    header.file_meta = meta
    header.Rows, header.Columns = pixels.shape[-2:] if pixels.ndim < 4 else pixels.shape[1:3]
    header.SamplesPerPixel = 1
    header.PhotometricInterpretation = "MONOCHROME2"
    header.BitsAllocated, header.BitsStored, header.HighBit = 16, 12, 11
    header.PixelRepresentation = int(pixels.dtype == np.int16)
    header.PixelData = pixels.tobytes()
    for name, value in elements.items():
        setattr(header, name, value)
    header.save_as(path, enforce_file_format=True)


def grey(path: Path) -> list[int]:
    pixels = decode_image(path)
    assert (pixels == pixels[:, :, :1]).all()
    return [int(value) for value in pixels[0, :, 0]]


def test_dicom_is_scaled_by_its_bits_or_its_window(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_dicom(path, np.array([[0, 2048, 4095]], np.uint16))
    assert grey(path) == [0, 128, 255]
    write_dicom(path, np.array([[0, 2048, 4095]], np.uint16), PhotometricInterpretation="MONOCHROME1")
    assert grey(path) == [255, 127, 0]
    window = {
        "RescaleSlope": 1,
        "RescaleIntercept": -1024,
        "WindowCenter": [40, 300],
        "WindowWidth": [400, 9],
    }
    write_dicom(path, np.array([[0, 1064, 1264, 4095]], np.uint16), **window)
    assert grey(path) == [0, 128, 255, 255]
    write_dicom(path, np.array([[-2048, 0, 2047]], np.int16))
    assert grey(path) == [0, 128, 255]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("LINEAR", [0, 85, 170, 255]),  # its window has four values, 98 to 101
        ("LINEAR_EXACT", [0, 64, 128, 191]),
        ("SIGMOID", [30, 69, 128, 186]),
    ],
)
def test_dicom_windows_by_their_function(tmp_path: Path, function: str, expected: list[int]) -> None:
    window = {"WindowCenter": 100, "WindowWidth": 4, "VOILUTFunction": function}
    write_dicom(tmp_path / "a.dcm", np.array([[98, 99, 100, 101]], np.uint16), **window)
    assert grey(tmp_path / "a.dcm") == expected


def test_dicom_with_a_table_of_values(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom", reason="DICOM needs pydicom")
    table = pydicom.dataset.Dataset()
    table.LUTDescriptor = [4, 10, 8]
    table["LUTDescriptor"].VR = "US"
    table.LUTData = [200, 100, 50, 0]
    table["LUTData"].VR = "US"
    sequence = pydicom.sequence.Sequence([table])
    write_dicom(tmp_path / "a.dcm", np.array([[0, 10, 12, 4000]], np.uint16), VOILUTSequence=sequence)
    assert grey(tmp_path / "a.dcm") == [200, 200, 50, 0]


def test_dicom_of_several_frames_shows_the_first(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a", np.array([[[4095, 0]], [[0, 4095]]], np.uint16), NumberOfFrames=2)
    assert grey(tmp_path / "a") == [255, 0]


def test_dicom_in_colour(tmp_path: Path) -> None:
    elements = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    bits = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    pixels = np.array([[[[10, 20, 30], [200, 100, 0]]]], np.uint8)
    write_dicom(tmp_path / "a.dcm", pixels, **elements, **bits)
    assert decode_image(tmp_path / "a.dcm").tolist() == pixels[0].tolist()


def test_dicom_in_deep_colour_and_with_a_palette(tmp_path: Path) -> None:
    elements = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    pixels = np.array([[[[4095, 0, 2048]]]], np.uint16)
    write_dicom(tmp_path / "a.dcm", pixels, **elements)
    assert decode_image(tmp_path / "a.dcm").tolist() == [[[255, 0, 128]]]
    palette = {
        f"{colour}PaletteColorLookupTable{part}": value
        for colour, last in (("Red", 255), ("Green", 0), ("Blue", 40))
        for part, value in (("Descriptor", [2, 0, 8]), ("Data", bytes([9, last])))
    }
    bits = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7, "PhotometricInterpretation": "PALETTE COLOR"}
    write_dicom(tmp_path / "b.dcm", np.array([[0, 1]], np.uint8), **bits, **palette)
    assert decode_image(tmp_path / "b.dcm").tolist() == [[[9, 9, 9], [255, 0, 40]]]


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_of_sixteen_bits(tmp_path: Path, compression: str | None, order: str) -> None:
    values = np.array([[0, 30000, 65535]], np.uint16)
    path = tmp_path / "a.tif"
    image = Image.frombytes(
        "I;16B" if order == ">" else "I;16", (3, 1), values.astype(f"{order}u2").tobytes()
    )
    image.save(path, compression=compression)
    assert grey(path) == [0, 117, 255]
    if order == "<":  # Pillow does not read the other
        image.save(path, compression=compression, tiffinfo={262: 0})  # white is 0
        assert grey(path) == [255, 138, 0]


def test_tiff_of_eight_bits_in_which_white_is_zero(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 100, 255]], np.uint8)).save(tmp_path / "a.tif", tiffinfo={262: 0})
    with Image.open(tmp_path / "a.tif") as image:
        assert image.tag_v2[262] == 0
    assert grey(tmp_path / "a.tif") == [0, 100, 255]


def test_tiff_of_several_pages_shows_the_first(tmp_path: Path) -> None:
    pages = [Image.new("RGB", (4, 3), (value, 0, 0)) for value in (10, 20, 30)]
    pages[0].save(tmp_path / "a.tiff", save_all=True, append_images=pages[1:])
    with Image.open(tmp_path / "a.tiff") as image:
        assert image.n_frames == 3
    assert decode_image(tmp_path / "a.tiff")[0, 0].tolist() == [10, 0, 0]


def test_heic(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC needs pillow-heif")
    image = Image.new("RGB", (64, 32), (200, 30, 40))
    heif.from_pillow(image).save(tmp_path / "a.heic", quality=90)
    pixels = decode_image(tmp_path / "a.heic")
    assert pixels.shape == (32, 64, 3)
    assert np.abs(pixels.astype(int) - (200, 30, 40)).max() < 8


@pytest.mark.parametrize(
    ("module", "content", "message"),
    [
        (
            "pillow_heif",
            b"\0\0\0\x18ftypheic" + b"\0" * 200,
            "HEIC needs the package pillow-heif: pip install",
        ),
        ("pydicom", b"\0" * 128 + b"DICM" + b"\0" * 20, "DICOM needs the package pydicom: pip install"),
    ],
)
def test_what_to_install(tmp_path: Path, module: str, content: bytes, message: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    command = [sys.executable, "-c", WITHOUT, module, str(tmp_path / "a.bin")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"a.bin cannot be decoded: {message} 'kmcl[formats]'" in output


def test_other_files_are_refused_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(InputError, match=r"notes\.txt cannot be decoded: it is not in an image format"):
        decode_image(tmp_path / "notes.txt")
    (tmp_path / "empty.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"empty\.png cannot be decoded: the file is empty"):
        decode_image(tmp_path / "empty.png")


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif", ".gif", ".bmp", ".ppm", ".jp2", ".avif"])
def test_suffixes_are_those_of_files_that_decode(tmp_path: Path, suffix: str) -> None:
    if suffix == ".avif" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    Image.new("RGB", (16, 16), (200, 30, 40)).save(tmp_path / f"a{suffix}")
    assert decode_image(tmp_path / f"a{suffix}").shape == (16, 16, 3)
    assert suffix in image_suffixes()


def test_suffixes_of_what_does_not_decode() -> None:
    assert {".dcm", ".heic"} <= image_suffixes()
    assert not {".h5", ".mpg", ".eps", ".wmf", ".txt", ".csv", ".pdf", ""} & image_suffixes()
