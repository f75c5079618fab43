"""COCO 2014 in miniature: ids with gaps, crowds, images without annotation, files of images that are gone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from kmcl.data import open_dataset
from kmcl.data.readers.coco_files import without_outlines
from kmcl.errors import InputError
from miniature_datasets import coco2014_annotation as annotation
from miniature_datasets import write_coco2014


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    root = tmp_path / "coco"
    annotations = [
        annotation(30, 90),
        annotation(9, 1, crowd=True),
        annotation(30, 90),
        annotation(9, 18),
        annotation(777, 1),
    ]
    write_coco2014(root, "train2014", [30, 9, 25], annotations)
    write_coco2014(root, "val2014", [42, 73], [annotation(73, 18)])
    return root


def test_targets_in_the_order_of_ids_crowds_included(coco: Path) -> None:
    dataset = open_dataset(f"coco2014:{coco}", val_fraction=0)
    assert dataset.labels == ("person", "dog", "toothbrush")
    train, test = dataset.splits["train"], dataset.splits["test"]
    assert train.targets.tolist() == [[0, 0, 1], [1, 1, 0]]
    assert train.images.name(1).endswith("train2014/COCO_train2014_000000000009.jpg")
    assert train.images.load(0).shape == (6, 8, 3)
    assert test.targets.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_unlabelled_training_images_are_kept_on_request(coco: Path) -> None:
    train = open_dataset(f"coco2014:{coco}", val_fraction=0, keep_unlabelled=True).splits["train"]
    assert train.targets.tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0]]


def test_second_reading_comes_from_the_cache_until_the_file_changes(
    coco: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_dataset(f"coco2014:{coco}", val_fraction=0)
    parse = json.loads

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(json, "loads", refuse)
    again = open_dataset(f"coco2014:{coco}", val_fraction=0)
    assert np.array_equal(first.splits["train"].targets, again.splits["train"].targets)
    assert again.labels == first.labels
    os.utime(coco / "annotations/instances_train2014.json", ns=(1, 1))
    with pytest.raises(AssertionError, match="parsed again"):
        open_dataset(f"coco2014:{coco}")
    monkeypatch.setattr(json, "loads", parse)


@pytest.mark.parametrize("indent", [None, 2])
def test_outlines_are_left_out_and_nothing_else(indent: int | None) -> None:
    content = {
        "annotations": [
            annotation(9, 1, crowd=True) | {"area": 2.5},
            {"segmentation": [[1.5, 2], [3, 4.25]], "category_id": 18},
            {"id": 3, "segmentation": [[1, 2, 3]]},
            {"segmentation": [], "bbox": [1, 2]},
            {"segmentation": {"counts": "h]0o", "size": [4, 4]}, "bbox": [[5]]},
            {"segmentation": None, "note": 'a "segmentation": [[1]] in a string'},
            {"segmentation": 7},
        ]
    }
    expected = json.loads(json.dumps(content))
    for entry in expected["annotations"][:5]:
        entry["segmentation"] = None
    assert json.loads(without_outlines(json.dumps(content, indent=indent).encode())) == expected


def test_subsets_are_nested_and_share_one_val(tmp_path: Path) -> None:
    ids = list(range(100))
    write_coco2014(
        tmp_path, "train2014", ids, [annotation(number, (1, 18, 90)[number % 3]) for number in ids]
    )
    found = {}
    for subset in (10, 20, 40):
        dataset = open_dataset(f"coco2014:{tmp_path}", subset=subset, seed=3)
        assert "test" not in dataset.splits
        found[subset] = {
            name: {split.images.name(index) for index in range(len(split))}
            for name, split in dataset.splits.items()
        }
        assert len(found[subset]["train"]) == subset
    assert found[10]["train"] < found[20]["train"] < found[40]["train"]
    assert found[10]["val"] == found[40]["val"]
    assert len(found[10]["val"]) in (9, 10, 11)


def test_images_below_an_images_folder(coco: Path) -> None:
    (coco / "images").mkdir()
    for part in ("train2014", "val2014"):
        (coco / part).rename(coco / "images" / part)
    dataset = open_dataset(f"coco2014:{coco}", val_fraction=0)
    assert dataset.splits["test"].images.load(1).shape == (6, 8, 3)


def test_errors_name_the_file(coco: Path) -> None:
    path = coco / "annotations/instances_train2014.json"
    good = path.read_text()
    path.write_text(good[:-30])
    with pytest.raises(InputError, match=r"instances_train2014\.json are not readable JSON"):
        open_dataset(f"coco2014:{coco}")
    path.write_text('{"images": []}')
    with pytest.raises(InputError, match=r"instances_train2014\.json lack the expected"):
        open_dataset(f"coco2014:{coco}")
    path.write_text(good.replace('"dog"', '"hound"'))
    with pytest.raises(InputError, match=r"instances_val2014\.json have other categories"):
        open_dataset(f"coco2014:{coco}")
    path.unlink()
    with pytest.raises(InputError, match=r"instances_train2014\.json does not exist"):
        open_dataset(f"coco2014:{coco}")
    path.write_text(good)
    (coco / "train2014").rename(coco / "elsewhere")
    with pytest.raises(InputError, match="neither train2014/ nor images/train2014/"):
        open_dataset(f"coco2014:{coco}")
