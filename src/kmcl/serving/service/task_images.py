"""The images that tasks of Label Studio name: in a folder, or on its server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kmcl.data.readers.labelstudio import image_path
from kmcl.errors import InputError
from kmcl.serving.service.label_studio_host import DATA, ImageError, LabelStudioHost
from kmcl.serving.service.settings import LABEL_STUDIO_URL


@dataclass(frozen=True)
class TaskImages:
    """Where the images of tasks are.

    host:   the server that is asked for them; None for none
    folder: where they are looked for first: the document root of local files, or the media folder, which has
            the uploads; None for none
    """

    host: LabelStudioHost | None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"the folder with the files of Label Studio does not exist: {self.folder}")

    @classmethod
    def at(cls, url: str | None, token: str | None, folder: Path | None) -> Self:
        """On the server of an address and in a folder; on this machine's server where neither is given."""
        if url is None and folder is None:
            url = LABEL_STUDIO_URL
        return cls(None if url is None else LabelStudioHost(url, token or None), folder)

    def read(self, reference: object, max_bytes: int, seconds: float) -> bytes:
        """The bytes of an image, within a time; ImageError says why not."""
        if not isinstance(reference, str) or not reference:
            raise ImageError("its data name no image")
        found = None if self.folder is None else _read_below(self.folder.resolve(), reference, max_bytes)
        if found is not None:
            return found
        if self.host is None:
            raise ImageError("its image is not in the folder with the files of Label Studio")
        return self.host.get(reference, max_bytes, seconds)


def _read_below(folder: Path, reference: str, max_bytes: int) -> bytes | None:
    """A file of the folder; None where it has none of this name. A link out of the folder does not count."""
    name = image_path(reference).lstrip("/").removeprefix(DATA[1:])
    try:
        file = (folder / name).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            return None
        if file.stat().st_size > max_bytes:
            raise ImageError(f"the file has more than {max_bytes:,} bytes")
        return file.read_bytes()
    except (OSError, ValueError, RuntimeError):  # null bytes, an overlong name, a loop of links
        return None
