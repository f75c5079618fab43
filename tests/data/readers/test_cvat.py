"""CVAT for images 1.1: tags and shapes, subsets, inside its archive with and without the images."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.check import check_spec
from kmcl.errors import InputError
from miniature_datasets import cvat_xml
from small_images import save_small_image, small_image_bytes

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


def test_tags_and_shapes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_text(cvat_xml())
    for number, name in enumerate(("sub/a.png", "b.png")):
        save_small_image(tmp_path / "images" / name, number)
    spec = f"cvat:{tmp_path / 'annotations.xml'}"
    dataset = open_dataset(spec, **WHOLE)
    assert dataset.name == tmp_path.name
    assert dataset.labels == ("zebra", "cat")
    assert dataset.splits["train"].targets.tolist() == [[0, 1], [1, 0], [0, 0]]
    tags = open_dataset(spec, shapes=False, **WHOLE)
    assert tags.splits["train"].targets.tolist() == [[0, 1], [0, 0], [0, 0]]
    (problem,) = check_spec(spec, WHOLE).problems
    assert "c.png does not exist" in problem.message


def test_an_archive_with_images_in_folders_of_subsets(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("annotations.xml", cvat_xml("Train", "Validation"))
        archive.writestr("images/Train/sub/a.png", small_image_bytes(1))
        archive.writestr("images/Validation/b.png", small_image_bytes(2))
        archive.writestr("images/Test/b.png", small_image_bytes(3))
    dataset = open_dataset(f"cvat:{tmp_path / 'export.zip'}")
    train, val = dataset.splits["train"], dataset.splits["val"]
    assert (train.targets.tolist(), val.targets.tolist()) == ([[0, 1]], [[1, 0], [0, 0]])
    assert train.images.name(0).endswith("export.zip/images/Train/sub/a.png")
    assert int(train.images.load(0)[0, 0, 0]) == 1
    assert int(pickle.loads(pickle.dumps(val.images)).load(0)[0, 0, 0]) == 2
    with pytest.raises(InputError, match=r"c\.png does not exist"):
        val.images.load(1)


def test_an_archive_without_images(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("annotations.xml", cvat_xml("default", "default"))
    save_small_image(tmp_path / "anywhere" / "sub" / "a.png", 5)
    dataset = open_dataset(f"cvat:{tmp_path / 'export.zip'}", **WHOLE)
    assert int(dataset.splits["train"].images.load(0)[0, 0, 0]) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotations><image", "cannot be read"),
        ("<annotations><track id='0' label='cat'/></annotations>", "are of a video"),
        ("<annotations></annotations>", "have no image"),
        (cvat_xml("train", ""), r"other splits, expected train, val or test for every image"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.xml").write_text(content)
    save_small_image(tmp_path / "b.png", 1)
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"cvat:{tmp_path / 'a.xml'}")
    assert "a.xml" in str(caught.value)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("other.txt", "")
    with pytest.raises(InputError, match=r"holds 0 files annotations\.xml, expected one"):
        open_dataset(f"cvat:{tmp_path / 'empty.zip'}")
