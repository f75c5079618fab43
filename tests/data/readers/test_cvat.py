"""CVAT for images 1.1: tags and shapes, subsets, inside its archive with and without the images."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.check import check_spec
from kmcl.errors import InputError
from small_images import save_small_image, small_image_bytes

XML = """\
<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <task>
      <id>4</id><name>pets</name>
      <labels>
        <label><name>zebra</name><color>#fff</color><type>tag</type><attributes></attributes></label>
        <label><name>cat</name><type>any</type>
          <attributes><attribute><name>age</name></attribute></attributes></label>
        <label><name>nose</name><type>points</type><parent>face</parent></label>
      </labels>
    </task>
    <dumped>2026-01-01</dumped>
  </meta>
  <image id="0" name="sub/a.png"{first} width="8" height="6">
    <tag label="cat" source="manual"><attribute name="age">3</attribute></tag>
    <tag label="cat" source="manual"></tag>
  </image>
  <image id="2" name="b.png"{second} width="8" height="6">
    <box label="zebra" source="manual" occluded="0" xtl="1" ytl="1" xbr="2" ybr="2" z_order="0"></box>
  </image>
  <image id="7" name="c.png"{second} width="8" height="6"></image>
</annotations>
"""
WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


def xml(first: str = "", second: str = "") -> str:
    return XML.format(
        first=f' subset="{first}"' if first else "", second=f' subset="{second}"' if second else ""
    )


def test_tags_and_shapes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_text(xml())
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
        archive.writestr("annotations.xml", xml("Train", "Validation"))
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
        archive.writestr("annotations.xml", xml("default", "default"))
    save_small_image(tmp_path / "anywhere" / "sub" / "a.png", 5)
    dataset = open_dataset(f"cvat:{tmp_path / 'export.zip'}", **WHOLE)
    assert int(dataset.splits["train"].images.load(0)[0, 0, 0]) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotations><image", "cannot be read"),
        ("<annotations><track id='0' label='cat'/></annotations>", "are of a video"),
        ("<annotations></annotations>", "have no image"),
        (xml("train", ""), r"has the split '', expected train, val or test for every image"),
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
