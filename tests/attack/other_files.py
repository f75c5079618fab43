"""Datasets as they are released, in miniature, and the smaller files that commands read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image
from tiny_model import LABELS

from kmcl.data import open_dataset
from kmcl.evaluation.label_rules import LabelRules
from kmcl.options.word_vectors import read_word_vectors
from kmcl.reports.label_groups import read_groups
from kmcl.reports.prediction_files import read_predictions
from kmcl.reports.run_parts import RunParts
from kmcl.studies.plan import enter_plan, make_plan, read_plan
from kmcl.studies.variants import parse_variants


class OtherFile(NamedTuple):
    """A file, and what reads it."""

    name: str
    path: Path
    read: Callable[[], object]


def other_files(folder: Path) -> Iterator[OtherFile]:
    for write in (_parquet, _coco, _voc, _adp, _chestxray, _medmnist, _features, _predictions, _of_commands):
        yield from write(folder / write.__name__.strip("_"))


def write_images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.new("RGB", (8, 6), (number, 77, 0)).save(folder / name)


def _parquet(folder: Path) -> Iterator[OtherFile]:
    write_images(folder, [f"{n}.png" for n in range(8)])
    labels = [["cat", "dog"][: n % 3] for n in range(24)]
    rows = {"image": [f"{n % 8}.png" for n in range(24)], "labels": labels}
    pd.DataFrame(rows).to_parquet(folder / "labels.parquet")
    yield OtherFile(
        "table", folder / "labels.parquet", lambda: open_dataset(f"table:{folder / 'labels.parquet'}")
    )


def _coco(folder: Path) -> Iterator[OtherFile]:
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    for part in ("train2014", "val2014"):
        names = {number: f"COCO_{part}_{number:012}.jpg" for number in range(12)}
        write_images(folder / part, list(names.values()))
        content = {
            "images": [{"id": number, "file_name": name} for number, name in names.items()],
            "annotations": [
                {"image_id": n, "category_id": 1 + 17 * (n % 2), "iscrowd": 0, "segmentation": [[1.0, 2.0]]}
                for n in names
            ],
            "categories": categories,
        }
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
    path = folder / "annotations" / "instances_train2014.json"
    yield OtherFile("COCO", path, lambda: open_dataset(f"coco2014:{folder}"))


def _voc(folder: Path) -> Iterator[OtherFile]:
    names = [f"{number:06}" for number in range(12)]
    write_images(folder / "JPEGImages", [f"{name}.jpg" for name in names])
    for below in ("Annotations", "ImageSets/Main"):
        (folder / below).mkdir(parents=True)
    found = "<object><name>dog</name><difficult>0</difficult><bndbox><xmin>1</xmin></bndbox></object>"
    for name in names:
        text = f"<annotation><filename>{name}.jpg</filename>{found}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(text)
    (folder / "ImageSets/Main/trainval.txt").write_text("\n".join(names[:9]) + "\n")
    (folder / "ImageSets/Main/test.txt").write_text("\n".join(names[9:]) + "\n")
    for path in (folder / "Annotations/000003.xml", folder / "ImageSets/Main/trainval.txt"):
        yield OtherFile("VOC", path, lambda: open_dataset(f"voc2007:{folder}"))


def _adp(folder: Path) -> Iterator[OtherFile]:
    codes = [*"ECHSAMNGT", "E.M", "E.M.S", "C.D", "N.G", "N.G.M"]
    names = [f"{number:03}.png_crop_{number}.png" for number in range(20)]
    write_images(folder / "img_res_1um_bicubic", names)
    (folder / "splits").mkdir()
    rows = [",".join([name, *(str((n + k) % 2) for k in range(len(codes)))]) for n, name in enumerate(names)]
    path = folder / "ADP_EncodedLabels_Release1_Flat.csv"
    path.write_text("\n".join([",".join(["Patch Names", *codes]), *rows]) + "\n")
    yield OtherFile("ADP", path, lambda: open_dataset(f"adp:{folder}"))


def _chestxray(folder: Path) -> Iterator[OtherFile]:
    header = (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
        "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
    )
    names = [f"{number:08}_000.png" for number in range(12)]
    write_images(folder / "images", names)
    rows = [
        f"{name},{'Mass|Hernia' if n % 2 else 'No Finding'},0,{n},058Y,M,PA,2682,2749,0.143,0.143,"
        for n, name in enumerate(names)
    ]
    (folder / "Data_Entry_2017_v2020.csv").write_text("\r\n".join([header, *rows]) + "\r\n")
    (folder / "train_val_list.txt").write_text("\n".join(names[:9]))
    (folder / "test_list.txt").write_text("\n".join(names[9:]) + "\n")
    for name in ("Data_Entry_2017_v2020.csv", "train_val_list.txt"):
        yield OtherFile("ChestX-ray14", folder / name, lambda: open_dataset(f"chestxray14:{folder}"))


def _medmnist(folder: Path) -> Iterator[OtherFile]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    arrays = {}
    for name, count in (("train", 6), ("val", 3), ("test", 4)):
        arrays[f"{name}_images"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{name}_labels"] = rng.integers(0, 2, (count, 14), dtype=np.uint8)
    path = folder / "chestmnist.npz"
    np.savez_compressed(path, **arrays)
    yield OtherFile("MedMNIST", path, lambda: open_dataset(f"medmnist:{path}"))


def _features(folder: Path) -> Iterator[OtherFile]:
    folder.mkdir(parents=True)
    vectors = np.arange(96, dtype=np.float32).reshape(24, 4) % 7
    targets = np.eye(2, dtype=np.int8)[np.arange(24) % 2]
    np.savez(folder / "x.npz", features=vectors, targets=targets, labels=["a", "b"], ids=np.arange(24))
    table = pd.DataFrame({"embedding": list(vectors), "labels": [["a", "b"][: n % 3] for n in range(24)]})
    table.to_parquet(folder / "x.parquet")
    for name in ("x.npz", "x.parquet"):
        path = folder / name
        yield OtherFile("features", path, lambda path=path: open_dataset(f"features:{path}"))


def _predictions(folder: Path) -> Iterator[OtherFile]:
    """Forms of `kmcl predict --output`, which `kmcl monitor` reads."""
    folder.mkdir()
    rules = LabelRules(LABELS, thresholds=(0.5,) * len(LABELS))
    rows = [
        {"image": f"{n}.png", "label": label, "probability": 0.25 + n / 20}
        for n in range(6)
        for label in LABELS
    ]
    long = pd.DataFrame(rows)
    long.to_csv(folder / "long.csv", index=False)
    long.pivot(index="image", columns="label", values="probability").to_csv(folder / "wide.csv")
    long.to_parquet(folder / "long.parquet")
    images = [
        {
            "image": f"{n}.png",
            "unfamiliarity": 0.5,
            "labels": [row for row in rows if row["image"] == f"{n}.png"],
        }
        for n in range(6)
    ]
    (folder / "all.json").write_text(json.dumps(images))
    (folder / "all.jsonl").write_text("\n".join(map(json.dumps, images)) + "\n")
    for path in sorted(folder.iterdir()):
        yield OtherFile("predicted images", path, lambda path=path: read_predictions([path], rules))


def _of_commands(folder: Path) -> Iterator[OtherFile]:
    folder.mkdir()
    plan = make_plan("compare", {"data": "digits", "epochs": 2}, parse_variants(["asl,kmcl"]), (0, 1))
    enter_plan(folder / "study", plan)
    yield OtherFile("study", folder / "study" / "study.yaml", lambda: read_plan(folder / "study"))
    words = folder / "vectors.txt"
    words.write_text("".join(f"{word} 0.5 -1.25 3e-2\n" for word in ("ant", "bee", "cat", "dog", "emu")))
    yield OtherFile("word vectors", words, lambda: read_word_vectors.__wrapped__(words, LABELS))
    groups = folder / "groups.yaml"
    groups.write_text("insects: [ant, bee]\nothers: [cat & dog, emu]\n")
    yield OtherFile("label groups", groups, lambda: read_groups(groups, LABELS))
    run = folder / "run"
    run.mkdir()
    (run / "epochs.csv").write_text("epoch,seconds,train/loss,val/map_best\n1,2.5,0.5,0.25\n2,2.5,0.4,0.5\n")
    (run / "metrics.json").write_text('{"best": {"epoch": 1}, "test": {"evaluation": {}}, "val": null}')
    for name in ("epochs.csv", "metrics.json"):
        yield OtherFile("run", run / name, lambda: RunParts(run, "run").read_everything_small())
