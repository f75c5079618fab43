"""The images that `kmcl predict` is given: files, folders, patterns, lists, tables, datasets, tar shards, S3.

An image is known by a record, a JSON value from which it can be opened again; a list of records on the disk
takes no memory and is the same for every process and after every interruption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kmcl.data import open_dataset
from kmcl.data.dataset import ImageStore, StoredImage
from kmcl.data.files import ImageFiles
from kmcl.data.image_paths import LeftOut, images_below, matching_files
from kmcl.data.readers.features import vectors_of_file
from kmcl.data.readers.image_columns import images_of_rows
from kmcl.data.readers.registry import READERS
from kmcl.data.readers.table_rows import read_rows
from kmcl.data.recognition import TABLE_SUFFIXES
from kmcl.data.s3_images import S3Image, images_in_s3
from kmcl.data.tar_images import TAR_SUFFIX, TarMember, images_in_tar
from kmcl.errors import InputError
from kmcl.home_folder import expand_home
from kmcl.serving.predictions import ImageLike
from kmcl.storage.s3 import SCHEME, S3Object

LIST_SUFFIX = ".txt"
VECTORS = "features:"
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")

Record = str | Mapping[str, Any]
"""A path, or where an image is in an archive or a dataset."""


def check_record(value: object) -> Record:
    """The record in a JSON value; TypeError for anything else."""
    if isinstance(value, str):
        return value
    value = dict(value) if isinstance(value, dict) else {}
    in_archive = {"archive": str, "member": str, "offset": int, "size": int}
    fields = in_archive if "archive" in value else {"data": str, "split": str, "index": int}
    if not all(isinstance(value.get(name), kind) for name, kind in fields.items()):
        raise TypeError(f"{value!r} is no image")
    return value


class ImageSource:
    """What the arguments of a command name; they are checked at once and searched when `find` is called.

    left_out: files of folders that are no images, as far as they have been searched
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = [(text, _kind(text)) for text in arguments]
        self._stores: dict[str, dict[str, ImageStore]] = {}
        self.left_out = LeftOut()

    def fingerprint(self) -> list[list[str | int]]:
        """What must be unchanged for the same images to be found; of folders and patterns the name."""
        return [_fingerprint(text, kind) for text, kind in self._arguments]

    def find(self) -> Iterator[Record]:
        """The records of the images in order; an image that two arguments name comes once."""
        if len(self._arguments) == 1:
            yield from self._find(*self._arguments[0])
            return
        seen = set()
        for text, kind in self._arguments:
            for record in self._find(text, kind):
                key = record if isinstance(record, str) else tuple(record.items())
                if key not in seen:
                    seen.add(key)
                    yield record

    def open(self, record: Record) -> ImageLike:
        """The image of a record; nothing of it is read yet."""
        if isinstance(record, str):
            return S3Image(S3Object.parse(record)) if record.startswith(SCHEME) else Path(record)
        if "archive" in record:
            place = record["archive"]
            archive = S3Object.parse(place) if place.startswith(SCHEME) else Path(place)
            return TarMember(archive, record["member"], int(record["offset"]), int(record["size"]))
        return StoredImage(self._splits(record["data"])[record["split"]], int(record["index"]))

    def _find(self, text: str, kind: str) -> Iterator[Record]:
        if kind == "folder":
            yield from map(str, images_below(Path(text), self.left_out))
        elif kind == "dataset":
            yield from self._find_in_dataset(text)
        elif kind == "s3":
            for image in images_in_s3(S3Object.parse(text)):
                yield _in_archive(image) if isinstance(image, TarMember) else image.name
        else:
            for path in matching_files(text):
                yield from self._find_in_file(path)

    def _find_in_file(self, path: Path) -> Iterator[Record]:
        suffix = path.suffix.lower()
        if suffix == TAR_SUFFIX:
            yield from map(_in_archive, images_in_tar(path))
        elif suffix == LIST_SUFFIX:
            yield from _listed(path)
        elif path.name.lower().endswith(TABLE_SUFFIXES):
            yield from self._find_in_dataset(str(path))
        elif path.name.lower().endswith(COMPRESSED):
            raise InputError(f"{path}: is compressed, and images are read at their position; decompress it")
        else:
            yield str(path)

    def _find_in_dataset(self, text: str) -> Iterator[Record]:
        for split, store in self._splits(text).items():
            for index in range(len(store)):
                in_file = isinstance(store, ImageFiles)
                yield store.name(index) if in_file else {"data": text, "split": split, "index": index}

    def _splits(self, text: str) -> dict[str, ImageStore]:
        """The images of a dataset by split; those of a table or of feature vectors are one, since labels are
        not read.
        """
        if text not in self._stores:
            path = expand_home(text.removeprefix("table:"))
            if not text.startswith(VECTORS) and path.name.lower().endswith(TABLE_SUFFIXES):
                self._stores[text] = {"all": images_of_rows(read_rows(path), path.parent)}
            elif text.startswith(VECTORS):
                location = Path(text.removeprefix(VECTORS)).expanduser()
                self._stores[text] = {"all": vectors_of_file(location)}
            else:
                splits = open_dataset(text).splits
                self._stores[text] = {name: split.images for name, split in splits.items()}
        return self._stores[text]


def _in_archive(image: TarMember) -> Record:
    place = {"archive": str(image.archive), "member": image.member}
    return place | {"offset": image.offset, "size": image.size}


def _kind(text: str) -> str:
    """folder, dataset, s3 or file; InputError for what is not there."""
    if text.startswith(SCHEME):
        return "s3"
    path = Path(text)
    if path.is_dir():
        return "folder"
    if not path.exists():
        if text.partition(":")[0] in READERS:
            return "dataset"
        matching_files(text)
    return "file"


def _fingerprint(text: str, kind: str) -> list[str | int]:
    if kind == "s3":
        return [text]
    path = expand_home(text.partition(":")[2] if kind == "dataset" else text)
    if not path.is_file():
        return [text, str(path.absolute())]
    state = path.stat()
    return [text, str(path.absolute()), state.st_size, state.st_mtime_ns]


def _listed(path: Path) -> Iterator[str]:
    """The paths of a list, one per line, relative to its folder; or addresses in S3."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig").strip()
            except UnicodeDecodeError:
                raise InputError(f"list {path} line {number}: is not UTF-8") from None
            if "\0" in text:
                raise InputError(f"list {path} line {number}: holds a null character; is it a list of paths?")
            if text:
                yield text if text.startswith(SCHEME) else str(path.parent / text)
