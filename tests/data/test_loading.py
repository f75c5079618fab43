from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.data.augmentation import AugmentationName
from kmcl.data.cache import CacheKind
from kmcl.data.dataset import ImageStore, Split
from kmcl.data.files import ImageFiles
from kmcl.data.loading import (
    Batch,
    BatchLoader,
    LoaderSettings,
    LostWorkerError,
    _tell_unless_disconnected,
    make_eval_loader,
    make_train_loader,
)
from kmcl.errors import InputError

NUM_IMAGES = 22
QUICK = LoaderSettings(batch_size=4, image_size=16, num_workers=0, augmentation="none", seed=3)


@dataclass(frozen=True)
class FragileStore:
    """Images whose pixels are all their index; some cannot be decoded, some end the process that tries."""

    bad: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()
    count: int = NUM_IMAGES

    def __len__(self) -> int:
        return self.count

    def name(self, index: int) -> str:
        return f"picture{index}.jpg"

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        if index in self.bad:
            raise InputError(f"image {self.name(index)} cannot be decoded: torn")
        if index in self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((20, 24, 3), index, dtype=np.uint8)


def split_of(images: ImageStore) -> Split:
    targets = np.random.default_rng(0).integers(-1, 2, (len(images), 3)).astype(np.int8)
    return Split(images, targets)


def noise_split() -> Split:
    pixels = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, 24, 24, 3), dtype=np.uint8)
    return split_of(ArrayImages(pixels, "noise"))


def epoch_of(loader: BatchLoader, epoch: int = 0) -> list[Batch]:
    loader.set_epoch(epoch)
    return list(loader)


def assert_same_batches(ours: list[Batch], theirs: list[Batch]) -> None:
    assert len(ours) == len(theirs) > 0
    for left, right in zip(ours, theirs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_a_batch_has_the_promised_types_and_belongs_together() -> None:
    split = split_of(FragileStore())
    for batch in epoch_of(make_train_loader(split, QUICK)):
        assert batch.images.shape == (4, 3, 16, 16)
        assert batch.images.dtype == torch.uint8
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert batch.targets.dtype == torch.int8
        assert batch.indices.dtype == torch.int64
        np.testing.assert_array_equal(batch.targets.numpy(), split.targets[batch.indices.numpy()])
        assert torch.equal(batch.images.amax((1, 2, 3)).long(), batch.indices)


@pytest.mark.parametrize("augmentation", ["paper", "photo"])
def test_workers_and_caches_do_not_change_a_single_pixel(
    augmentation: AugmentationName, tmp_path: Path
) -> None:
    split = noise_split()
    settings = replace(QUICK, augmentation=augmentation, cache_dir=tmp_path)
    plain = make_train_loader(split, settings)
    epochs = [epoch_of(plain, epoch) for epoch in (0, 1)]
    variants: list[tuple[int, CacheKind]] = [(2, "none"), (0, "memory"), (2, "memory"), (1, "disk")]
    for num_workers, kind in variants:
        loader = make_train_loader(split, replace(settings, num_workers=num_workers, cache=kind))
        # Epoch 1 first: a resumed run has not drawn what came before.
        assert_same_batches(epoch_of(loader, 1), epochs[1])
        assert_same_batches(epoch_of(loader, 0), epochs[0])
        loader.close()
    first, second = (torch.cat([batch.images for batch in epoch]) for epoch in epochs)
    assert not torch.equal(first, second)


def test_the_global_random_state_is_neither_used_nor_changed() -> None:
    loader = make_train_loader(noise_split(), replace(QUICK, augmentation="photo", num_workers=1))
    torch.manual_seed(1)
    np.random.seed(1)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]
    first = epoch_of(loader)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    torch.manual_seed(2)
    assert_same_batches(epoch_of(loader), first)


def test_two_processes_see_the_images_of_one() -> None:
    settings = replace(QUICK, augmentation="photo", batch_size=6)
    whole = epoch_of(make_train_loader(noise_split(), settings))
    halves = [
        epoch_of(make_train_loader(noise_split(), replace(settings, batch_size=3), rank=rank, world_size=2))
        for rank in range(2)
    ]
    joined = [
        Batch(*(torch.cat(pair) for pair in zip(left, right, strict=True)))
        for left, right in zip(*halves, strict=True)
    ]
    assert_same_batches(joined, whole)


def test_an_abandoned_epoch_does_not_disturb_the_next() -> None:
    loader = make_train_loader(noise_split(), replace(QUICK, num_workers=2))
    expected = epoch_of(make_train_loader(noise_split(), QUICK), 1)
    loader.set_epoch(0)
    next(iter(loader))
    assert_same_batches(epoch_of(loader, 1), expected)


def test_training_drops_the_remainder_but_keeps_a_small_split() -> None:
    assert [len(batch.indices) for batch in epoch_of(make_train_loader(noise_split(), QUICK))] == [4] * 5
    small = make_train_loader(split_of(FragileStore(count=3)), QUICK)
    assert [len(batch.indices) for batch in epoch_of(small)] == [3]
    assert len(small) == 1


def test_evaluation_keeps_everything_in_order_and_unaugmented() -> None:
    loader = make_eval_loader(noise_split(), replace(QUICK, augmentation="paper", num_workers=2))
    batches = epoch_of(loader)
    assert torch.cat([batch.indices for batch in batches]).tolist() == list(range(NUM_IMAGES))
    assert len(batches) == len(loader) == 6
    assert_same_batches(batches, epoch_of(make_eval_loader(noise_split(), QUICK), 7))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_unreadable_image_is_named_in_a_clean_message(num_workers: int) -> None:
    loader = make_train_loader(
        split_of(FragileStore(bad=frozenset({7}))), replace(QUICK, num_workers=num_workers)
    )
    with pytest.raises(InputError) as caught:
        [epoch_of(loader, epoch) for epoch in range(4)]  # one epoch may drop the image
    assert str(caught.value) == "image picture7.jpg cannot be decoded: torn"


