"""What every reader makes of small datasets, which a refactoring must not change.

To write it anew after a change that is meant to alter it:
`PYTHONPATH=tests python tests/data/readers/test_frozen_datasets.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_files import WIDTH, vectors_and_targets, write_archive
from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.readers.registry import READERS
from kmcl.data.shard_writing import write_shards
from miniature_datasets import (
    coco2014_annotation,
    coco_annotation,
    cvat_xml,
    hf_table,
    labelstudio_choice,
    labelstudio_task,
    voc_object,
    write_adp,
    write_chestxray14,
    write_coco,
    write_coco2014,
    write_medmnist,
    write_voc,
    write_yolo,
)
from small_images import save_small_image, small_image_bytes

FROZEN = Path(__file__).with_name("frozen_datasets.json")
NUM_ROWS = 60
PARENTS = {"cat": "animal", "dog": ["animal", "pet"], "animal": "being"}


def write_table(folder: Path, header: str, cells: Callable[[int], str]) -> str:
    """A table of `NUM_ROWS` images, of which the first is there."""
    save_small_image(folder / "pics/0.png", 0)
    rows = [f"pics/{number}.png,{cells(number)}" for number in range(NUM_ROWS)]
    (folder / "labels.csv").write_text("\n".join([f"image,{header}", *rows]) + "\n")
    return f"table:{folder / 'labels.csv'}"


def marks(number: int) -> str:
    """Cells of `cat`, `dog` and `fox`, some of them blank."""
    return f"{number % 2},{'' if number % 7 == 3 else number % 3 % 2},{int(number % 11 == 0)}"


def table_drawn_by_patients(folder: Path) -> Dataset:
    spec = write_table(folder, "patient,cat,dog,fox", lambda n: f"p{n * n % 23},{marks(n)}")
    return open_dataset(spec, seed=3, subset=20, val_fraction=0.2)


def table_drawn_by_images(folder: Path) -> Dataset:
    return open_dataset(write_table(folder, "cat,dog,fox", marks), subset=15)


def write_table_with_splits(folder: Path) -> str:
    def cells(number: int) -> str:
        return f"{'test' if number % 5 == 0 else 'Train'},g{number // 3},{marks(number)}"

    return write_table(folder, "split,group,cat,dog,fox", cells)


def table_with_splits_and_groups(folder: Path) -> Dataset:
    return open_dataset(write_table_with_splits(folder), val_fraction=0.3)


def table_with_names_and_unknown_names(folder: Path) -> Dataset:
    def cells(number: int) -> str:
        names = [name for name, step in (("cat", 2), ("red fox", 3), ("dog", 5)) if number % step == 0]
        return f"{'|'.join(names)},{'dog' if number % 10 == 1 else ''}"

    return open_dataset(write_table(folder, "labels,unknown_labels", cells))


def table_with_parents(folder: Path) -> Dataset:
    return open_dataset(write_table(folder, "cat,dog,fox", marks), parents=PARENTS)


def table_with_sources(folder: Path) -> Dataset:
    def cells(number: int) -> str:
        return f"{('clinic', 'home')[number % 2]},{'x' if number % 3 else ''},{'' if number % 2 else 'x'}"

    sources = {"clinic": ["cat", "dog"], "home": ["cat"]}
    return open_dataset(write_table(folder, "source,cat,dog", cells), sources=sources)


def table_in_parquet(folder: Path) -> Dataset:
    pd = pytest.importorskip("pandas", reason="Parquet needs pandas and pyarrow")
    spec = write_table(folder, "group,cat,dog,fox", lambda n: f"{n // 2},{marks(n)}")
    pd.read_csv(spec.removeprefix("table:")).to_parquet(folder / "labels.parquet")
    return open_dataset(f"table:{folder / 'labels.parquet'}")


def frame_with_lists_and_parents(folder: Path) -> Dataset:
    pd = pytest.importorskip("pandas", reason="a DataFrame needs pandas")
    save_small_image(folder / "0.png", 0)
    columns = {
        "image": [f"{number}.png" for number in range(NUM_ROWS)],
        "labels": [["cat", "dog"][: number % 3] for number in range(NUM_ROWS)],
        "group": [number // 4 for number in range(NUM_ROWS)],
    }
    return open_dataset(pd.DataFrame(columns), root=folder, parents=PARENTS, subset=30)


def folder_with_splits(folder: Path) -> Dataset:
    for number, place in enumerate(("Train/cat", "Train/dog/puppy", "valid/dog", "test/dog", "test/_none")):
        save_small_image(folder / place / "1.png", number)
    save_small_image(folder / "Train/cat/again.png", 1)
    return open_dataset(f"folder:{folder}", nested="all")


def folder_drawn(folder: Path) -> Dataset:
    for number in range(20):
        for label in ("cat", "dog", "_none")[number % 3 : number % 3 + 1 + number % 2]:
            save_small_image(folder / label / f"{number}.png", number)
    return open_dataset(f"folder:{folder}")


def coco_images(count: int) -> tuple[dict[int, str], list[dict[str, Any]]]:
    images = {7 * number + 3: f"{number}.png" for number in range(count)}
    categories = {3: 2, 7: 3, 40: 4}
    annotations = [
        coco_annotation(key, category)
        for number, key in enumerate(images)
        for category, step in categories.items()
        if number % step == 0
    ]
    return images, annotations


def coco_drawn(folder: Path) -> Dataset:
    save_small_image(folder / "0.png", 0)
    return open_dataset(f"coco:{write_coco(folder / 'annotations.json', *coco_images(30))}")


def coco_with_splits_and_unlisted_unknown(folder: Path) -> Dataset:
    for name, count in (("train", 12), ("val", 5)):
        write_coco(folder / f"annotations/instances_{name}2017.json", *coco_images(count))
        save_small_image(folder / f"{name}2017/0.png", 0)
    return open_dataset(f"coco:{folder}", unlisted="unknown")


def coco2014_subset(folder: Path) -> Dataset:
    for part, ids in (("train2014", range(40)), ("val2014", range(100, 109))):
        annotations = [coco2014_annotation(number, (1, 18, 90)[number % 3]) for number in ids if number % 4]
        write_coco2014(folder, part, list(ids), annotations)
    return open_dataset(f"coco2014:{folder}", subset=12)


def cvat_with_subsets(folder: Path) -> Dataset:
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        archive.writestr("annotations.xml", cvat_xml("Train", "Validation"))
        archive.writestr("images/Train/sub/a.png", small_image_bytes(1))
    return open_dataset(f"cvat:{folder / 'export.zip'}")


def cvat_tags_alone(folder: Path) -> Dataset:
    (folder / "annotations.xml").write_text(cvat_xml())
    save_small_image(folder / "images/b.png", 1)
    whole = {"val_fraction": 0, "test_fraction": 0}
    return open_dataset(f"cvat:{folder / 'annotations.xml'}", shapes=False, unlisted="unknown", **whole)


def yolo_with_splits(folder: Path) -> Dataset:
    write_yolo(folder)
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog, fox]\n")
    return open_dataset(f"yolo:{folder}")


def yolo_drawn(folder: Path) -> Dataset:
    write_yolo(folder)
    (folder / "classes.txt").write_text("cat\ndog\nfox\n")
    return open_dataset(f"yolo:{folder}", val_fraction=0, test_fraction=0.25)


def write_tasks(folder: Path, count: int, **data: Callable[[int], Any]) -> str:
    save_small_image(folder / "0.png", 0)
    tasks = [
        labelstudio_task(
            number,
            f"{number}.png",
            labelstudio_choice("cat", *(["dog"] if number % 3 else [])),
            labelstudio_choice(*(["cat"] if number % 4 else [])),
            **{key: value(number) for key, value in data.items()},
        )
        for number in range(count)
    ]
    (folder / "export.json").write_text(json.dumps(tasks))
    return f"labelstudio:{folder / 'export.json'}"


def labelstudio_with_splits_and_unknown_labels(folder: Path) -> Dataset:
    spec = write_tasks(
        folder,
        20,
        split=lambda n: ("train", "train", "val", "test")[n % 4],
        group=lambda n: f"g{n // 4}",
        unknown_labels=lambda n: ["fox"] if n % 5 == 0 else [],
    )
    return open_dataset(spec)


def labelstudio_drawn_by_groups(folder: Path) -> Dataset:
    return open_dataset(write_tasks(folder, 40, group=lambda n: str(n // 2)), subset=10, agreement="all")


def write_hf(folder: Path, **numbers: range) -> str:
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    for name, part in numbers.items():
        pq.write_table(hf_table(part), folder / f"{name}-00000-of-00001.parquet")
    return f"hf:{folder}"


def hf_with_splits(folder: Path) -> Dataset:
    return open_dataset(write_hf(folder, train=range(20), validation=range(5), test=range(7)))


def hf_drawn(folder: Path) -> Dataset:
    return open_dataset(write_hf(folder, train=range(30)), seed=1)


def features_with_splits_and_groups(folder: Path) -> Dataset:
    splits = np.array(["train", "train", "test"] * 20)
    path = write_archive(folder / "a.npz", NUM_ROWS, split=splits, group=np.arange(NUM_ROWS) // 3)
    return open_dataset(f"features:{path}", subset=20)


def features_in_parquet(folder: Path) -> Dataset:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    vectors, targets = vectors_and_targets(NUM_ROWS)
    columns = {f"x{place}": vectors[:, place] for place in range(WIDTH)}
    pq.write_table(pa.table(columns | {"a": targets[:, 0], "b": targets[:, 1]}), folder / "a.parquet")
    return open_dataset(f"features:{folder / 'a.parquet'}")


def write_voc_images(folder: Path) -> str:
    """Two of three dogs are difficult."""
    ids = [f"{number:06}" for number in range(30)]
    annotations = {
        image_id: voc_object("cat" if number % 2 else "person")
        + voc_object("dog", "1" if number % 3 else "0")
        for number, image_id in enumerate(ids)
    }
    write_voc(folder / "VOC2007", annotations, {"trainval": "\n".join(ids[:20]), "test": "\n".join(ids[20:])})
    return f"voc2007:{folder}"


def voc2007_difficult_and_parents(folder: Path) -> Dataset:
    return open_dataset(write_voc_images(folder), parents={"cat": "animal", "dog": "animal"})


def voc2007_difficult_unknown(folder: Path) -> Dataset:
    return open_dataset(write_voc_images(folder), difficult="unknown", val_fraction=0, subset=9)


def adp_drawn(folder: Path) -> Dataset:
    write_adp(folder, 40)
    return open_dataset(f"adp:{folder}", level="L2")


def adp_with_splits(folder: Path) -> Dataset:
    root = write_adp(folder)
    for name, rows in {"train": [5, 1, 2, 7, 8], "valid": [0, 3], "test": [19, 4]}.items():
        np.save(root / f"splits/{name}.npy", np.array(rows))
    return open_dataset(f"adp:{folder}", level="L3+")


def chestxray14_val_by_patients(folder: Path) -> Dataset:
    found = ("No Finding", "Mass|Hernia", "Edema")
    rows = [(f"{n // 3:08}_{n % 3:03}.png", found[n % 5 % 3], n // 3) for n in range(NUM_ROWS)]
    write_chestxray14(folder, rows, {name for name, _, patient in rows if patient % 4 == 0})
    return open_dataset(f"chestxray14:{folder}", val_fraction=0.25, subset=20)


def medmnist_subset(folder: Path) -> Dataset:
    write_medmnist(folder / "chestmnist.npz", (28, 28), 14)
    return open_dataset(f"medmnist:{folder / 'chestmnist.npz'}", subset=4)


def shards_with_groups_and_unknown_labels(folder: Path) -> Dataset:
    for number in range(NUM_ROWS):
        save_small_image(folder / f"pics/{number}.png", number)
    table = open_dataset(write_table_with_splits(folder), val_fraction=0)
    write_shards(table, folder / "shards", 25)
    return open_dataset(f"shards:{folder / 'shards'}", subset=12)


def shards_of_litdata(folder: Path) -> Dataset:
    pytest.importorskip("litdata", reason="the extra litdata is not installed")
    from kmcl.data.litdata_writing import write_chunks

    write_chunks(open_dataset("digits", size=12), folder / "chunks", 5)
    return open_dataset(f"shards:{folder / 'chunks'}")


def digits_subset(folder: Path) -> Dataset:
    return open_dataset("digits", size=30, seed=2, subset=20)


def scenes_subset(folder: Path) -> Dataset:
    return open_dataset("scenes", size=30, seed=2, subset=20)


CASES = {
    read.__name__: read
    for read in (
        table_drawn_by_patients,
        table_drawn_by_images,
        table_with_splits_and_groups,
        table_with_names_and_unknown_names,
        table_with_parents,
        table_with_sources,
        table_in_parquet,
        frame_with_lists_and_parents,
        folder_with_splits,
        folder_drawn,
        coco_drawn,
        coco_with_splits_and_unlisted_unknown,
        coco2014_subset,
        cvat_with_subsets,
        cvat_tags_alone,
        yolo_with_splits,
        yolo_drawn,
        labelstudio_with_splits_and_unknown_labels,
        labelstudio_drawn_by_groups,
        hf_with_splits,
        hf_drawn,
        features_with_splits_and_groups,
        features_in_parquet,
        voc2007_difficult_and_parents,
        voc2007_difficult_unknown,
        adp_drawn,
        adp_with_splits,
        chestxray14_val_by_patients,
        medmnist_subset,
        shards_with_groups_and_unknown_labels,
        shards_of_litdata,
        digits_subset,
        scenes_subset,
    )
}


def run_case(name: str, parent: Path) -> dict[str, Any]:
    """The labels of the dataset, and of each split the size and what its arrays hold, as hashes."""
    folder = parent / "data"  # which many readers call the dataset after
    folder.mkdir()
    dataset = CASES[name](folder)
    return {
        "name": dataset.name,
        "labels": list(dataset.labels),
        "parents": {label: list(parents) for label, parents in dataset.parents.items()},
        "splits": {name: describe_split(split, folder) for name, split in dataset.splits.items()},
    }


def describe_split(split: Split, folder: Path) -> dict[str, Any]:
    """Without what there is not; names of images without the folder, which is another one every time."""
    names = [split.images.name(row) for row in range(len(split))]
    arrays = {
        "targets": split.targets,
        "ignored": split.ignored,
        "groups": split.groups,
        "lines": split.lines,
        "names": np.array([name.replace(str(folder), "").replace("\\", "/") for name in names]),
    }
    return {"size": len(split)} | {key: digest(array) for key, array in arrays.items() if array is not None}


def digest(array: np.ndarray) -> str:
    content = f"{array.dtype.kind} {json.dumps(array.tolist())}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_a_dataset_is_read_as_before(name: str, tmp_path: Path) -> None:
    assert run_case(name, tmp_path) == json.loads(FROZEN.read_text())[name]


def test_no_reader_is_left_out() -> None:
    assert set(READERS._builtin) <= {name.partition("_")[0] for name in CASES}


if __name__ == "__main__":
    frozen = json.loads(FROZEN.read_text()) if FROZEN.exists() else {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as parent:
            os.environ["KMCL_CACHE"] = str(Path(parent, "cache"))
            try:
                frozen[name] = run_case(name, Path(parent))
            except pytest.skip.Exception as skipped:  # what it needs is not installed here
                sys.stdout.write(f"{name} stays as it was: {skipped}\n")
    FROZEN.write_text(json.dumps(frozen, indent=1) + "\n")
