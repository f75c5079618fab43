"""Predictions of many images that survive interruptions and can be shared by many processes.

While `scores.parquet` is being made, the folder `scores.parquet.parts` has

    images.jsonl     a record of every image, in order
    manifest.json    what is predicted, with which model, and where the chunks of `images.jsonl` begin
    00000000.parquet the predictions of the first chunk, 00000001.parquet those of the second, ...

The folder appears with its first two files in it, by one renaming; of processes that begin at the same time
one is first, and the others use its folder. A chunk's number says which images are in it, and its file
appears by one renaming when it is complete. So whatever ends a process (kill -9 included) and however many
work at the same time, every image is in exactly one chunk, and a chunk is there as a whole or not at all. A
process that is started again computes the chunks that are missing. When none is, they are joined in order.

Part 3 of 64 computes the chunks 2, 66, 130 ...; any process may compute any chunk, and two that compute the
same one write the same file.
"""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from kmcl.errors import InputError
from kmcl.serving.image_sources import Record, check_record
from kmcl.storage.atomic import STALE_SECONDS, WriteError, rename_folder, write_json

FORMAT = 1
MAX_CHUNK_IMAGES = 1000
"""What an interruption costs at most, for each process."""

IMAGES, MANIFEST = "images.jsonl", "manifest.json"
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a file of the folder raises that something else has changed."""


@dataclass(frozen=True)
class Part:
    """One of several processes that share the images: `number` from 1 to `count`."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f"--part must be as in 3/64, the third of 64; got {text!r}")
        return cls(int(number), int(count))