@pytest.mark.parametrize("kind", ["none", "memory"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_replaces_unreadable_images_by_the_next_and_reports_them(
    num_workers: int, kind: CacheKind
) -> None:
    bad = frozenset({7, 8, NUM_IMAGES - 1})
    stand_in = {7: 9, 8: 9, NUM_IMAGES - 1: 0}
    settings = replace(QUICK, num_workers=num_workers, skip_bad_images=True, cache=kind)
    loader = make_train_loader(split_of(FragileStore(bad)), settings)
    for epoch in range(3):
        healthy = epoch_of(make_train_loader(split_of(FragileStore()), QUICK), epoch)
        for batch, whole in zip(epoch_of(loader, epoch), healthy, strict=True):
            assert batch.indices.tolist() == [stand_in.get(i, i) for i in whole.indices.tolist()]
            assert torch.equal(batch.images.amax((1, 2, 3)).long(), batch.indices)
            np.testing.assert_array_equal(batch.targets, split_of(FragileStore()).targets[batch.indices])
    assert loader.bad_images == {i: f"image picture{i}.jpg cannot be decoded: torn" for i in bad}


def test_evaluation_leaves_unreadable_images_out() -> None:
    store = FragileStore(frozenset({0, 1, 2, 3, 9}))  # the first batch is lost altogether
    loader = make_eval_loader(split_of(store), replace(QUICK, skip_bad_images=True))
    seen = torch.cat([batch.indices for batch in epoch_of(loader)]).tolist()
    assert seen == [i for i in range(NUM_IMAGES) if i not in store.bad]
    assert loader.bad_images.keys() == store.bad


def test_a_split_without_a_readable_image_is_an_error_even_when_skipping() -> None:
    store = FragileStore(frozenset(range(5)), count=5)
    with pytest.raises(InputError, match=r"none of the 5 images can be read.*picture\d\.jpg"):
        epoch_of(make_train_loader(split_of(store), replace(QUICK, skip_bad_images=True)))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for number in range(4):
        Image.fromarray(noise).save(tmp_path / f"{number}.jpg")
    torn = tmp_path / "2.jpg"
    torn.write_bytes(torn.read_bytes()[:900])
    split = split_of(ImageFiles(tmp_path, np.array([f"{n}.jpg" for n in range(4)])))
    with pytest.raises(InputError, match=r"2\.jpg"):
        epoch_of(make_train_loader(split, QUICK))


def test_a_lost_worker_gives_advice() -> None:
    loader = make_train_loader(
        split_of(FragileStore(fatal=frozenset(range(4, 22)))), replace(QUICK, num_workers=1)
    )
    with pytest.raises(LostWorkerError, match=r"fewer workers \(--workers, num_workers\) or none"):
        epoch_of(loader)


def test_closing_ends_the_workers() -> None:
    before = set(multiprocessing.active_children())
    loader = make_train_loader(noise_split(), replace(QUICK, num_workers=2))
    epoch_of(loader)
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    loader.close()
    for worker in workers:
        worker.join(10)
        assert worker.exitcode is not None


INTERRUPTED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from test_loading import QUICK, noise_split
from kmcl.data.loading import make_train_loader

loader = make_train_loader(noise_split(), replace(QUICK, num_workers=2))
try:
    for batch in loader:
        print("batch", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_reaches_the_main_process_alone() -> None:
    arguments = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "batch\n"
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: every process of the group gets it
        output, errors = process.communicate(timeout=30)
    assert output == "interrupted\n"
    assert errors == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"image_size": 4}, "image_size must be at least 8, got 4"),
        ({"num_workers": -1}, "num_workers must be at least 0, got -1"),
        ({"seed": -5}, "seed must be at least 0, got -5"),
        ({"augmentation": "strong"}, "augmentation must be one of paper, photo, medical, light, none"),
        ({"sampling": "rare"}, "sampling must be one of shuffle, balanced, partners; got 'rare'"),
        ({"cache": "ram"}, "cache must be one of none, memory, disk; got 'ram'"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LoaderSettings(**changes)  # type: ignore[arg-type]


def test_targets_that_do_not_belong_to_the_images_are_refused() -> None:
    split = Split(FragileStore(), np.zeros((3, 2), np.int8))
    with pytest.raises(InputError, match="22 images but 3 rows of targets"):
        make_eval_loader(split, QUICK)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_continued_after_the_batches_that_are_skipped(workers: int):
    split = open_dataset("digits", size=60).splits["train"]
    settings = LoaderSettings(batch_size=8, image_size=32, num_workers=workers, augmentation="light", seed=3)
    whole, continued = (make_train_loader(split, settings) for _ in range(2))
    for loader in (whole, continued):
        loader.set_epoch(2)
    continued.skip(3)
    expected, found = list(whole), list(continued)
    assert len(found) == len(expected) - 3
    for one, other in zip(found, expected[3:], strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.indices, other.indices)
    assert len(list(continued)) == len(whole)  # the next epoch is whole
    for loader in (whole, continued):
        loader.close()


@pytest.mark.parametrize(
    ("error", "told"), [(ConnectionResetError(104, "reset"), False), (ValueError("x"), True)]
)
def test_a_worker_is_silent_when_the_main_process_is_gone(capsys, error: Exception, told: bool):
    _tell_unless_disconnected(type(error), error, None)
    assert bool(capsys.readouterr().err) == told
