"""Targets of many rows and labels: what reads them makes no second matrix of their size."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kmcl.data import open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.data.cooccurrence import find_cooccurring_labels
from kmcl.data.dataset import Split
from kmcl.data.describe import describe
from kmcl.data.sampling import TrainingPlan, repeat_factors
from kmcl.data.selection import divide_in_place, select_parts
from kmcl.data.target_pairs import count_images, has_any
from kmcl.runs.settings import DataSettings
from kmcl.training.unknown_labels import UnknownLabels
from small_images import save_small_image


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that was allocated at a time during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def make_split(num_rows: int, num_labels: int, seed: int = 0) -> Split:
    rng = np.random.default_rng(seed)
    targets = rng.integers(-1, 2, (num_rows, num_labels)).astype(np.int8)
    images = ArrayImages(rng.integers(0, 255, (num_rows, 2, 2, 3), dtype=np.uint8), "random")
    return Split(
        images,
        targets,
        ignored=rng.random(targets.shape) < 0.1,
        groups=rng.integers(0, 9, num_rows).astype(np.str_),
        lines=np.arange(2, num_rows + 2),
    )


@pytest.mark.parametrize("num_labels", [3, 128, 300])
def test_parts_in_place_are_those_that_are_copied(num_labels: int):
    split = make_split(50, num_labels)
    part_of_row = np.random.default_rng(1).choice([0, 1, 3], 50)  # part 2 is empty
    expected = select_parts(split, part_of_row, 4)
    parts = divide_in_place(split, part_of_row, 4)
    assert [len(part) for part in parts] == [*np.bincount(part_of_row, minlength=4)]
    for part, copied in zip(parts, expected, strict=True):
        assert np.array_equal(part.targets, copied.targets)
        assert len(part) == 0 or np.shares_memory(part.targets, split.targets)
        for name in ("ignored", "groups", "lines"):
            assert np.array_equal(getattr(part, name), getattr(copied, name))
        for row in range(len(part)):
            assert np.array_equal(part.images.load(row), copied.images.load(row))


def write_table(folder: Path, with_splits: bool) -> str:
    num_rows, num_labels = 4000, 2000
    save_small_image(folder / "a.png", 1)
    rng = np.random.default_rng(0)
    lines = ["image,split,labels" if with_splits else "image,labels"]
    for row in range(num_rows):
        split = f"{'test' if row % 4 == 0 else 'train'}," if with_splits else ""
        lines.append(f"a.png,{split}{row % num_labels:04d}|{rng.integers(num_labels):04d}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return f"table:{folder / 'labels.csv'}"


@pytest.mark.parametrize("with_splits", [False, True])
def test_a_table_is_read_and_split_with_its_targets_in_memory_once(
    tmp_path: Path, with_splits: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kmcl.data.target_pairs.BLOCK_ROWS", 256)
    spec = write_table(tmp_path, with_splits)
    open_dataset(spec)  # imports
    size = 4000 * 2000
    assert size < peak_bytes(lambda: open_dataset(spec)) < 1.8 * size


NUM_ROWS, NUM_LABELS = 600_000, 40


@pytest.mark.parametrize(
    "read",
    [
        has_any,
        count_images,
        find_cooccurring_labels,
        lambda targets: has_any(targets, 5),
        lambda targets: TrainingPlan(targets, batch_size=8),
        lambda targets: UnknownLabels.of_run(DataSettings(spec="digits"), targets).notice(targets),
    ],
)
def test_whole_targets_are_not_copied(read: Callable[[np.ndarray], object]):
    targets = np.zeros((NUM_ROWS, NUM_LABELS), dtype=np.int8)
    targets[:, 3] = 1
    targets[1, 2] = -1
    read(targets)  # imports
    assert peak_bytes(lambda: read(targets)) < 0.6 * targets.nbytes


def test_values_are_found_in_any_block():
    targets = np.zeros((40_000, 3), dtype=np.int8)
    assert not has_any(targets)
    targets[-1] = 1, -1, 0
    assert has_any(targets)
    assert has_any(targets, -1)
    assert count_images(targets).tolist() == [1, 0, 0]
    assert count_images(targets, -1).tolist() == [0, 1, 0]
    assert count_images(targets, 0).tolist() == [39_999, 39_999, 40_000]


def test_repeat_factors_in_blocks_are_those_of_the_matrix(monkeypatch: pytest.MonkeyPatch):
    present = np.random.default_rng(0).random((500, 7)) < np.linspace(0.01, 0.5, 7)
    whole = repeat_factors(present)
    monkeypatch.setattr("kmcl.data.sampling.BLOCK_TARGETS", 100)
    assert np.array_equal(repeat_factors(present), whole)
    assert len(set(whole)) > 2


def test_description_counts_every_value(tmp_path: Path):
    spec = write_table(tmp_path, with_splits=True)
    dataset = open_dataset(spec)
    description = describe(dataset, num_sampled=1)
    targets = np.concatenate([split.targets for split in dataset.splits.values()])
    found = [sum(label.positives.values()) for label in description.labels]
    assert found == (targets == 1).sum(axis=0).tolist()
