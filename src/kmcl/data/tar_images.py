"""Images in tar archives: the shards of WebDataset, or any other uncompressed archive.

An archive is searched once, header by header; an image is then read at its position, so any part of an
archive can be read again without what comes before it. One in S3 is searched in one pass over its bytes.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from kmcl.data.encoded_images import decode_bytes
from kmcl.data.files import require_file
from kmcl.data.image_formats import image_suffixes
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object

TAR_SUFFIX = ".tar"
STREAM_BYTES = 1 << 20

Archive = Path | S3Object


@dataclass(frozen=True)
class TarMember:
    """A file in an archive.

    member: its path inside
    offset: of its first byte in the archive
    size:   in bytes
    """

    archive: Archive
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.archive}/{self.member}"

    def read(self) -> bytes:
        """Its bytes; InputError where the archive has changed or cannot be read."""
        try:
            if isinstance(self.archive, S3Object):
                content = self.archive.read(self.offset, self.size)
            else:
                with self.archive.open("rb") as file:
                    file.seek(self.offset)
                    content = file.read(self.size)
        except OSError as error:
            raise InputError(f"archive {self.archive} cannot be read: {error.strerror}") from error
        if len(content) < self.size:
            raise InputError(f"archive {self.archive} is cut off within {self.member}")
        return content

    def load(self, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        """Decode it as an image; see `kmcl.data.dataset.ImageStore`."""
        return decode_bytes(self.read(), self.name, min_side)


@dataclass(frozen=True)
class TarImages:
    """Images in archives, by position. Arrays, so that forked workers share them.

    archives: the archives
    members:  N paths inside, UTF-8
    places:   N x 3: number of the archive, offset, size
    """

    archives: tuple[Archive, ...]
    members: npt.NDArray[np.bytes_]
    places: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.members)

    def member(self, index: int) -> TarMember:
        archive, offset, size = map(int, self.places[index])
        return TarMember(self.archives[archive], self.members[index].decode(), offset, size)

    def name(self, index: int) -> str:
        return self.member(index).name

    def encoded(self, index: int) -> bytes:
        """The bytes of the file."""
        return self.member(index).read()

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return self.member(index).load(min_side)


def files_in_tar(path: Archive) -> Iterator[TarMember]:
    """The regular files of an archive in order, hidden ones left out; memory does not grow with them."""
    try:
        with _opened(path) as (archive, num_bytes):
            while (member := archive.next()) is not None:
                if member.size < 0:  # or the next header would be looked for here again
                    raise InputError(f"archive {path} is damaged at {member.name}")
                archive.members = []  # type: ignore[attr-defined]  # tarfile keeps them all
                if not member.isreg() or any(
                    part.startswith(".") and part != "." for part in PurePosixPath(member.name).parts
                ):
                    continue
                if member.offset_data + member.size > num_bytes:
                    raise InputError(f"archive {path} is cut off within {member.name}")
                yield TarMember(path, member.name, member.offset_data, member.size)
    except InputError:
        raise
    except (tarfile.TarError, EOFError, LookupError, ValueError) as error:
        raise InputError(f"archive {path} is not a readable, uncompressed tar file: {error}") from error
    except OSError as error:
        raise InputError(f"archive {path} cannot be read: {error.strerror}") from error


@contextmanager
def _opened(path: Archive) -> Iterator[tuple[tarfile.TarFile, int]]:
    """An archive and its size. A name in another encoding is shown with question marks: positions matter."""
    if isinstance(path, S3Object):
        with (
            path.stream() as file,
            tarfile.open(fileobj=file, mode="r|", bufsize=STREAM_BYTES, errors="replace") as archive,
        ):
            yield archive, path.size
    else:
        require_file(path, "archive")
        with tarfile.open(path, "r:", errors="replace") as archive:
            yield archive, path.stat().st_size


def images_in_tar(path: Archive) -> Iterator[TarMember]:
    """The files of an archive whose suffix is that of an image."""
    return (file for file in files_in_tar(path) if is_image(file.member))


def is_image(member: str) -> bool:
    return PurePosixPath(member).suffix.lower() in image_suffixes()
