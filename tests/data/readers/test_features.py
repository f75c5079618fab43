"""Feature vectors: NumPy and Parquet, what is found in them, and each way in which a file can be broken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_files import LABELS, WIDTH, vectors_and_targets, write_archive
from kmcl.data import Dataset, FeatureVectors, Split, open_dataset
from kmcl.data.check import check_spec
from kmcl.data.describe import describe
from kmcl.data.loading import LoaderSettings, make_eval_loader, make_train_loader
from kmcl.data.readers.features import vectors_of_file
from kmcl.data.selection import JoinedImages, select
from kmcl.data.vector_writing import write_vectors
from kmcl.data.vectors import feature_dim, take_vectors
from kmcl.data.writers.registry import write_dataset
from kmcl.errors import InputError

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}
VECTORS, TARGETS = vectors_and_targets(4)
NAMES = ["|".join(np.array(LABELS)[row == 1]) for row in TARGETS]


def opened(path: Path, **options: object) -> Dataset:
    return open_dataset(f"features:{path}", **(WHOLE | options))


def assert_right(dataset: Dataset) -> None:
    train = dataset.splits["train"]
    assert dataset.labels == LABELS
    assert train.targets.tolist() == TARGETS.tolist()
    assert np.array_equal(take_vectors(train.images, np.arange(4)), VECTORS)


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def lists(kind: Any = None, values: Any = VECTORS) -> Any:
    return pa.array([None if row is None else list(row) for row in values], kind or pa.list_(pa.float32()))


def label_columns() -> dict[str, list[int]]:
    return {name: TARGETS[:, place].tolist() for place, name in enumerate(LABELS)}


def test_an_archive_with_targets_names_splits_and_groups(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.npz", 4, split=["train", "Valid", "test", "train"], group=[1, 2, 3, 1])
    dataset = open_dataset(f"features:{path}")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 2, "val": 1, "test": 1}
    train = dataset.splits["train"]
    assert [train.images.name(row) for row in range(2)] == ["row-0", "row-3"]
    assert train.groups is not None
    assert train.groups.tolist() == ["1", "1"]
    assert np.array_equal(take_vectors(train.images, np.array([1])), VECTORS[3:])
    assert train.lines is None
    assert feature_dim(dataset) == WIDTH


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_numbers_of_any_type_become_float32(dtype: str, tmp_path: Path) -> None:
    given = np.arange(24).reshape(4, WIDTH).astype(dtype)
    dataset = opened(write_archive(tmp_path / "a.npz", 4, features=given))
    taken = take_vectors(dataset.splits["train"].images, np.arange(4))
    assert taken.dtype == np.float32
    assert np.array_equal(taken, given.astype(np.float32))


def test_targets_as_text_and_without_names(tmp_path: Path) -> None:
    assert_right(opened(write_archive(tmp_path / "a.npz", 4, targets=NAMES, labels=LABELS)))
    without = opened(write_archive(tmp_path / "b.npz", 4, targets=None, labels=NAMES))
    assert set(without.labels) <= set(LABELS)
    unknown = opened(write_archive(tmp_path / "c.npz", 4, targets=NAMES), unlisted="unknown")
    assert set(np.unique(unknown.splits["train"].targets)) == {-1, 1}
    numbered = opened(write_archive(tmp_path / "d.npz", 4, labels=None))
    assert numbered.labels == ("label 0", "label 1", "label 2")


def test_blank_targets_are_unknown_and_parents_are_filled_in(tmp_path: Path) -> None:
    targets = np.array([[1, np.nan, 0], [0, 1, -1], [0, 0, 0], [1, 1, 1]])
    dataset = opened(write_archive(tmp_path / "a.npz", 4, targets=targets))
    assert dataset.splits["train"].targets.tolist() == [[1, -1, 0], [0, 1, -1], [0, 0, 0], [1, 1, 1]]
    filled = opened(tmp_path / "a.npz", parents={"red": ["colour"], "green": ["colour"]})
    assert filled.labels[-1] == "colour"
    assert filled.splits["train"].targets[:, -1].tolist() == [1, 1, 0, 1]
    with pytest.raises(InputError, match=r"a\.npz row 0: label 'red' is present and 'blue'"):
        opened(tmp_path / "a.npz", parents={"red": ["blue"]})


def test_splits_are_stratified_where_none_are_given(tmp_path: Path) -> None:
    dataset = open_dataset(f"features:{write_archive(tmp_path / 'a.npz', 200)}")
    sizes = [len(dataset.splits[name]) for name in ("train", "val", "test")]
    assert np.abs(np.array(sizes) - (140, 20, 40)).max() <= 2
    shares = [(split.targets == 1).mean(axis=0) for split in dataset.splits.values()]
    assert np.abs(np.array(shares) - shares[0]).max() < 0.04


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), WIDTH)]
)
def test_parquet_with_a_column_of_lists(kind: Any, tmp_path: Path) -> None:
    assert_right(opened(parquet(tmp_path / "a.parquet", embedding=lists(kind), **label_columns())))


def test_parquet_with_a_column_per_number_and_label_names(tmp_path: Path) -> None:
    order = [5, 0, 3, 1, 4, 2]  # as text, and not in the order of the numbers
    columns = {f"x{place + 8}": VECTORS[:, place] for place in order}
    path = parquet(tmp_path / "a.pq", **columns, text=["a", "b", "c", "d"], labels=NAMES)
    dataset = opened(path, label_names=LABELS)
    assert_right(dataset)
    assert dataset.splits["train"].images.name(2) == "c"
    renamed = parquet(tmp_path / "b.pq", **columns, y1=[0.1] * 4, y2=[0.2] * 4, labels=NAMES)
    with pytest.raises(
        InputError, match="begin with 'x', 'y'; say which are the features with features_prefi"
    ):
        opened(renamed)
    assert_right(opened(renamed, features_prefix="x", label_names=LABELS))


def test_parquet_lists_of_label_numbers_are_not_taken_for_features(tmp_path: Path) -> None:
    numbers = pa.array([[1], [2], [1, 2], []], pa.list_(pa.int64()))
    path = parquet(tmp_path / "a.parquet", vec=lists(), labels=numbers, id=["a", "b", "c", "d"])
    dataset = opened(path)
    assert dataset.labels == ("1", "2")
    assert dataset.splits["train"].images.name(3) == "d"
    two = parquet(tmp_path / "b.parquet", one=lists(), two=lists(), **label_columns())
    with pytest.raises(InputError, match="which of the columns one, two has the feature vectors"):
        opened(two)
    assert_right(opened(two, features_column="two", ignore_columns=["one"]))


def test_vectors_alone_are_read_for_prediction(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VECTORS)
    assert np.array_equal(vectors_of_file(tmp_path / "a.npy").rows, VECTORS)
    alone = vectors_of_file(parquet(tmp_path / "a.parquet", features=lists()))
    assert (len(alone), alone.name(1)) == (4, "a.parquet[1]")
    for path in (tmp_path / "a.npy", tmp_path / "a.parquet"):
        with pytest.raises(InputError, match="has no labels; "):
            opened(path)


NOT_FINITE = VECTORS.copy()
NOT_FINITE[2, 4] = np.nan
HUGE = VECTORS.astype(np.float64)
HUGE[1, 0] = 1e300


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": NOT_FINITE}, "array 'features': row 2, feature 4: nan is not finite"),
        ({"features": np.full((4, 2), np.inf)}, "row 0, feature 0: inf is not finite; 4 of 4 rows have such"),
        ({"features": HUGE}, r"row 1, feature 0: 1e\+300 is too large for float32"),
        ({"features": VECTORS[0]}, "features must be rows x numbers"),
        ({"features": VECTORS[:, :0]}, "a row must have 1 to 1000000 features; got 0"),
        ({"features": VECTORS[:0]}, "has no rows"),
        ({"features": np.array([["a", "b"]] * 4)}, "features must be numbers; got <U1"),
        ({"features": VECTORS * 1j}, "features must be numbers; got complex64"),
        ({"features": np.array([[1.0], [1.0, 2.0]], dtype=object)}, "holds Python objects"),
        ({"features": None}, "has no array 'features'; there are targets, labels, ids"),
        ({"targets": TARGETS[:3]}, "targets must be 4 rows x labels"),
        ({"targets": TARGETS[:, 0]}, r"targets must be 4 rows x labels.*got shape \(4,\)"),
        ({"targets": TARGETS * 2}, "targets, row [0-3], label '[a-z]+': 2, expected 1, 0, or -1"),
        ({"targets": NAMES[:3]}, r"targets as text must be one per row.*shape \(3,\) for 4 rows"),
        ({"labels": LABELS[:2]}, "labels has 2 names for the 3 columns of targets"),
        ({"labels": ["a", "a", "b"]}, "labels must be different names; 'a' stands twice"),
        ({"labels": [0.5, 1.0, 2.0]}, "labels must be the names of the labels; got float64"),
        ({"ids": ["a"]}, "array 'ids' has 1 values for 4 rows"),
        ({"ids": ["a", "", "b", "c"]}, "row 1: column 'ids' names no row"),
        ({"split": ["train", "tset", "test", "train"]}, "row 1: column 'split' holds 'tset'"),
        ({"targets": np.zeros((4, 3))}, "no row carries any label"),
        ({"targets": None, "labels": None}, "has no labels; give an array targets"),
    ],
)
def test_broken_archives_are_named_with_row_and_column(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.npz"
    write_archive(path, 4, **changes)
    with pytest.raises(InputError, match=message) as error:
        opened(path)
    assert "broken.npz" in str(error.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"f": lists(values=[*VECTORS[:3], VECTORS[3][:2]])},
            "row 3: column 'f' has 2 numbers, other rows ha",
        ),
        ({"f": lists(values=[*VECTORS[:3], None])}, "row 3: column 'f' has no list, other rows have 6"),
        ({"f": lists(values=NOT_FINITE)}, "column 'f': row 2, feature 4: nan is not finite"),
        ({"f": lists(values=[[], [], [], []])}, "a row must have 1 to 1000000 features; got 0"),
        ({"x0": [0.5] * 4, "x1": [0.5, None, 1, 2]}, "columns x0 to x1: row 1, feature 1: nan is not finite"),
        (
            {"features": pa.array([["a"]] * 4)},
            "column 'features' must hold numbers or lists of them; it holds l",
        ),
        ({"f": [1, 2, 3, 4]}, "has no column of lists of numbers, and no columns x0, x1"),
        (
            {"f": lists(), "text": ["a b"] * 4, "note": ["c d"] * 4},
            "column 'note' holds values other than 1, 0",
        ),
    ],
)
def test_broken_columns_are_named_with_row_and_column(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = parquet(tmp_path / "broken.parquet", **columns, **label_columns())
    with pytest.raises(InputError, match=message) as error:
        opened(path)
    assert "broken.parquet" in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\3\4 not an archive")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
    (tmp_path / "a.csv").write_text("x0,x1\n")
    whole = write_archive(tmp_path / "whole.npz", 40).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name, message in (
        ("a.npz", "cannot be read"),
        ("cut.npz", "cannot be read"),
        ("a.parquet", "is not a readable Parquet file"),
        ("a.csv", r"must be a NumPy or Parquet file \(.npz, .npy, .parquet, .pq\); got '.csv'"),
        ("none.npz", "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            opened(tmp_path / name)
    with pytest.raises(InputError, match=re.escape(f"features {tmp_path / 'a.npz'} cannot be read")):
        open_dataset(str(tmp_path / "a.npz"))
    table = parquet(tmp_path / "b.parquet", embedding=lists(), **label_columns())
    with pytest.raises(InputError, match=re.escape(f"open it as features:{table}")):
        open_dataset(str(table))


def test_check_and_describe(tmp_path: Path) -> None:
    vectors, _ = vectors_and_targets(40)
    vectors[33] = vectors[2]
    split = ["train"] * 30 + ["test"] * 10
    path = write_archive(tmp_path / "a.npz", 40, features=vectors, split=split)
    report = check_spec(f"features:{path}", {"val_fraction": 0})
    messages = [(problem.kind, problem.message) for problem in report.problems]
    assert messages == [("image in two splits", "row row-33 has the same content as row-2 of train")]
    description = describe(open_dataset(f"features:{path}"))
    assert description.feature_dim == WIDTH
    assert description.image_sizes.num_unreadable == 0


def test_vectors_in_memory_are_checked() -> None:
    with pytest.raises(InputError, match="mine: row 2, feature 4"):
        FeatureVectors(NOT_FINITE, "mine")
    with pytest.raises(InputError, match=r"ids must be one name per row; got shape \(2,\) for 4 rows"):
        FeatureVectors(VECTORS, "mine", np.array(["a", "b"]))
    store = FeatureVectors(VECTORS, "mine")
    assert store.name(3) == "mine[3]"
    with pytest.raises(InputError, match=r"mine\[3\]: is a feature vector, not an image"):
        store.load(3)


def test_batches_hold_the_vectors_of_their_rows() -> None:
    vectors, targets = vectors_and_targets(10)
    halves = JoinedImages([FeatureVectors(vectors[:4]), FeatureVectors(vectors[4:])])
    split = select(Split(halves, targets), np.array([9, 1, 3, 5, 0, 8]))
    settings = LoaderSettings(batch_size=2, image_size=0)
    for loader in (make_eval_loader(split, settings), make_train_loader(split, settings)):
        rows = np.array([9, 1, 3, 5, 0, 8])
        seen = []
        for batch in loader:
            chosen = rows[batch.indices.numpy()]
            assert np.array_equal(batch.images.numpy(), vectors[chosen])
            assert np.array_equal(batch.targets.numpy(), targets[chosen])
            seen += chosen.tolist()
        assert sorted(seen) == sorted(rows.tolist())
    with pytest.raises(InputError, match="the model takes images, and the data are feature vectors"):
        make_eval_loader(split, LoaderSettings(image_size=32))
    with pytest.raises(InputError, match="the model takes feature vectors, and the data are images"):
        make_eval_loader(open_dataset("digits", size=20).splits["train"], settings)


def test_written_vectors_are_read_back_and_formats_of_images_are_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.npz", 40, group=np.arange(40) // 2)
    dataset = open_dataset(f"features:{path}")
    write_vectors(dataset, tmp_path / "b.npz")
    again = open_dataset(f"features:{tmp_path / 'b.npz'}")
    for name, split in dataset.splits.items():
        other = again.splits[name]
        rows = np.arange(len(split))
        assert np.array_equal(take_vectors(split.images, rows), take_vectors(other.images, rows))
        assert np.array_equal(split.targets, other.targets)
        assert split.groups is not None
        assert other.groups is not None
        assert split.groups.tolist() == other.groups.tolist()
        assert [split.images.name(row) for row in rows] == [other.images.name(row) for row in rows]
    with pytest.raises(InputError, match="has feature vectors, which a format for images cannot hold"):
        write_dataset(dataset, f"coco:{tmp_path / 'coco'}")
