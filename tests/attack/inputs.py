"""Damaged files of every kind that is read: each is read, or refused with an InputError, in time.

A process of its own reads them; one that dies is a failure, and another goes on.
"""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pydicom
import torch
from annotation_files import annotation_files
from mutation import damaged
from other_files import other_files
from PIL import Image
from tally import Tally, arguments
from tiny_model import make_predictor

from kmcl.data import open_dataset
from kmcl.data.files import decode_image
from kmcl.errors import LONGEST_MESSAGE, InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.runs.resolution import read_settings, resolve_settings
from kmcl.serving import load
from kmcl.serving.export import export_model
from kmcl.training.callbacks import check_checkpoint

HANG_SECONDS = 60
"""Of processor time: a process that others keep waiting does not hang."""
BLOCKED_SECONDS = 900
"""Of the clock, for what waits without using the processor."""
WORKER = "--worker"
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF")


class Kind(NamedTuple):
    """A kind of input.

    path:    the file that is damaged
    content: what it holds when it is sound
    read:    reads it; raises InputError for what it refuses
    """

    name: str
    path: Path
    content: bytes
    read: Callable[[], object]


def kinds(folder: Path) -> list[Kind]:
    rng = np.random.default_rng(0)
    grey = np.full((1, 32, 32, 3), 128, dtype=np.uint8)
    made: list[Kind] = []

    def add(name: str, path: Path, read: Callable[[], object]) -> None:
        made.append(Kind(name, path, path.read_bytes(), read))

    picture = Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8))
    for file_format in FORMATS:
        path = folder / f"image.{file_format.lower()}"
        picture.save(path, file_format, **({"compression": "tiff_lzw"} if file_format == "TIFF" else {}))
        add("image", path, lambda path=path: decode_image(path, 32))

    dicom = folder / "image.dcm"
    _write_dicom(dicom, rng.integers(0, 4096, (40, 48), dtype=np.uint16))
    add("image", dicom, lambda: decode_image(dicom, 32))

    for number in range(8):
        picture.save(folder / f"{number}.png")
    rows = [(f"{n % 8}.png", "train" if n < 30 else "test", n % 2) for n in range(40)]
    tables = {
        "columns.csv": "image,split,patient,cat,dog,rare\n"
        + "".join(f"{image},{split},p{n},{cat},{1 - cat},\n" for n, (image, split, cat) in enumerate(rows)),
        "names.csv": "image,labels\n" + "".join(f"{image},cat|dog|{split}\n" for image, split, _ in rows),
        "tabs.tsv": "image\tcat\n" + "".join(f"{image}\t{cat}\n" for image, _, cat in rows),
    }
    for name, text in tables.items():
        (folder / name).write_text(text)
        add("table", folder / name, lambda name=name: open_dataset(f"table:{folder / name}"))

    settings = folder / "settings.yaml"
    settings.write_text(resolve_settings("digits").to_yaml())
    add("settings", settings, lambda: read_settings(settings))

    scores = rng.random((6, 3)).astype(np.float32)
    targets = rng.integers(-1, 2, (6, 3)).astype(np.int8)
    predictions = folder / "test.npz"
    Predictions(("a", "b", "c"), tuple("123456"), scores, targets).save(predictions)
    add("predictions", predictions, lambda: Predictions.load(predictions))

    model = folder / "model"
    predictor = make_predictor()
    predictor.save_pretrained(model)
    for name in ("model.json", "model.safetensors"):
        add("model folder", model / name, lambda: load(model).score(grey))

    exported = folder / "model.onnx"
    export_model(predictor, exported, np.repeat(grey, 2, axis=0))
    add("onnx file", exported, lambda: load(exported).score(grey))

    checkpoint = folder / "last.ckpt"
    buffer = io.BytesIO()
    torch.save({"state_dict": {"a": torch.zeros(50)}, "epoch": 3}, buffer)
    checkpoint.write_bytes(buffer.getvalue())
    add("checkpoint", checkpoint, lambda: check_checkpoint(checkpoint))
    for other in (*other_files(folder), *annotation_files(folder / "annotations")):
        add(*other)
    return made


def _write_dicom(path: Path, pixels: np.ndarray) -> None:
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    header = pydicom.dataset.Dataset()
    header.file_meta = meta
    header.Rows, header.Columns = pixels.shape
    header.SamplesPerPixel, header.PixelRepresentation = 1, 0
    header.PhotometricInterpretation = "MONOCHROME2"
    header.BitsAllocated, header.BitsStored, header.HighBit = 16, 12, 11
    header.WindowCenter, header.WindowWidth = "2000", "3000"
    header.PixelData = pixels.tobytes()
    header.save_as(path, enforce_file_format=True)


class HangError(BaseException):
    """Not an Exception, so that nothing that is attacked can catch it."""


def main() -> None:
    seed, seconds, folder = arguments()
    tally, has_read = Tally(seconds, folder), True
    for number in count():
        if tally.time_left <= 0 or not has_read:
            break
        own = folder / str(number)
        own.mkdir()
        command = [sys.executable, __file__, str(seed + number), str(tally.time_left), str(own), WORKER]
        status = subprocess.run(command).returncode
        has_read = (own / "now.txt").is_file()
        tally.add(own / "result.json")
        if status and has_read:
            path = Path((own / "now.txt").read_text())
            kept = folder / f"failure-{number}-{path.name}"
            kept.write_bytes(path.read_bytes())
            tally.fail(f"{kept}: status {status} of the process that read it")
        elif status:
            tally.fail(f"status {status} before the first file; see {folder / 'output.txt'}")
    tally.finish()


def attack() -> None:
    seed, seconds, folder = arguments()
    os.environ["KMCL_CACHE"] = str(folder / "cache")
    warnings.simplefilter("ignore")
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _hang)
    tally, rng = Tally(seconds, folder), random.Random(seed)
    attacked = kinds(folder)
    for kind in attacked:
        kind.read()  # sound
    while tally.time_left > 0:
        kind = rng.choice(attacked)
        content = damaged(kind.content, rng)
        (folder / "now.txt").write_text(str(kind.path))
        kind.path.write_bytes(content)  # it stays there if the process dies
        outcome = _outcome(kind)
        tally.count(kind.name)
        if outcome is not None:
            kept = folder / f"failure-{rng.randrange(10**9)}-{kind.path.name}"
            kept.write_bytes(content)
            tally.fail(f"{kind.name} {kept}: {outcome}")
        kind.path.write_bytes(kind.content)
    tally.finish()


def _outcome(kind: Kind) -> str | None:
    """What is wrong with how the input was treated; None if nothing is."""
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED_SECONDS)
    try:
        kind.read()
    except InputError as error:
        return f"a message of {len(str(error))} characters" if len(str(error)) > LONGEST_MESSAGE else None
    except HangError:
        return f"not read within {HANG_SECONDS} s of processor time, or {BLOCKED_SECONDS} s of waiting"
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _hang(number: int, frame: object) -> None:
    raise HangError


if __name__ == "__main__":
    attack() if WORKER in sys.argv else main()
