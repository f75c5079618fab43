"""Tables as people have them: yes and x, ids instead of paths, NIH's header, several columns of names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.check import check_spec
from kmcl.data.readers.row_problems import RowError
from kmcl.errors import InputError
from small_images import save_small_image

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("a.png", "b.png", "c.png")):
        save_small_image(tmp_path / name, number)
    return tmp_path


def open_table(folder: Path, content: str, **options: object) -> Dataset:
    (folder / "labels.csv").write_text(content, encoding="utf-8")
    return open_dataset(f"table:{folder / 'labels.csv'}", **{**WHOLE, **options})


def targets(dataset: Dataset) -> list[list[int]]:
    return dataset.splits["train"].targets.tolist()


def test_yes_and_no(folder: Path) -> None:
    dataset = open_table(folder, "image,cat,dog\na.png,Yes,n\nb.png,no ,Y\nc.png,,no\n")
    assert targets(dataset) == [[1, 0], [0, 1], [-1, 0]]


def test_marks_leave_the_rest_absent(folder: Path) -> None:
    content = "image,cat,dog\na.png,x,\nb.png, ,X\nc.png,,\n"
    dataset = open_table(folder, content)
    assert targets(dataset) == [[1, 0], [0, 1], [0, 0]]
    assert "a blank cell means absent" in dataset.notes[0]
    unknown = open_table(folder, content, unlisted="unknown")
    assert targets(unknown) == [[1, -1], [-1, 1], [-1, -1]]
    assert unknown.notes == ()
    # Where something is called absent, a blank says nothing.
    assert targets(open_table(folder, content.replace("b.png, ,X", "b.png,0,X"))) == [
        [1, -1],
        [0, 1],
        [-1, -1],
    ]


def test_a_dash_is_a_blank_cell_and_a_question_mark_is_unknown(folder: Path) -> None:
    marks = "image,cat,dog\na.png,x,-\nb.png,-,X\nc.png,-,-\n"
    assert targets(open_table(folder, marks)) == [[1, 0], [0, 1], [0, 0]]
    numbers = "image,cat,dog\na.png,1,-\nb.png,0,?\nc.png,–,1\n"
    assert targets(open_table(folder, numbers)) == [[1, -1], [0, -1], [-1, 1]]
    assert targets(open_table(folder, numbers, unlisted="absent")) == [[1, 0], [0, -1], [0, 1]]


def test_unlisted_says_what_blank_cells_of_numbers_mean(folder: Path) -> None:
    content = "image,cat,dog\na.png,1,\nb.png,-1,1\nc.png,nan,\n"
    assert targets(open_table(folder, content)) == [[1, -1], [-1, 1], [-1, -1]]
    assert targets(open_table(folder, content, unlisted="absent")) == [[1, 0], [-1, 1], [-1, 0]]


def test_names_that_are_not_listed(folder: Path) -> None:
    content = "image,labels\na.png,cat|dog\nb.png,\nc.png,dog\n"
    assert targets(open_table(folder, content)) == [[1, 1], [0, 0], [0, 1]]
    assert targets(open_table(folder, content, unlisted="unknown")) == [[1, 1], [-1, -1], [-1, 1]]
    lists = "image;labels\na.png;['cat', 'dog']\nb.png;[]\n"
    assert targets(open_table(folder, lists, unlisted="unknown")) == [[1, 1], [-1, -1]]


def test_ids_are_found_wherever_the_images_are(tmp_path: Path) -> None:
    save_small_image(tmp_path / "part1" / "0001.png", 1)
    save_small_image(tmp_path / "part2" / "0002.png", 2)
    content = "image_id,cat\n0002,1\n0001,0\n0003,1\n"
    images = open_table(tmp_path, content).splits["train"].images
    assert images.load(0)[0, 0, 0] == 2
    assert images.load(1)[0, 0, 0] == 1
    with pytest.raises(InputError, match="0003 does not exist"):
        images.load(2)
    report = check_spec(f"table:{tmp_path / 'labels.csv'}", WHOLE)
    assert [problem.line for problem in report.problems] == [4]
    save_small_image(tmp_path / "masks" / "0002.png", 2)
    with pytest.raises(InputError, match=r"'0002' may be masks/0002\.png or part2/0002\.png"):
        open_table(tmp_path, content)


def test_numbers_that_lost_their_zeros(tmp_path: Path) -> None:
    for number, name in enumerate(("0001.png", "0020.png")):
        save_small_image(tmp_path / "photos" / name, number)
    content = "image_id,cat\n1,1\n20,0\n"
    images = open_table(tmp_path, content).splits["train"].images
    assert [images.name(row) for row in range(2)] == [
        str(tmp_path / "photos" / "0001.png"),
        str(tmp_path / "photos" / "0020.png"),
    ]
    # An image of that very name goes first.
    save_small_image(tmp_path / "photos" / "1.png", 2)
    assert open_table(tmp_path, content).splits["train"].images.name(0) == str(tmp_path / "photos" / "1.png")
    (tmp_path / "photos" / "1.png").unlink()
    save_small_image(tmp_path / "photos" / "01.png", 2)
    with pytest.raises(InputError, match=r"image '1' may be photos/0001\.png or photos/01\.png"):
        open_table(tmp_path, content)


def test_paths_of_another_machine_are_found_by_their_ends(tmp_path: Path) -> None:
    for number, place in enumerate(("x/1.png", "y/1.png")):
        save_small_image(tmp_path / "photos" / place, number)
    content = "image,cat\nD:\\data\\y\\1.jpeg,1\nD:\\data\\x\\1.jpeg,0\n"
    images = open_table(tmp_path, content).splits["train"].images
    assert [int(images.load(row)[0, 0, 0]) for row in range(2)] == [1, 0]


NIH = """\
Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,\
OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],
00000001_000.png,Cardiomegaly|Emphysema,0,1,058Y,M,PA,2682,2749,0.143,0.143,
00000001_001.png,Cardiomegaly,1,1,058Y,M,PA,2894,2729,0.143,0.143,
00000002_000.png,No Finding,0,2,081Y,M,PA,2500,2048,0.171,0.171,
"""


def test_the_header_of_chestxray14(tmp_path: Path) -> None:
    for number, name in enumerate(("00000001_000", "00000001_001", "00000002_000")):
        save_small_image(tmp_path / "images_001" / "images" / f"{name}.png", number)
    dataset = open_table(tmp_path, NIH)
    assert dataset.labels == ("Cardiomegaly", "Emphysema")
    assert targets(dataset) == [[1, 1], [1, 0], [0, 0]]
    assert dataset.splits["train"].groups.tolist() == ["1", "1", "2"]
    assert dataset.notes == (
        "'No Finding' means that an image has no label",
        (
            f"images were looked for by name in {tmp_path}: '00000001_000.png' is "
            "images_001/images/00000001_000.png"
        ),
    )
    # Who found nothing has looked for everything.
    assert targets(open_table(tmp_path, NIH, unlisted="unknown")) == [[1, 1], [1, -1], [0, 0]]
    kept = open_table(tmp_path, NIH, label_names="No Finding,Emphysema,Cardiomegaly")
    assert targets(kept) == [[0, 1, 1], [0, 0, 1], [1, 0, 0]]
    together = open_table(tmp_path, NIH.replace("Cardiomegaly|Emphysema", "No Finding|Emphysema"))
    assert together.labels == ("Cardiomegaly", "Emphysema", "No Finding")


def test_several_columns_of_names(folder: Path) -> None:
    content = "image,Label_1,label_2,age\na.png,dog,cat; tabby,3\nb.png,,,4\nc.png,dog,dog,5\n"
    dataset = open_table(folder, content)
    assert dataset.labels == ("cat; tabby", "dog")
    assert targets(dataset) == [[1, 1], [0, 0], [0, 1]]
    other = open_table(
        folder, content.replace("label_2", "also"), labels_column="Label_1,also", separator=";"
    )
    assert other.labels == ("cat", "dog", "tabby")
    numbers = open_table(folder, "image,label_1,label_2\na.png,1,0\nb.png,no,x\n")
    assert numbers.labels == ("label_1", "label_2")


def test_names_between_spaces(folder: Path) -> None:
    dataset = open_table(folder, "image,labels\na.png,rust scab\nb.png,scab\nc.png,rust\n")
    assert dataset.labels == ("rust", "scab")
    assert targets(dataset) == [[1, 1], [0, 1], [1, 0]]
    assert dataset.notes == ("spaces separate the names in column 'labels'; separator='|' changes that",)
    whole = open_table(folder, "image,labels\na.png,rust scab\nb.png,scab\nc.png,rust\n", separator="|")
    assert whole.labels == ("rust", "rust scab", "scab")
    assert whole.notes == ()


def test_names_with_spaces_stay_whole(folder: Path) -> None:
    content = "image,labels\na.png,stop sign\nb.png,traffic light\nc.png,sign\n"
    dataset = open_table(folder, content)
    assert dataset.labels == ("sign", "stop sign", "traffic light")
    assert dataset.notes == ()


def test_combined_words_that_never_stand_alone_are_told(folder: Path) -> None:
    for name in "defg":
        save_small_image(folder / f"{name}.png", 4)
    cells = [
        "haze primary",
        "haze water",
        "clear primary",
        "clear water",
        "haze primary water",
        "haze",
        "clear",
    ]
    content = "image,labels\n" + "".join(
        f"{name}.png,{cell}\n" for name, cell in zip("abcdefg", cells, strict=True)
    )
    dataset = open_table(folder, content)
    assert "haze primary" in dataset.labels
    assert dataset.notes == (
        "'haze primary' in column 'labels' is one label; if spaces separate names, give -o separator=' '",
    )
    separated = open_table(folder, content, separator=" ")
    assert separated.labels == ("clear", "haze", "primary", "water")


def test_columns_that_share_names_are_named_together(folder: Path) -> None:
    with pytest.raises(RowError, match="have the names of the labels, give -o labels_column=first,other; if"):
        open_table(folder, "image,first,other\na.png,cat,dog\nb.png,dog,\nc.png,cat,\n")


def test_sources_annotate_some_of_the_labels(folder: Path) -> None:
    content = "image,source,labels\na.png,north,cat\nb.png,south,dog\nc.png,north,\n"
    (folder / "sources.yaml").write_text("north: [cat]\nsouth: [cat, dog]\n")
    for sources in ("sources.yaml", {"north": ["cat"], "south": ["cat", "dog"]}):
        assert targets(open_table(folder, content, sources=sources)) == [[1, -1], [0, 1], [0, -1]]
    columns = "image,site,cat,dog\na.png,north,1,0\nb.png,south,0,1\n"
    read = open_table(folder, columns, sources="sources.yaml", source_column="site")
    assert read.labels == ("cat", "dog")
    assert targets(read) == [[1, -1], [0, 1]]
    with pytest.raises(RowError, match=r"line 3: label 'dog' is present, which the source .* not annotate"):
        open_table(folder, content.replace("south", "north"), sources="sources.yaml")
    with pytest.raises(RowError, match=r"line 3: column 'source' has the source 'east', not among north"):
        open_table(folder, content.replace("south", "east"), sources="sources.yaml")
    with pytest.raises(InputError, match=r"source 'north' annotates 'cta', .*\(did you mean 'cat'\?\)"):
        open_table(folder, content, sources={"north": ["cta"]})
    with pytest.raises(InputError, match="no column 'source'"):
        open_table(folder, columns, sources="sources.yaml")
    (folder / "sources.yaml").write_text("north: cat")
    with pytest.raises(InputError, match=r"sources\.yaml must have a list of labels for each source"):
        open_table(folder, content, sources="sources.yaml")


def test_labels_named_as_unknown(folder: Path) -> None:
    content = "image,labels,unknown_labels\na.png,cat,dog\nb.png,dog,\nc.png,,cat|dog\n"
    assert targets(open_table(folder, content)) == [[1, -1], [0, 1], [-1, -1]]
    with pytest.raises(RowError, match=r"line 2: label 'cat' is present, which column .* calls unknown"):
        open_table(folder, content.replace("cat,dog", "cat,cat"))
    with pytest.raises(RowError, match=r"line 2: column 'unknown_labels' names 'fox'"):
        open_table(folder, content.replace("cat,dog", "cat,fox"))


def test_a_column_that_is_no_label_is_refused_once(folder: Path) -> None:
    rows = "".join(f"a.png,{number},{'cow' if number < 2 else 1}\n" for number in range(40))
    (folder / "labels.csv").write_text(f"image,age,dog\n{rows}")
    report = check_spec(f"table:{folder / 'labels.csv'}", WHOLE)
    refused = [problem for problem in report.problems if problem.kind == "unusable row"]
    assert [(problem.line, problem.message[:12]) for problem in refused] == [
        (2, "column 'dog'"),
        (3, "column 'dog'"),
        (4, "column 'age'"),
    ]
    assert "in 38 of 40 rows, such as '2' and '3'" in refused[-1].message
    assert report.summary[-1] == "if 'age' is not a label, give -o ignore_columns=age"
