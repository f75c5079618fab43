"""The images of a dataset as files: those that are files already stay as they are, others become PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from kmcl.data.dataset import Dataset, ImageStore
from kmcl.data.files import ImageFiles, require_file
from kmcl.data.image_formats import open_image
from kmcl.data.selection import JoinedImages, SelectedImages
from kmcl.errors import InputError

IMAGES = "images"
SUFFIXES = {"JPEG": ".jpg", "TIFF": ".tif", "JPEG2000": ".jp2"}

OnImage = Callable[[int], object]
"""Called with 1 after each image."""


class WrittenImage(NamedTuple):
    """An image of a dataset as it is written.

    content: the bytes of a file; name: of that file, after its split and its place there
    targets: L, 1, 0 or unknown; group: "" if the split has no groups
    """

    split: str
    name: str
    content: bytes
    targets: npt.NDArray[np.int8]
    group: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        with open_image(BytesIO(self.content)) as image:
            return image.size


def written_images(dataset: Dataset, on_image: OnImage | None) -> Iterator[WrittenImage]:
    """The images of all splits in order."""
    for split, part in dataset.splits.items():
        for index in range(len(part)):
            content, suffix = encoded_image(part.images, index)
            group = "" if part.groups is None else str(part.groups[index])
            yield WrittenImage(split, f"{split}-{index:05d}{suffix}", content, part.targets[index], group)
            if on_image is not None:
                on_image(1)


def encoded_image(store: ImageStore, index: int) -> tuple[bytes, str]:
    """The bytes of an image file and its suffix."""
    if isinstance(store, SelectedImages):
        return encoded_image(store.images, int(store.indices[index]))
    if isinstance(store, JoinedImages):
        return encoded_image(*store.locate(index))
    if isinstance(store, ImageFiles):
        path = Path(store.name(index))
        return require_file(path, "image").read_bytes(), path.suffix.lower()
    if (encoded := getattr(store, "encoded", None)) is not None:
        content: bytes = encoded(index)
        return content, _suffix(content)
    buffer = BytesIO()
    Image.fromarray(store.load(index)).save(buffer, "PNG")
    return buffer.getvalue(), ".png"


def _suffix(content: bytes) -> str:
    try:
        with Image.open(BytesIO(content)) as image:
            kind = str(image.format)
    except OSError:  # DICOM and HEIC are recognised by their content
        return ""
    return SUFFIXES.get(kind, f".{kind.lower()}")


def require_new(folder: Path) -> None:
    """InputError if there is such a folder with anything in it."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: exists and is not empty; choose another folder")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def refuse_unknown(dataset: Dataset, what: str) -> None:
    """InputError if a label of an image is unknown, for formats that cannot say so."""
    for split, part in dataset.splits.items():
        found = np.argwhere(part.targets < 0)
        if len(found):
            row, label = found[0].tolist()
            raise InputError(
                f"{what} cannot say that a label is unknown, as {dataset.labels[label]!r} is for "
                f"{part.images.name(row)} ({split}); table, coco, labelstudio and hf can"
            )
