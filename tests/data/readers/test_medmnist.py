"""MedMNIST archives: several labels, one class number, colour, and images too large for memory."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from kmcl.data import open_dataset
from kmcl.data.arrays import MappedImages
from kmcl.data.readers import medmnist
from kmcl.errors import InputError
from miniature_datasets import write_medmnist


@pytest.mark.parametrize("side", [28, 64])
def test_chestmnist_of_any_size(tmp_path: Path, side: int) -> None:
    path = tmp_path / f"chestmnist_{side}.npz"
    arrays = write_medmnist(path, (side, side), 14)
    dataset = open_dataset(f"medmnist:{path}")
    assert dataset.name == f"chestmnist_{side}"
    assert dataset.labels[0] == "Atelectasis"
    assert dataset.labels[13] == "Hernia"
    for name, split in dataset.splits.items():
        assert np.array_equal(split.targets, arrays[f"{name}_labels"])
        image = split.images.load(2)
        assert image.shape == (side, side, 3)
        assert np.array_equal(image[:, :, 1], arrays[f"{name}_images"][2])
    assert dataset.splits["val"].images.name(2) == f"{path}:val_images[2]"


def test_class_numbers_become_one_label_each(tmp_path: Path) -> None:
    path = tmp_path / "pathmnist.npz"
    numbers = np.array([[2], [0], [8], [1], [2], [3]], dtype=np.uint8)
    write_medmnist(path, (28, 28, 3), 1, train_labels=numbers)
    dataset = open_dataset(f"medmnist:{path}")
    assert dataset.labels == tuple("012345678")
    assert dataset.splits["train"].targets.argmax(axis=1).tolist() == [2, 0, 8, 1, 2, 3]
    assert (dataset.splits["train"].targets.sum(axis=1) == 1).all()
    named = open_dataset(f"medmnist:{path}", label_names="a,b,c,d,e,f,g,h,i")
    assert named.labels[8] == "i"


def test_large_images_are_mapped_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(medmnist, "MAPPED_BYTES", 1000)
    path = tmp_path / "chestmnist_64.npz"
    arrays = write_medmnist(path, (64, 64), 14)
    for _ in range(2):
        store = open_dataset(f"medmnist:{path}").splits["train"].images
        assert isinstance(store, MappedImages)
        assert np.array_equal(store.load(5)[:, :, 0], arrays["train_images"][5])
        assert len(pickle.dumps(store)) < 1000
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 3


def test_unwritable_cache_falls_back_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(medmnist, "MAPPED_BYTES", 1000)
    arrays = write_medmnist(tmp_path / "a.npz", (28, 28), 14)
    store = open_dataset(f"medmnist:{tmp_path / 'a.npz'}").splits["train"].images
    assert np.array_equal(store.load(5)[:, :, 0], arrays["train_images"][5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((6, 28, 28, 28), dtype=np.uint8)}, r"train_images is uint8 of shape"),
        ({"train_images": np.zeros((6, 28, 28), dtype=np.float32)}, "float32"),
        ({"train_labels": np.zeros((5, 14), dtype=np.uint8)}, "6 train_images but 5 train_labels"),
        ({"train_labels": np.full((6, 14), 3, dtype=np.uint8)}, "other than 0 and 1"),
        ({"train_labels": np.zeros((6, 13), dtype=np.uint8)}, r"splits have \[13, 14\] labels"),
    ],
)
def test_unusable_archives_are_named(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    path = tmp_path / "chestmnist.npz"
    write_medmnist(path, (28, 28), 14, **changes)
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"medmnist:{path}")
    assert "chestmnist.npz" in str(caught.value)


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK no zip")
    np.savez(tmp_path / "b.npz", other=np.zeros(3))
    np.savez(tmp_path / "c.npz", train_images=np.zeros((2, 4, 4), dtype=np.uint8))
    write_medmnist(tmp_path / "d.npz", (28, 28), 14)
    whole = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(whole[:60] + bytes(400) + whole[460:])  # no deflated data
    for name, message in (
        ("a", "cannot be read"),
        ("b", "has no train_images"),
        ("c", "train_labels"),
        ("d", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            open_dataset(f"medmnist:{tmp_path / name}.npz")
