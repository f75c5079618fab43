"""Images by the paths that a command is given: files, folders and patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kmcl.data.image_formats import image_suffixes
from kmcl.errors import InputError

SHOWN_FILES = 10

GivenPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Files, folders or patterns: one of them or several."""


def path_texts(paths: GivenPaths) -> list[str]:
    """One path or several as a list of texts."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


@dataclass
class LeftOut:
    """What is in the given folders and has no image's suffix, or is no regular file.

    first: the first few of them
    """

    number: int = 0
    first: list[Path] = field(default_factory=list)

    def add(self, path: Path) -> None:
        self.number += 1
        if len(self.first) < SHOWN_FILES:
            self.first.append(path)

    @property
    def note(self) -> str | None:
        """A sentence about these files; None if there are none."""
        if not self.number:
            return None
        files = (
            "1 file is no image and was"
            if self.number == 1
            else f"{self.number} files are no images and were"
        )
        return f"{files} left out: {self.names}"

    @property
    def names(self) -> str:
        more = self.number - len(self.first)
        return ", ".join(map(str, self.first)) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class FoundImages:
    """images: without repeats, in order"""

    images: list[Path]
    left_out: LeftOut


def find_images(paths: Iterable[str]) -> FoundImages:
    """The given files, the images below the given folders, and the matches of the patterns.

    From a folder come all files whose suffix is that of a format that can be decoded; hidden files and those
    in hidden folders are neither taken nor listed.
    """
    found: dict[Path, None] = {}
    left_out = LeftOut()
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found.update(dict.fromkeys(images_below(path, left_out)))
        else:
            found.update(dict.fromkeys(matching_files(text)))
    return FoundImages(list(found), left_out)


def images_below(folder: Path, left_out: LeftOut) -> Iterator[Path]:
    """The images of a folder, one after the other; InputError if there is none."""
    inside = LeftOut()
    found = False
    for path in files_below(folder):
        # A pipe with the name of an image would be waited for.
        if path.suffix.lower() in image_suffixes() and path.is_file():
            found = True
            yield path
        else:
            inside.add(path)
            left_out.add(path)
    if not found:
        what = f" (but {inside.names})" if inside.number else ""
        raise InputError(f"{folder}: there is no image in this folder{what}")


def files_below(folder: Path) -> Iterator[Path]:
    """What is no folder below a folder and not hidden, in the order of the paths; links to folders are not
    followed. Memory grows with the largest folder, not with their number.
    """
    try:
        with os.scandir(folder) as entries:
            inside = sorted((entry for entry in entries if not entry.name.startswith(".")), key=_name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(folder / entry.name)
        elif not entry.is_dir():
            yield folder / entry.name


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def matching_files(text: str) -> Sequence[Path]:
    """The file of that name, or the files that match a pattern; InputError if there is none."""
    path = Path(text)
    if path.exists():
        return [path]
    if not glob.has_magic(text):
        raise InputError(f"{path}: there is no such file or folder")
    matches = sorted(glob.glob(text, recursive=True))
    if not matches:
        raise InputError(f"{text}: matches no file")
    return [Path(match) for match in matches if Path(match).is_file()]
