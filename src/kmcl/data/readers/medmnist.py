"""MedMNIST archives: one .npz with `{train,val,test}_{images,labels}`, at 28, 64, 128 or 224 pixels.

ChestMNIST has 14 labels, which may occur together. The other two-dimensional sets have one class number per
image; these become labels of which each image has exactly one.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.data.arrays import ArrayImages, MappedImages
from kmcl.data.dataset import SPLIT_NAMES, Dataset, ImageStore, Split
from kmcl.data.files import require_file
from kmcl.data.readers.chestxray14 import FINDINGS
from kmcl.data.readers.options import Names, ReaderOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.source_cache import cache_folder, fingerprint, try_to_write
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError
from kmcl.storage.archives import ARCHIVE_ERRORS

CACHE_VERSION = "medmnist-1"
MAPPED_BYTES = 1 << 30  # ChestMNIST at 224 pixels has 3.9 GB of training images; at 64 0.3 GB


class MedmnistOptions(ReaderOptions):
    """Options of `medmnist:`.

    label_names: the labels in order; default the findings for ChestMNIST, numbers for other sets.
    """

    label_names: Names | None = None


def read_medmnist(path: Path, options: MedmnistOptions) -> Dataset:
    """Read an archive; more than a gigabyte of images is unpacked to the cache folder and mapped."""
    require_file(path, "MedMNIST archive")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
        with np.load(path, allow_pickle=False) as content:
            labels = {name: content[f"{name}_labels"] for name in SPLIT_NAMES if f"{name}_images" in content}
            images = {name: _open_images(path, content, members[f"{name}_images"]) for name in labels}
    except KeyError as error:
        raise InputError(f"MedMNIST archive {path}: {error.args[0]}") from None
    except ARCHIVE_ERRORS as error:
        raise InputError(f"MedMNIST archive {path} cannot be read: {error}") from error
    if not labels:
        raise InputError(f"MedMNIST archive {path} has no train_images, val_images or test_images")
    targets, names = _to_targets(path, labels, options.label_names)
    splits = {}
    for name, store in images.items():
        if len(store) != len(targets[name]):
            raise InputError(
                f"MedMNIST archive {path}: {len(store)} {name}_images but {len(targets[name])} {name}_labels"
            )
        splits[name] = Split(store, targets[name])
    return Dataset(path.stem, names, finish_splits(splits, options))


def _open_images(path: Path, content: np.lib.npyio.NpzFile, member: zipfile.ZipInfo) -> ImageStore:
    key = member.filename.removesuffix(".npy")
    source = f"{path}:{key}"
    if member.file_size > MAPPED_BYTES:
        unpacked = cache_folder() / "sources" / f"{path.stem}-{key}-{fingerprint([path], CACHE_VERSION)}.npy"
        if unpacked.exists() or try_to_write(unpacked, lambda target: _unpack(path, member, target)):
            mapped = np.load(unpacked, mmap_mode="r", allow_pickle=False)
            _check_images(source, mapped)
            return MappedImages(unpacked, source, len(mapped))
    pixels = content[key]
    _check_images(source, pixels)
    return ArrayImages(pixels, source)


def _unpack(path: Path, member: zipfile.ZipInfo, target: Path) -> None:
    with zipfile.ZipFile(path) as archive, archive.open(member) as packed, open(target, "wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)


def _check_images(source: str, pixels: npt.NDArray[np.generic]) -> None:
    # Three-dimensional sets are N x D x D x D: their last axis is not colour.
    is_grey = pixels.ndim == 3
    is_colour = pixels.ndim == 4 and pixels.shape[3] in (1, 3)
    if pixels.dtype != np.uint8 or not (is_grey or is_colour):
        raise InputError(
            f"{source} is {pixels.dtype} of shape {pixels.shape}, expected uint8 N x H x W or N x H x W x 3"
        )


def _to_targets(
    path: Path, labels: dict[str, npt.NDArray[np.generic]], given: tuple[str, ...] | None
) -> tuple[dict[str, npt.NDArray[np.int8]], tuple[str, ...]]:
    arrays = {name: np.atleast_2d(array.T).T.astype(np.int64) for name, array in labels.items()}
    widths = {array.shape[1] for array in arrays.values()}
    if len(widths) != 1:
        raise InputError(f"MedMNIST archive {path}: splits have {sorted(widths)} labels")
    if widths == {1}:
        num_classes = max(int(array.max(initial=0)) for array in arrays.values()) + 1
        arrays = {name: np.eye(num_classes, dtype=np.int64)[array[:, 0]] for name, array in arrays.items()}
    num_labels = next(iter(arrays.values())).shape[1]
    if any(not np.isin(array, (0, 1)).all() for array in arrays.values()):
        raise InputError(f"MedMNIST archive {path}: labels hold values other than 0 and 1")
    usual = FINDINGS if num_labels == len(FINDINGS) else tuple(str(index) for index in range(num_labels))
    names = given or usual
    if len(names) != num_labels:
        raise InputError(f"label_names has {len(names)} names for the {num_labels} labels of {path}")
    return {name: array.astype(np.int8) for name, array in arrays.items()}, names


READER = Reader(read_medmnist, MedmnistOptions, place="an .npz file")
