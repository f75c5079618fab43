from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.synthetic import assert_equal_fields, from_arrays, make_predictions, with_gaps
from kmcl.data import Split
from kmcl.data.arrays import ArrayImages
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions


def with_every_field() -> Predictions:
    return replace(
        with_gaps(make_predictions()),
        labels=("person", "dog, brown", "µ-scope", "d", "e", "f"),
        features=np.arange(200 * 3, dtype=np.float32).reshape(200, 3),
        groups=tuple(f"patient {index % 7}" if index % 3 else "" for index in range(200)),
        unfamiliarity=np.linspace(0, 1, 200, dtype=np.float32),
        feature_summary=np.linspace(-3, 3, 400, dtype=np.float32).reshape(200, 2),
    )


def test_images_are_taken_and_joined_with_every_field() -> None:
    whole = with_every_field()
    assert all(getattr(whole, field.name) is not None for field in fields(Predictions))
    order = np.random.default_rng(0).permutation(200)
    first, second = whole.take(order[:120]), whole.take(order[120:])
    assert_equal_fields(Predictions.concat([first, second]).take(np.argsort(order)), whole)
    for field in fields(Predictions):
        if field.name != "labels":
            taken, all_of_it = getattr(first, field.name), np.asarray(getattr(whole, field.name))
            np.testing.assert_array_equal(taken, all_of_it[order[:120]], field.name)
    assert isinstance(first.groups, tuple)
    assert isinstance(first.names, tuple)


def test_labels_are_taken_with_every_field() -> None:
    whole = with_every_field()
    kept = whole.with_labels(["e", "person"])
    assert kept.labels == ("e", "person")
    for name in ("scores", "targets", "ignored", "sigma"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(whole, name)[:, [4, 0]])
    for name in ("names", "groups", "features", "unfamiliarity", "feature_summary"):
        assert getattr(kept, name) is getattr(whole, name)


def test_parts_without_groups_or_ignored_pairs_are_joined_with_those_that_have_them() -> None:
    whole = with_every_field()
    plain = replace(whole, groups=None, ignored=None, sigma=None)
    joined = Predictions.concat([whole, plain])
    assert joined.groups == whole.groups + ("",) * 200
    assert not joined.ignored[200:].any()
    np.testing.assert_array_equal(joined.ignored[:200], whole.ignored)
    assert joined.sigma is None
    assert Predictions.concat([plain, plain]).groups is None
    assert Predictions.concat([plain, plain]).ignored is None
    with pytest.raises(InputError, match="predictions of different labels cannot be joined"):
        Predictions.concat([whole, whole.with_labels(["d"])])


def test_predictions_of_a_split_have_what_the_split_says() -> None:
    whole = with_every_field()
    images = ArrayImages(np.zeros((200, 2, 2), dtype=np.uint8), "drawn")
    split = Split(images, whole.targets, whole.ignored, np.array(whole.groups))
    found = Predictions.of_split(whole.labels, split, whole.scores, sigma=whole.sigma)
    names = tuple(images.name(row) for row in range(200))
    assert_equal_fields(
        found, replace(whole, names=names, features=None, unfamiliarity=None, feature_summary=None)
    )
    rows = np.array([5, 3, 190])
    of_rows = Predictions.of_split(whole.labels, split, whole.scores[rows], rows, sigma=whole.sigma[rows])
    assert_equal_fields(of_rows, found.take(rows))


def test_a_saved_file_gives_the_same_predictions(tmp_path: Path) -> None:
    original = with_every_field()
    original.save(tmp_path / "val.npz")
    loaded = Predictions.load(tmp_path / "val.npz")
    assert loaded.labels == original.labels
    assert loaded.names == original.names
    assert loaded.groups == original.groups
    names = ("scores", "targets", "ignored", "sigma", "features", "unfamiliarity", "feature_summary")
    for name in names:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(original, name))
        assert getattr(loaded, name).dtype == getattr(original, name).dtype
    assert [path.name for path in tmp_path.iterdir()] == ["val.npz"]


