"""The images that a command is given: files, folders and patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmcl.errors import InputError

SHOWN_FILES = 10


@dataclass(frozen=True)
class FoundImages:
    """images:   without repeats, in order
    left_out: what is in the given folders and has no image's suffix, or is no regular file
    """

    images: list[Path]
    left_out: list[Path]

    @property
    def note(self) -> str | None:
        """A sentence about the files that were left out; None if there are none."""
        return f"{_count(self.left_out)} left out: {_names(self.left_out)}" if self.left_out else None


def find_images(paths: Iterable[str]) -> FoundImages:
    """The given files, the images below the given folders, and the matches of the patterns.

    From a folder come all files whose suffix is that of a format that can be decoded; hidden files and those
    in hidden folders are neither taken nor listed.
    """
    from kmcl.data.image_formats import image_suffixes  # Pillow and numpy, which help does not need

    found: dict[Path, None] = {}
    left_out: dict[Path, None] = {}
    for text in paths:
        path = Path(text)
        if path.is_dir():
            inside = _files_below(path)
            # A pipe with the name of an image would be waited for.
            images = [file for file in inside if file.suffix.lower() in image_suffixes() and file.is_file()]
            others = sorted(set(inside) - set(images))
            if not images:
                what = f" (but {_names(others)})" if others else ""
                raise InputError(f"{path}: there is no image in this folder{what}")
            found.update(dict.fromkeys(images))
            left_out.update(dict.fromkeys(others))
        elif path.exists() or not glob.has_magic(text):
            if not path.exists():
                raise InputError(f"{path}: there is no such file or folder")
            found[path] = None
        else:
            matches = sorted(glob.glob(text, recursive=True))
            if not matches:
                raise InputError(f"{text}: matches no file")
            found.update(dict.fromkeys(Path(match) for match in matches if Path(match).is_file()))
    return FoundImages(list(found), [path for path in left_out if path not in found])


def _files_below(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return sorted(path for path in files if not _is_hidden(path.relative_to(folder)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _count(files: Sequence[Path]) -> str:
    return "1 file is no image and was" if len(files) == 1 else f"{len(files)} files are no images and were"


def _names(files: Sequence[Path]) -> str:
    more = len(files) - SHOWN_FILES
    return ", ".join(map(str, files[:SHOWN_FILES])) + (f" and {more} more" if more > 0 else "")
