"""Finding the files that a label file means: names without folder or extension, paths of another machine."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from kmcl.data.files import ImageFiles, some_image_exists
from kmcl.data.image_formats import image_suffixes
from kmcl.errors import InputError

MOST_FILES = 5_000_000
"""That are looked through: more than that is somebody's whole disk."""

MOST_DIGITS = 20


def is_image_name(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in image_suffixes()


def walk_files(root: Path) -> Iterable[str]:
    """Paths of the files below a folder, relative to it, in order; hidden ones are left out.

    Linked folders are followed, each once.
    """
    seen = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        state = os.stat(folder)
        if (state.st_dev, state.st_ino) in seen:
            folders.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        prefix = Path(folder).relative_to(root).as_posix()
        for name in sorted(files):
            if not name.startswith("."):
                yield name if prefix == "." else f"{prefix}/{name}"


class FolderIndex:
    """The images below a folder by their names, with and without extension; the folder is read once.

    A number without its leading zeros, as spreadsheets write it, finds the image of that number.

    option: which names another folder, for messages
    """

    def __init__(self, root: Path, option: str = "-o images=FOLDER") -> None:
        self.root = root
        self.option = option

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        paths: defaultdict[str, list[str]] = defaultdict(list)
        for number, path in enumerate(walk_files(self.root)):
            if number == MOST_FILES:
                raise InputError(
                    f"folder {self.root} holds more than {MOST_FILES:,} files, too many to look for images; "
                    f"name their folder with {self.option}"
                )
            name = path.rpartition("/")[2]
            if is_image_name(name):
                paths[name].append(path)
                paths[os.path.splitext(name)[0]].append(path)
        return paths

    @cached_property
    def _paths_by_number(self) -> dict[int, list[str]]:
        paths: defaultdict[int, list[str]] = defaultdict(list)
        for name, found in self._paths.items():
            if _is_number(name):
                paths[int(name)] += found
        return paths

    def find(self, wanted: str) -> str | None:
        """The image whose path ends most like the wanted one; None if no image has its name.

        The file name decides, with or without its extension; of several images with that name, the folders
        before it do. InputError if two images match equally well.
        """
        parts = wanted.replace("\\", "/").split("/")
        name = parts[-1]
        found = self._paths.get(name, [])
        if not found and is_image_name(name):
            found = self._paths.get(os.path.splitext(name)[0], [])
        if not found and _is_number(number := os.path.splitext(name)[0]):
            found = self._paths_by_number.get(int(number), [])
        if len(found) < 2:
            return found[0] if found else None
        scores = [_common_folders(path.split("/"), parts) for path in found]
        best = [path for path, score in zip(found, scores, strict=True) if score == max(scores)]
        if len(best) > 1:
            raise InputError(
                f"image {wanted!r} may be {best[0]} or {best[1]} in {self.root}; "
                f"name the folder of the images with {self.option}"
            )
        return best[0]


def _is_number(name: str) -> bool:
    return len(name) < MOST_DIGITS and name.isascii() and name.isdigit()


def _common_folders(path: Sequence[str], wanted: Sequence[str]) -> int:
    """How many folders before the file name agree, from the end."""
    count = 0
    for one, other in zip(reversed(path[:-1]), reversed(wanted[:-1]), strict=False):
        if one != other:
            break
        count += 1
    return count


def find_images(
    names: Sequence[str], folders: Sequence[Path], source: Path | str, index: FolderIndex
) -> ImageFiles:
    """The named images: in the first of the folders that has any of them, else wherever the index finds them.

    A single missing file keeps its name, and is reported when it is loaded or by `kmcl data check`.
    """
    paths = np.array([name.replace("\\", "/") for name in names])
    for folder in folders:
        images = ImageFiles(folder, paths)
        if some_image_exists(images):
            return images
    found = [index.find(name) for name in names]
    if not any(found):
        raise InputError(
            f"none of the {len(names)} images named in {source} exists below {index.root}; the first is "
            f"{names[0]!r}; name their folder with {index.option}"
        )
    return ImageFiles(
        index.root, np.array([path or name for path, name in zip(found, paths.tolist(), strict=True)])
    )


def lookup_notes(names: Sequence[str], images: ImageFiles) -> tuple[str, ...]:
    """A sentence if images are elsewhere than their names say, so that a wrong match does not pass unseen."""
    paths = images.names.tolist()
    moved = [pair for pair in zip(names, paths, strict=True) if pair[0].replace("\\", "/") != pair[1]]
    if not moved:
        return ()
    wanted, found = moved[0]
    return (f"images were looked for by name in {images.root}: {wanted!r} is {found}",)
