"""Where shards are: a folder of this machine, or a prefix in S3; tar files, or chunks of LitData."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kmcl.data.files import require_folder
from kmcl.data.tar_images import TAR_SUFFIX, Archive
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object, list_objects, s3_location

CHUNK_INDEX = "index.json"


@dataclass(frozen=True)
class ShardFolder:
    """The shards of a dataset by their names.

    title:  the folder for messages
    name:   the last part of it
    shards: path inside the folder -> archive, or -> the index.json of a folder of LitData's chunks
    index:  the file beside them that lists labels and shards; None if there is none
    chunked: whether they are LitData's
    """

    title: str
    name: str
    shards: dict[str, Archive]
    index: Archive | None
    chunked: bool


def find_shards(location: Path, index: str) -> ShardFolder:
    """The .tar files below a folder or prefix, else LitData's; `index` is the name of what lists them."""
    prefix = s3_location(location)
    title = f"folder of shards {prefix or location}"
    if prefix is None:
        require_folder(location, "folder of shards")
        name = location.resolve().name
        paths = sorted(path for path in location.rglob("*") if not path.name.startswith("."))
        files: dict[str, Archive] = {path.relative_to(location).as_posix(): path for path in paths}
    else:
        folder = prefix.key.rstrip("/")
        name = folder.rpartition("/")[2] or prefix.bucket
        files = {one.key.removeprefix(f"{folder}/"): one for one in list_objects(prefix)}
    tars = {inside: file for inside, file in files.items() if inside.endswith(TAR_SUFFIX)}
    chunked = {inside: file for inside, file in files.items() if inside.split("/")[-1] == CHUNK_INDEX}
    if not tars and not chunked:
        raise InputError(f"{title} has no .tar file, and no {CHUNK_INDEX} of LitData")
    return ShardFolder(title, name, tars or chunked, files.get(index), chunked=not tars)


def read_text(file: Archive) -> str:
    return (file.read() if isinstance(file, S3Object) else file.read_bytes()).decode()
