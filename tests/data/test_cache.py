from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from kmcl.data import cache
from kmcl.data.cache import (
    CacheFile,
    CacheKind,
    CacheWarning,
    DiskImages,
    MemoryImages,
    content_key,
    open_cached,
)
from kmcl.data.decoding import DecodedImages
from kmcl.data.files import ImageFiles
from kmcl.errors import InputError
from kmcl.storage import chunk_file

NUM_IMAGES = 10
SIZE = 16


@dataclass
class CountingStore:
    """Images of random noise that count how often they are decoded; those in `bad` cannot be."""

    bad: tuple[int, ...] = ()
    seed: int = 0
    num_decoded: int = 0

    def __len__(self) -> int:
        return NUM_IMAGES

    def name(self, index: int) -> str:
        return f"noise[{index}]"

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        self.num_decoded += 1
        if index in self.bad:
            raise InputError(f"image {self.name(index)} cannot be decoded: torn")
        generator = np.random.default_rng((self.seed, index))
        return generator.integers(0, 256, (20 + index, 30, 3), dtype=np.uint8)


def every() -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).permutation(NUM_IMAGES)


def open_in(folder: Path, store: CountingStore, kind: CacheKind = "disk", *, skip: bool = False) -> object:
    return open_cached(store, SIZE, kind, cache_dir=folder, skip_bad_images=skip)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_cached_rows_equal_decoded_rows_without_decoding(kind: CacheKind, tmp_path: Path) -> None:
    store = CountingStore()
    source = open_cached(store, SIZE, kind, cache_dir=tmp_path)
    assert isinstance(source, MemoryImages if kind == "memory" else DiskImages)
    expected = DecodedImages(CountingStore(), SIZE).rows(every())
    decoded_before = store.num_decoded
    for _ in range(3):
        assert np.array_equal(source.rows(every()).pixels, expected.pixels)
    assert store.num_decoded == decoded_before
    copy = pickle.loads(pickle.dumps(source))
    assert np.array_equal(copy.rows(every()).pixels, expected.pixels)


def test_threads_decode_the_same_rows_in_the_same_order() -> None:
    one, three = (DecodedImages(CountingStore(bad=(4,)), SIZE, num_threads=n).rows(every()) for n in (1, 3))
    assert one.problems == three.problems
    assert one.problems.keys() == {int(np.flatnonzero(every() == 4)[0])}
    good = [slot for slot in range(NUM_IMAGES) if slot not in one.problems]
    assert np.array_equal(one.pixels[good], three.pixels[good])


def test_a_mapped_cache_pickles_as_a_path_not_as_pixels(tmp_path: Path) -> None:
    assert len(pickle.dumps(open_in(tmp_path, CountingStore()))) < 1000


def test_a_second_run_finds_the_disk_cache(tmp_path: Path) -> None:
    open_in(tmp_path, CountingStore())
    again = CountingStore()
    open_in(tmp_path, again)
    assert again.num_decoded == cache.NUM_SAMPLED_IMAGES  # the key looks at these, nothing else is decoded
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".chunks", ".lock", ".pixels"]


def test_the_key_changes_with_the_size_the_pixels_and_the_files(tmp_path: Path) -> None:
    keys = {
        content_key(CountingStore(), 16),
        content_key(CountingStore(), 17),
        content_key(CountingStore(seed=1), 16),
    }
    path = tmp_path / "a.png"
    store = ImageFiles(tmp_path, np.array(["a.png"] * 20))
    for shade in (10, 20):
        Image.new("RGB", (4, 4), (shade, 0, 0)).save(path)
        keys.add(content_key(store, 16))
    os.utime(path, ns=(1, 1))
    keys.add(content_key(store, 16))
    assert len(keys) == 6
    assert content_key(CountingStore(), 16) in keys


def test_the_key_of_files_is_the_same_by_a_relative_and_an_absolute_path(tmp_path: Path, monkeypatch) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path.parent)
    stores = [ImageFiles(root, np.array(["a.png"])) for root in (tmp_path, Path(tmp_path.name))]
    assert len({store.name(0) for store in stores}) == 2
    assert len({content_key(store, 16) for store in stores}) == 1


