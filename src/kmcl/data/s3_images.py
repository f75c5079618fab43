"""Images in S3: objects of their own, or members of uncompressed tar files there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.encoded_images import decode_bytes
from kmcl.data.tar_images import TAR_SUFFIX, TarMember, images_in_tar, is_image
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object, list_objects


@dataclass(frozen=True)
class S3Image:
    """An object that is an image; it is fetched when it is decoded."""

    place: S3Object

    @property
    def name(self) -> str:
        return str(self.place)

    def load(self, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_bytes(self.place.read(), self.name, min_side)


def images_in_s3(prefix: S3Object) -> Iterator[S3Image | TarMember]:
    """The images below a prefix, and those in tar files below it; InputError if there is none."""
    found = False
    for one in list_objects(prefix):
        if one.name.lower().endswith(TAR_SUFFIX):
            for member in images_in_tar(one):
                found = True
                yield member
        elif is_image(one.name):
            found = True
            yield S3Image(one)
    if not found:
        raise InputError(f"{prefix}: there is no image and no .tar file with one below it")