def test_absent_arrays_stay_absent(tmp_path: Path) -> None:
    from_arrays([[0.5]], [[1]]).save(tmp_path / "plain.npz")
    loaded = Predictions.load(tmp_path / "plain.npz")
    assert loaded.ignored is None
    assert loaded.sigma is None
    assert loaded.features is None
    assert loaded.groups is None
    assert loaded.unfamiliarity is None
    assert loaded.feature_summary is None


def test_an_unfamiliarity_out_of_range_is_named() -> None:
    plain = from_arrays([[0.5], [0.25]], [[1], [0]])
    for values, message in (
        (np.array([0.5], dtype=np.float32), "unfamiliarity must be 2 numbers of float32, one per image, got"),
        (np.array([0.5, 0.5]), "unfamiliarity must be 2 numbers of float32"),
        (np.array([0.5, 1.5], dtype=np.float32), r"unfamiliarity must be in \[0, 1\], got 1.5 for image"),
        (np.array([np.nan, 0.5], dtype=np.float32), "unfamiliarity must be in"),
    ):
        with pytest.raises(InputError, match=message):
            replace(plain, unfamiliarity=values)


def test_a_summary_of_features_that_is_none_is_refused() -> None:
    plain = from_arrays([[0.5], [0.25]], [[1], [0]])
    for values, message in (
        (np.zeros((1, 3), dtype=np.float32), "feature_summary must have 2 rows of float32, one per image"),
        (np.zeros(2, dtype=np.float32), "feature_summary must have 2 rows"),
        (np.zeros((2, 3)), "got shape .2, 3. of float64"),
        (np.array([[0], [np.inf]], dtype=np.float32), f"must be finite; it is not for {plain.names[1]!r}"),
    ):
        with pytest.raises(InputError, match=message):
            replace(plain, feature_summary=values)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "val.npz"
    from_arrays([[0.25]], [[1]]).save(path)

    def fill_the_disk(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        from_arrays([[0.75]], [[1]]).save(path)
    assert Predictions.load(path).scores[0, 0] == 0.25
    assert [entry.name for entry in tmp_path.iterdir()] == ["val.npz"]


def write_foreign_archive(path: Path) -> None:
    np.savez(path, weights=np.ones(3))


def write_single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"scores": [1.0]}))


def write_truncated(path: Path) -> None:
    make_predictions().save(path)
    path.write_bytes(path.read_bytes()[:-400])


def write_damaged(path: Path) -> None:
    make_predictions().save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def write_without_targets(path: Path) -> None:
    np.savez(path, format="kmcl-predictions-1", labels=["a"], names=["x"], scores=np.ones((1, 1), np.float32))


def write_objects(path: Path) -> None:
    np.savez(path, format="kmcl-predictions-1", labels=np.array([{}], dtype=object))


def write_text(path: Path) -> None:
    path.write_text("image,person,dog\n")


def write_empty(path: Path) -> None:
    path.touch()