@pytest.mark.parametrize("damage", ["truncated", "flipped", "zeroed"])
def test_a_damaged_cache_is_mended(damage: str, tmp_path: Path) -> None:
    open_in(tmp_path, CountingStore())
    (path,) = tmp_path.glob("*.pixels")
    data = bytearray(path.read_bytes())
    row = SIZE * SIZE * 3
    if damage == "truncated":
        data = data[: 3 * row]
    elif damage == "flipped":
        data[4 * row + 7] ^= 1
    else:
        data[2 * row : 4 * row] = bytes(2 * row)
    path.write_bytes(data)
    store = CountingStore()
    source = open_cached(store, SIZE, "disk", cache_dir=tmp_path)
    expected = DecodedImages(CountingStore(), SIZE).rows(every())
    assert np.array_equal(source.rows(every()).pixels, expected.pixels)
    damaged_rows = {"truncated": NUM_IMAGES, "flipped": 1, "zeroed": 2}[damage]
    assert store.num_decoded == cache.NUM_SAMPLED_IMAGES + damaged_rows


def test_an_interrupted_cache_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = CacheFile(tmp_path / "x.pixels", NUM_IMAGES, SIZE)

    def interrupt(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        file.complete(CountingStore(), skip_bad_images=False, on_progress=interrupt)
    assert not file.path.exists()
    store, progress = CountingStore(), list[tuple[int, int]]()
    file.complete(
        store, skip_bad_images=False, on_progress=lambda done, total: progress.append((done, total))
    )
    assert store.num_decoded == NUM_IMAGES - 6
    assert progress == [(done, NUM_IMAGES) for done in range(7, NUM_IMAGES + 1)]
    source = DiskImages(file.path, NUM_IMAGES, SIZE, {})
    assert np.array_equal(
        source.rows(every()).pixels, DecodedImages(CountingStore(), SIZE).rows(every()).pixels
    )


SLOW_FILL = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_cache import CountingStore
from kmcl.data.cache import CacheFile

def wait(done, total):
    if done == 4:
        print("four", flush=True)
        time.sleep(60)

CacheFile(Path(sys.argv[1]), 10, 16).complete(CountingStore(), skip_bad_images=False, on_progress=wait)
"""


def test_a_killed_process_leaves_a_usable_partial_cache_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.pixels"
    arguments = [sys.executable, "-c", SLOW_FILL, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "four\n"
        process.send_signal(signal.SIGKILL)
    store, started = CountingStore(), time.monotonic()
    CacheFile(path, NUM_IMAGES, SIZE).complete(store, skip_bad_images=False)
    assert time.monotonic() - started < 30
    assert store.num_decoded == NUM_IMAGES - 4


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_an_unreadable_image_is_named_or_remembered(kind: CacheKind, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"noise\[3\] cannot be decoded"):
        open_in(tmp_path, CountingStore(bad=(3,)), kind)
    for _ in range(2):  # on the disk: filling, then finding the row marked
        source = open_cached(
            CountingStore(bad=(3, 5)), SIZE, kind, cache_dir=tmp_path / "b", skip_bad_images=True
        )
        rows = source.rows(np.array([5, 2, 3], dtype=np.int64))
        assert rows.problems == {
            0: "image noise[5] cannot be decoded: torn",
            2: "image noise[3] cannot be decoded: torn",
        }
        assert np.array_equal(
            rows.pixels[1:2], DecodedImages(CountingStore(), SIZE).rows(np.array([2])).pixels
        )


def test_a_disk_that_fills_up_ends_in_a_warning_and_an_uncached_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def write(file: object, data: bytes, offset: int) -> None:
        written.append(offset)
        if len(written) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(chunk_file, "_write", write)
    refusal = (
        r"\.pixels: cannot be written: No space left on device \(3,840 bytes needed, [\d,]+ bytes free\)"
    )
    with pytest.warns(CacheWarning, match=rf"{refusal}; continuing without it.*free some space"):
        source = open_in(tmp_path, CountingStore())
    assert isinstance(source, DecodedImages)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_too_little_space_is_said_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("kmcl.storage.atomic.shutil.disk_usage", lambda path: usage)
    store = CountingStore()
    with pytest.warns(
        CacheWarning, match=r"No space left on device \(7,680 bytes needed, 1,000 bytes free\)"
    ):
        assert isinstance(open_in(tmp_path, store), DecodedImages)
    assert store.num_decoded == cache.NUM_SAMPLED_IMAGES


def test_a_cache_folder_that_cannot_be_made_ends_in_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(CacheWarning, match="continuing without it"):
        assert isinstance(open_in(tmp_path / "file" / "below", CountingStore()), DecodedImages)


def test_too_little_memory_ends_in_a_warning_with_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "available_memory", lambda: cache.SPARE_MEMORY + 5000)
    with pytest.warns(CacheWarning, match=r"only 1.07 GB of memory are available.*cache='disk'"):
        assert isinstance(open_cached(CountingStore(), SIZE, "memory"), DecodedImages)


def test_available_memory_is_plausible() -> None:
    available = cache.available_memory()
    assert available is None or 1 << 20 < available < 1 << 50
