"""Datasets of Hugging Face: shards, splits by name, images as bytes and paths, class names, Arrow files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.check import check_spec
from kmcl.errors import InputError
from miniature_datasets import HF_NAMES as NAMES
from miniature_datasets import hf_features as features
from miniature_datasets import hf_table as table
from small_images import save_small_image

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


def assert_right(dataset: Dataset, numbers: dict[str, list[int]]) -> None:
    assert dataset.labels == tuple(NAMES)
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        name: len(part) for name, part in numbers.items()
    }
    for name, part in numbers.items():
        split = dataset.splits[name]
        images = pickle.loads(pickle.dumps(split.images))
        for row, number in enumerate(part):
            assert int(images.load(row)[0, 0, 0]) == number
            assert split.targets[row].tolist() == [int(index in (number % 3, 2)) for index in range(3)]


@pytest.mark.parametrize("kind", ["List", "Sequence", "old"])
def test_shards_of_splits(tmp_path: Path, kind: str) -> None:
    (tmp_path / "data").mkdir()
    shards = {
        "train-00000-of-00002": [0, 1],
        "train-00001-of-00002-9f8e7d": [2, 3, 4],
        "validation-00000-of-00001": [5],
    }
    for name, numbers in shards.items():
        pq.write_table(table(numbers, kind=kind), tmp_path / "data" / f"{name}.parquet", row_group_size=2)
    dataset = open_dataset(f"hf:{tmp_path}")
    assert_right(dataset, {"train": [0, 1, 2, 3, 4], "val": [5]})
    assert dataset.name == tmp_path.name
    report = check_spec(f"hf:{tmp_path}", {})
    assert {problem.kind for problem in report.problems} == {"label without positive"}


def test_a_single_split_is_divided(tmp_path: Path) -> None:
    pq.write_table(table(range(10)), tmp_path / "train-00000-of-00001.parquet")
    for spec in (f"hf:{tmp_path}", f"hf:{tmp_path / 'train-00000-of-00001.parquet'}"):
        sizes = {name: len(split) for name, split in open_dataset(spec).splits.items()}
        assert sizes == {"train": 7, "val": 1, "test": 2}


@pytest.mark.parametrize("statistics", [True, False])
def test_names_in_a_file_beside_and_images_as_paths(tmp_path: Path, statistics: bool) -> None:
    """That no image is inside is found in the column itself, whatever the file says about it."""
    for number in (7, 8):
        save_small_image(tmp_path / "images" / f"{number}.png", number)
    paths = table([8, 7], described=False, inside=False)
    pq.write_table(paths, tmp_path / "data.parquet", write_statistics=statistics)
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features()}))
    assert_right(open_dataset(f"hf:{tmp_path}", **WHOLE), {"train": [8, 7]})
    (tmp_path / "dataset_info.json").unlink()
    (tmp_path / "dataset_infos.json").write_text(json.dumps({"default": {"features": features()}}))
    assert_right(open_dataset(f"hf:{tmp_path}", **WHOLE), {"train": [8, 7]})
    (tmp_path / "dataset_infos.json").unlink()
    unnamed = open_dataset(f"hf:{tmp_path}", labels_column="tags", **WHOLE)
    assert unnamed.labels == ("1", "2")


@pytest.mark.parametrize("inside", [True, False])
def test_what_save_to_disk_writes(tmp_path: Path, inside: bool) -> None:
    for split, numbers in {"train": [0, 1, 2], "test": [3]}.items():
        (tmp_path / split).mkdir()
        written = table(numbers, described=False, inside=inside)
        path = str(tmp_path / split / "data-00000-of-00001.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, written.schema) as writer:
            writer.write_table(written, max_chunksize=2)
        (tmp_path / split / "dataset_info.json").write_text(json.dumps({"features": features()}))
        (tmp_path / split / "state.json").write_text("{}")
        for number in numbers:
            save_small_image(tmp_path / "files" / f"{number}.png", number)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert_right(open_dataset(f"hf:{tmp_path}", val_fraction=0), {"train": [0, 1, 2], "test": [3]})


def test_one_class_per_image_and_columns_of_numbers(tmp_path: Path) -> None:
    image = table([0, 1]).column("image")
    single = pa.table({"img": image, "label": [2, 0]})
    described = {"img": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    pq.write_table(single.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    dataset = open_dataset(f"hf:{tmp_path / 'a.parquet'}", **WHOLE)
    assert dataset.labels == tuple(NAMES)
    assert dataset.splits["train"].targets.tolist() == [[0, 0, 1], [1, 0, 0]]
    pq.write_table(pa.table({"image": image, "cat": [1, 0], "dog": [None, 1]}), tmp_path / "b.parquet")
    dataset = open_dataset(f"hf:{tmp_path / 'b.parquet'}", **WHOLE)
    assert dataset.splits["train"].targets.tolist() == [[1, -1], [0, 1]]


def test_minus_one_is_padding_beside_labels_and_not_annotated_alone(tmp_path: Path) -> None:
    image = table([0, 1, 2, 3]).column("image")
    lists = pa.array([[0, -1], [-1, -1], [], None], pa.list_(pa.int64()))
    (tmp_path / "lists").mkdir()
    described = {"huggingface": json.dumps({"info": {"features": features()}})}
    for place, rows in enumerate((slice(0, 1), slice(1, 4))):
        part = pa.table({"image": image[rows], "tags": lists[rows]}).replace_schema_metadata(described)
        pq.write_table(part, tmp_path / "lists" / f"train-0000{place}-of-00002.parquet")
    dataset = open_dataset(f"hf:{tmp_path / 'lists'}", **WHOLE)
    assert dataset.splits["train"].targets.tolist() == [[1, 0, 0], [-1, -1, -1], [0, 0, 0], [0, 0, 0]]

    label = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": label}})}
    single = pa.table({"image": image, "label": [2, -1, 0, None]}).replace_schema_metadata(metadata)
    pq.write_table(single, tmp_path / "single.parquet")
    dataset = open_dataset(f"hf:{tmp_path / 'single.parquet'}", **WHOLE)
    assert dataset.splits["train"].targets.tolist() == [[0, 0, 1], [-1, -1, -1], [1, 0, 0], [0, 0, 0]]
    bad = pa.table({"image": image, "label": [2, -2, 0, 0]}).replace_schema_metadata(metadata)
    pq.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="column 'label' holds -2"):
        open_dataset(f"hf:{tmp_path / 'bad.parquet'}", **WHOLE)


def test_configurations_other_splits_and_other_columns(tmp_path: Path) -> None:
    for place in ("small/train/0000", "small/test/0000", "large/train/0000"):
        (tmp_path / place).parent.mkdir(parents=True)
        pq.write_table(table([1, 2]), tmp_path / f"{place}.parquet")
    with pytest.raises(
        InputError, match="has the configurations large, small; choose one with -o config=NAME"
    ):
        open_dataset(f"hf:{tmp_path}")
    pq.write_table(table([3]), tmp_path / "small" / "extra.parquet")
    dataset = open_dataset(f"hf:{tmp_path}", config="small", val_fraction=0)
    assert_right(dataset, {"train": [1, 2], "test": [1, 2]})
    assert dataset.notes == ("left out, in no split: extra.parquet",)
    pq.write_table(table([3]).drop_columns(["caption"]), tmp_path / "small" / "test" / "0001.parquet")
    with pytest.raises(InputError, match=r"0001\.parquet has other columns than .*: image, tags instead of"):
        open_dataset(f"hf:{tmp_path}", config="small")


def test_what_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no Parquet or Arrow file"):
        open_dataset(f"hf:{tmp_path}")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(InputError, match=r"bad\.parquet is not a readable Parquet or Arrow file"):
        open_dataset(f"hf:{tmp_path}")
    with pytest.raises(InputError, match=r"gone\.parquet does not exist"):
        open_dataset(f"hf:{tmp_path / 'gone.parquet'}")


def test_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the hub needs huggingface_hub")
    revisions = []

    def download(name: str, *, repo_type: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert (name, repo_type) == ("owner/pets", "dataset")
        assert "*.parquet" in allow_patterns
        revisions.append(revision)
        folder = tmp_path / str(revision is None)
        folder.mkdir(exist_ok=True)
        if revision is not None:
            pq.write_table(table([1, 2]), folder / "train.parquet")
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    dataset = open_dataset("hf:owner/pets", **WHOLE)
    assert_right(dataset, {"train": [1, 2]})
    assert dataset.name == "pets"
    assert revisions == [None, "refs/convert/parquet"]

    def fail(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(InputError, match=r"owner/pets is no folder or file here, .*: no network"):
        open_dataset("hf:owner/pets")