def write_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    "write",
    [
        write_foreign_archive,
        write_single_array,
        write_pickle,
        write_truncated,
        write_damaged,
        write_without_targets,
        write_objects,
        write_text,
        write_empty,
        write_folder,
        lambda path: None,
    ],
)
def test_broken_and_foreign_files_are_refused_by_name(tmp_path: Path, write) -> None:
    path = tmp_path / "predictions.npz"
    write(path)
    with pytest.raises(InputError, match=r"predictions\.npz"):
        Predictions.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.full((200, 6), 1.5, np.float32)}, r"scores.*1\.5.*image0\.jpg.*label0"),
        ({"scores": np.full((200, 6), np.nan, np.float32)}, r"scores.*nan.*image0"),
        ({"scores": np.zeros((200, 6))}, r"scores.*float32.*float64"),
        ({"scores": np.zeros((6, 200), np.float32)}, r"scores.*200 images x 6 labels.*\(6, 200\)"),
        ({"targets": np.full((200, 6), 2, np.int8)}, r"targets.*got 2"),
        ({"ignored": np.zeros((200, 5), np.bool_)}, r"ignored.*\(200, 5\)"),
        ({"sigma": np.zeros((200, 6), np.float32)}, r"sigma.*above 0.*got 0\.0"),
        ({"features": np.zeros((199, 8), np.float32)}, r"features.*200 rows.*\(199, 8\)"),
        ({"scores": np.full((200, 6), -0.1, np.float32)}, r"scores must be in \[0, 1\], got -0\.1"),
        ({"targets": np.full((200, 6), -2, np.int8)}, r"targets must be 0, 1 or -1 \(unknown\), got -2"),
        ({"targets": np.zeros((200, 6), np.int64)}, "targets must be 200 images x 6 labels of int8"),
        ({"ignored": np.zeros((200, 6), np.int8)}, "ignored must be 200 images x 6 labels of bool"),
        ({"sigma": np.full((200, 6), np.inf, np.float32)}, "sigma must be finite and above 0, got inf"),
        ({"sigma": np.ones((200, 6))}, "sigma must be 200 images x 6 labels of float32"),
        ({"features": np.zeros(200, np.float32)}, r"features must have 200 rows.*\(200,\)"),
        ({"labels": ("a", "b", "c", "d", "e", "a")}, "all different"),
        ({"labels": ()}, r"labels must be at least one and all different, got \[\]"),
        ({"groups": ("a",)}, "groups must be 200, one per image, got 1"),
    ],
)
def test_impossible_predictions_are_refused(change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(make_predictions(), **change)


def test_the_first_impossible_value_is_named() -> None:
    scores = make_predictions().scores.copy()
    scores[7, 2] = scores[9, 1] = 2
    with pytest.raises(InputError, match=r"got 2\.0 for image 'image7\.jpg' and label 'label2'"):
        replace(make_predictions(), scores=scores)


def test_probabilities_of_0_and_1_are_possible() -> None:
    predictions = from_arrays([[0.0, 1.0]], [[0, 1]])
    assert (len(predictions), predictions.num_labels) == (1, 2)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            write_foreign_archive,
            r"not a file of predictions \(format 'none', expected 'kmcl-predictions-1'\)",
        ),
        (write_single_array, r"not a file of predictions \(a single array\)"),
        (write_without_targets, "an array is missing or unknown"),
        (write_text, "cannot be read as predictions"),
        (write_empty, "cannot be read as predictions"),
        (write_folder, r"not a file of predictions \(not a regular file\)"),
        (lambda path: None, "no such file of predictions"),
        (
            lambda path: np.savez(path, format="kmcl-predictions-1", names=["x"]),
            "an array is missing or unknown .*labels",
        ),
        (
            lambda path: np.savez(
                path,
                format="kmcl-predictions-1",
                labels=["a"],
                names=["x"],
                scores=np.full((1, 1), 3, np.float32),
                targets=np.ones((1, 1), np.int8),
            ),
            r"scores must be in \[0, 1\], got 3\.0",
        ),
    ],
)
def test_a_refused_file_is_told_why(tmp_path: Path, write, message: str) -> None:
    path = tmp_path / "predictions.npz"
    write(path)
    with pytest.raises(InputError, match=rf"predictions\.npz: {message}"):
        Predictions.load(str(path))


def test_unknown_and_ignored_pairs_are_neither_positive_nor_negative() -> None:
    predictions = from_arrays([[0.5] * 5], [[1, 0, -1, 1, 0]], ignored=[[False, False, False, True, True]])
    assert predictions.evaluated.tolist() == [[True, True, False, False, False]]
    assert predictions.positive.tolist() == [[True, False, False, False, False]]
    assert predictions.negative.tolist() == [[False, True, False, False, False]]


def test_an_unknown_compression_is_refused_by_name(tmp_path):
    path = tmp_path / "test.npz"
    scores, targets = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.int8)
    Predictions(("a",), ("1",), scores, targets).save(path)
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 10] = 77  # the method, in the directory of the archive
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"test\.npz: cannot be read as predictions"):
        Predictions.load(path)