class PredictionJob:
    """The folder of parts beside an output; see the module. `begin` makes it or goes on with it."""

    def __init__(self, output: Path, manifest: Mapping[str, Any]) -> None:
        self.output = output
        self.folder = parts_folder(output)
        self.num_images = int(manifest["num_images"])
        self.begun: str = manifest["begun"]
        self.is_complete = bool(manifest.get("complete"))
        self._manifest = manifest
        self._chunk_images = int(manifest["chunk_images"])
        self._offsets: Sequence[int] = manifest["offsets"]
        if self._chunk_images < 1 or len(self._offsets) != -(-self.num_images // self._chunk_images):
            raise ValueError("the manifest contradicts itself")

    @classmethod
    def begin(
        cls,
        output: Path,
        about: Mapping[str, Any],
        find: Callable[[], Iterable[Record]],
        part: Part | None = None,
    ) -> Self:
        """Go on with the job of this output, or make it.

        about: JSON values; a job that was begun with others is refused
        find:  gives the records of the images, if the job has to be made
        part:  of the caller, if there are several; without it, a job that is complete is made anew
        """
        folder = parts_folder(output)
        if not (folder / MANIFEST).is_file():
            if folder.is_dir() and all(re.fullmatch(r"\d{8}\..*", path.name) for path in folder.iterdir()):
                remove_parts(output)  # chunks that came after another process had joined them
            _create(folder, about, find, 1 if part is None else part.count)
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            known = dict(manifest["about"]) if manifest["format"] == FORMAT else {}
            job = cls(output, manifest)
        except (OSError, *DAMAGED) as error:
            raise _damaged(folder) from error
        if job.is_complete and part is None:
            remove_parts(output)
            return cls.begin(output, about, find)
        changed = [name for name in {**known, **about} if known.get(name) != about.get(name)]
        if changed:
            raise InputError(
                f"{folder}: was begun with another {changed[0]}; repeat that command to go on with it, or "
                "remove the folder to begin again"
            )
        return job

    @property
    def num_chunks(self) -> int:
        return len(self._offsets)

    def chunk_file(self, chunk: int) -> Path:
        return self.folder / f"{chunk:08d}{self.output.suffix}"

    def chunk_files(self) -> list[Path]:
        return [self.chunk_file(chunk) for chunk in range(self.num_chunks)]

    def chunks(self, part: Part | None = None) -> range:
        """The chunks of a part, or all."""
        part = part or Part()
        return range(part.number - 1, self.num_chunks, part.count)

    def missing(self, part: Part | None = None) -> list[int]:
        """Those without predictions."""
        there = {path.name for path in self.folder.iterdir()}
        return [chunk for chunk in self.chunks(part) if self.chunk_file(chunk).name not in there]

    def num_images_of(self, chunks: Iterable[int]) -> int:
        size = self._chunk_images
        return sum(min(size, self.num_images - chunk * size) for chunk in chunks)

    def records(self, chunk: int) -> list[Record]:
        """The images of a chunk."""
        with (self.folder / IMAGES).open("rb") as lines:
            try:
                lines.seek(self._offsets[chunk])
                found = [json.loads(lines.readline()) for _ in range(self.num_images_of([chunk]))]
                return [check_record(record) for record in found]
            except DAMAGED as error:
                raise _damaged(self.folder) from error

    def finish(self, join: Callable[[Sequence[Path]], None], *, keep_manifest: bool) -> None:
        """Join the chunks into the output and remove the folder, unless another process did.

        keep_manifest: leave the folder with a manifest that says that the job is complete
        """
        try:
            join(self.chunk_files())
        except OSError:
            if self.is_done_by_another():
                return
            raise
        if keep_manifest:
            write_json(self.folder / MANIFEST, {**self._manifest, "complete": True})
            for path in self.folder.iterdir():
                if path.name != MANIFEST:
                    path.unlink(missing_ok=True)
        else:
            remove_parts(self.output)

    def is_done_by_another(self) -> bool:
        """Whether another process has joined the chunks."""
        try:
            return bool(json.loads((self.folder / MANIFEST).read_text(encoding="utf-8")).get("complete"))
        except FileNotFoundError:
            return self.output.exists()
        except DAMAGED as error:
            raise _damaged(self.folder) from error


def parts_folder(output: Path) -> Path:
    return output.with_name(output.name + ".parts")


def remove_parts(output: Path) -> None:
    """Remove the folder of an output; at once by its name, so that nobody finds a part of it."""
    folder = parts_folder(output)
    aside = _temporary(folder)
    with suppress(FileNotFoundError):  # another process was faster
        rename_folder(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)


def _create(
    folder: Path, about: Mapping[str, Any], find: Callable[[], Iterable[Record]], num_parts: int
) -> None:
    temporary = _temporary(folder)
    _remove_stale(folder)
    try:
        temporary.mkdir(parents=True)
        num_images = _write_list(temporary / IMAGES, find())
        if not num_images:
            raise InputError("there is no image to predict")
        size = chunk_size(num_images, num_parts)
        manifest = {
            "format": FORMAT,
            "about": about,
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_images": num_images,
            "chunk_images": size,
            "offsets": _offsets(temporary / IMAGES, size),
        }
        write_json(temporary / MANIFEST, manifest)
        try:
            rename_folder(temporary, folder)
        except OSError:
            if not (folder / MANIFEST).is_file():  # else another process was faster
                raise
    except OSError as error:
        if isinstance(error, WriteError) and error.is_full:
            raise
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    """What processes left that were killed while they made or removed the folder."""
    for old in folder.parent.glob(f".{glob.escape(folder.name)}.*.partial"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


def chunk_size(num_images: int, num_parts: int) -> int:
    """Images in a chunk, so that every part has the same number of chunks, or one fewer."""
    chunks_per_part = -(-num_images // (num_parts * MAX_CHUNK_IMAGES))
    return -(-num_images // (num_parts * chunks_per_part))


def _write_list(path: Path, records: Iterable[Record]) -> int:
    count = 0
    with path.open("w", encoding="ascii") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def _offsets(path: Path, size: int) -> list[int]:
    """Where the first line of each chunk begins."""
    offsets: list[int] = []
    position = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            if number % size == 0:
                offsets.append(position)
            position += len(line)
    return offsets


def _damaged(folder: Path) -> InputError:
    return InputError(f"{folder}: is not a folder of predictions: remove it to begin again")


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
