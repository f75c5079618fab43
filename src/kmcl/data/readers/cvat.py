"""CVAT for images 1.1: tags of images, in XML or in the zip archive that CVAT exports.

    <annotations>
      <meta><task><labels><label><name>cat</name></label></labels></task></meta>
      <image id="0" name="a.jpg" subset="train"><tag label="cat"/><box label="dog" .../></image>
    </annotations>

An image has the labels of its tags and of its shapes. The archive may have the images in it (`images/`);
otherwise they are looked for near it. Subsets that are called like splits are the splits.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

import numpy as np

from kmcl.data.dataset import Dataset, ImageStore
from kmcl.data.files import require_file
from kmcl.data.image_lookup import FolderIndex, find_images
from kmcl.data.readers.annotations import AnnotatedImage, AnnotationOptions, dataset_from_annotations
from kmcl.data.readers.reader import Reader
from kmcl.data.zipped_images import ZippedImages
from kmcl.errors import InputError
from kmcl.home_folder import expand_home
from kmcl.storage.archives import ARCHIVE_ERRORS

MEMBER = "annotations.xml"
NO_SUBSET = ("", "default")
SHAPES = ("box", "cuboid", "ellipse", "mask", "points", "polygon", "polyline", "skeleton")


class CvatOptions(AnnotationOptions):
    """Options of `cvat:`.

    shapes: whether an image also has the labels of its boxes, polygons and other shapes.
    """

    shapes: bool = True


def read_cvat(path: Path, options: CvatOptions) -> Dataset:
    """Read an export; see the module's description of the format."""
    require_file(path, "CVAT annotations")
    archive = path if zipfile.is_zipfile(path) else None
    listed, annotated = _parse(_opener(path, archive), path, options.shapes)
    if not annotated:
        raise InputError(f"CVAT annotations {path} have no image")
    return dataset_from_annotations(
        annotated,
        _images(path, archive, annotated, options.images),
        listed,
        options,
        name=path.resolve().parent.name if path.name == MEMBER else path.stem,
        source=f"CVAT annotations {path}",
    )


def _opener(path: Path, archive: Path | None) -> Callable[[], IO[bytes]]:
    if archive is None:
        return lambda: path.open("rb")
    members = [name for name in _members(archive) if name.rpartition("/")[2] == MEMBER]
    if len(members) != 1:
        raise InputError(
            f"CVAT archive {path} holds {len(members)} files {MEMBER}, expected one; export one task or the "
            "project in the format 'CVAT for images 1.1'"
        )
    return lambda: zipfile.ZipFile(archive).open(members[0])


def _members(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except ARCHIVE_ERRORS as error:
        raise InputError(f"CVAT archive {archive} cannot be read: {error}") from error


def _parse(
    opener: Callable[[], IO[bytes]], path: Path, with_shapes: bool
) -> tuple[list[str], list[AnnotatedImage]]:
    """The labels that the file lists, and its images; a large file is never in memory as a whole."""
    listed: list[str] = []
    annotated: list[AnnotatedImage] = []
    kinds = ("tag", *SHAPES) if with_shapes else ("tag",)
    try:
        with opener() as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag == "label":
                    if element.find("parent") is None:  # not a part of a skeleton
                        listed.append((element.findtext("name") or "").strip())
                elif element.tag == "track":
                    raise InputError(
                        f"CVAT annotations {path} are of a video; export them as 'CVAT for images 1.1'"
                    )
                elif element.tag == "image":
                    labels = frozenset(child.get("label", "") for child in element if child.tag in kinds)
                    subset = element.get("subset", "")
                    split = "" if subset.lower() in NO_SUBSET else subset
                    annotated.append(AnnotatedImage(element.get("name", ""), labels, split=split))
                    element.clear()
    except InputError:
        raise
    except (ElementTree.ParseError, LookupError, *ARCHIVE_ERRORS) as error:
        raise InputError(f"CVAT annotations {path} cannot be read: {error}") from error
    return list(dict.fromkeys(filter(None, listed))), annotated


def _images(
    path: Path, archive: Path | None, annotated: list[AnnotatedImage], chosen: Path | None
) -> ImageStore:
    names = [image.path for image in annotated]
    if archive is not None and chosen is None:
        members = _members(archive)
        # In the archive of a project, the images of each subset have a folder.
        by_end = {member.partition("images/")[2]: member for member in members if "images/" in member}
        by_name = {member.rpartition("/")[2]: member for member in members}
        found = [
            by_end.get(f"{image.split}/{image.path}")
            or by_end.get(image.path)
            or by_name.get(image.path.rpartition("/")[2])
            for image in annotated
        ]
        if any(found):
            return ZippedImages(
                archive, np.array([member or name for member, name in zip(found, names, strict=True)])
            )
    folder = path.parent if chosen is None else path.parent / expand_home(chosen)
    return find_images(names, [folder, folder / "images"], path, FolderIndex(folder))


READER = Reader(read_cvat, CvatOptions, place="annotations.xml or a zip archive")
