"""VOC 2007 in miniature, with its spaces, parts and difficult objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kmcl.data import UNKNOWN, open_dataset
from kmcl.data.check import check_spec
from kmcl.data.readers.voc2007 import VOC_LABELS
from kmcl.errors import InputError
from miniature_datasets import voc_object, write_voc

PERSON, DOG, CAR = (VOC_LABELS.index(name) for name in ("person", "dog", "car"))


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    head = "<part><name>head</name><bndbox/></part>"
    annotations = {
        "000005": voc_object("\n person \n", "0", head) + voc_object("dog", " 1 "),
        "000007": voc_object("dog", "1") + voc_object("dog", "0") + voc_object("car", None),
        "000009": voc_object("car", "\n1\n"),
        "000001": voc_object("person", "1"),
    }
    lists = {
        "trainval": "000005 \n000007\n  000009\n\n",
        "test": "000001\n",
        "dog_trainval": "000005  0\n000007  1\n",
    }
    write_voc(tmp_path / "VOCdevkit" / "VOC2007", annotations, lists)
    return tmp_path / "VOCdevkit"


def test_labels_targets_and_difficult_objects(devkit: Path) -> None:
    dataset = open_dataset(f"voc2007:{devkit}", val_fraction=0)
    assert dataset.num_labels == 20
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 3, "test": 1}
    train = dataset.splits["train"]
    expected = np.zeros((3, 20), dtype=np.int8)
    expected[0, [PERSON, DOG]] = expected[1, [DOG, CAR]] = expected[2, CAR] = 1
    assert np.array_equal(train.targets, expected)
    assert train.ignored is not None
    assert np.argwhere(train.ignored).tolist() == [[0, DOG], [2, CAR]]
    assert train.images.load(0).shape == (10, 20, 3)
    assert train.images.name(2).endswith("JPEGImages/000009.jpg")
    ignored = dataset.splits["test"].ignored
    assert ignored is not None
    assert np.argwhere(ignored).tolist() == [[0, PERSON]]


@pytest.mark.parametrize(("choice", "value"), [("positive", 1), ("unknown", UNKNOWN), ("absent", 0)])
def test_difficult_is_an_option_and_always_ignored(devkit: Path, choice: str, value: int) -> None:
    train = open_dataset(f"voc2007:{devkit / 'VOC2007'}", val_fraction=0, difficult=choice).splits["train"]
    assert train.targets[0, DOG] == value
    assert train.targets[1, DOG] == 1
    assert train.ignored is not None
    assert train.ignored[0, DOG]
    assert not train.ignored[1, DOG]


def test_validation_is_cut_from_trainval(tmp_path: Path) -> None:
    ids = [f"{number:06}" for number in range(40)]
    annotations = {
        image_id: voc_object("dog" if number % 2 else "cat") for number, image_id in enumerate(ids)
    }
    write_voc(tmp_path / "VOC2007", annotations, {"trainval": "\n".join(ids)})
    dataset = open_dataset(f"voc2007:{tmp_path}", val_fraction=0.2)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 32, "val": 8}
    assert dataset.splits["val"].targets.sum(axis=0)[DOG] == 4


def test_the_check_names_all_wrong_annotations_and_checks_the_other_images(devkit: Path) -> None:
    root = devkit / "VOC2007"
    (root / "ImageSets/Main/trainval.txt").write_text("000005\n000007\n000009\n000011\n000012\n")
    (root / "Annotations/000007.xml").write_text("<annotation><object>")
    (root / "Annotations/000009.xml").write_text(f"<a>{voc_object('dgo')}{voc_object('cra')}</a>")
    (root / "Annotations/000012.xml").write_text(f"<a>{voc_object('car')}</a>")
    report = check_spec(f"voc2007:{devkit}", {"val_fraction": 0})
    refused = [problem for problem in report.problems if problem.kind == "unusable row"]
    assert [problem.line for problem in refused] == [2, 3, 3, 4]
    parts = [
        "000007.xml cannot be read",
        "object 'dgo' is none",
        "object 'cra' is none",
        "000011.xml is missing",
    ]
    assert all(part in problem.message for part, problem in zip(parts, refused, strict=True))
    others = [problem for problem in report.problems if problem.kind != "unusable row"]
    assert [(problem.kind, problem.split, problem.line) for problem in others if problem.line != 1] == [
        ("unreadable image", "train", 5)
    ]
    assert report.num_images == 3


def test_errors_name_the_file(devkit: Path, tmp_path: Path) -> None:
    root = devkit / "VOC2007"
    (root / "Annotations/000007.xml").write_text("<annotation><object><name>dgo</name></object></annotation>")
    with pytest.raises(InputError, match=r"000007\.xml: object 'dgo'.*did you mean 'dog'"):
        open_dataset(f"voc2007:{devkit}")
    (root / "Annotations/000007.xml").write_text("<annotation><object>")
    with pytest.raises(InputError, match=r"000007\.xml cannot be read"):
        open_dataset(f"voc2007:{devkit}")
    (root / "Annotations/000007.xml").unlink()
    with pytest.raises(InputError, match=r"trainval\.txt line 2: annotation .*000007\.xml is missing"):
        open_dataset(f"voc2007:{devkit}")
    with (root / "ImageSets/Main/trainval.txt").open("w") as file:
        file.write(300 * "7" + "\n")
    with pytest.raises(InputError, match=r"trainval\.txt line 1: annotation .*777.* is missing"):
        open_dataset(f"voc2007:{devkit}")
    with pytest.raises(InputError, match="holds no VOC2007"):
        open_dataset(f"voc2007:{root / 'JPEGImages'}")
    with pytest.raises(InputError, match="does not exist"):
        open_dataset(f"voc2007:{tmp_path / 'nowhere'}")
