"""Datasets in the formats of annotation tools and hubs, in miniature, and the files that go with labels."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.ipc
import pyarrow.parquet as pq
from other_files import OtherFile, write_images

from kmcl.data import Dataset, open_dataset
from kmcl.data.dataset import StoredImage
from kmcl.data.files import decode_image
from kmcl.data.shard_writing import write_shards
from kmcl.data.tar_images import TarMember
from kmcl.data.writers.registry import write_dataset
from kmcl.labelling.findings_table import correct_labels
from kmcl.serving.image_sources import ImageSource
from kmcl.serving.prediction_job import PredictionJob

NUM_IMAGES = 24
LABELS = ("ant", "bee")
CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><labels>
<label><name>ant</name><type>tag</type></label><label><name>bee</name><type>any</type></label>
</labels></task></meta>
"""


def annotation_files(folder: Path) -> Iterator[OtherFile]:
    folder.mkdir()
    names = [f"{number}.png" for number in range(NUM_IMAGES)]
    write_images(folder, names)
    table = folder / "labels.csv"
    rows = [
        f"{name},{('train', 'train', 'val', 'test')[n % 4]},g{n},{n % 2},{'' if n == 3 else n % 3 % 2}"
        for n, name in enumerate(names)
    ]
    table.write_text("\n".join([f"image,split,group,{','.join(LABELS)}", *rows]) + "\n")
    dataset = open_dataset(f"table:{table}")
    for write in (_coco, _folder, _labelstudio, _cvat, _yolo, _hf, _shards, _beside_tables, _predicted):
        yield from write(folder / write.__name__.strip("_"), dataset, table)


def _opened(name: str, path: Path, spec: str, **options: object) -> OtherFile:
    """A file of a dataset that is opened as a whole, and of which every image is decoded."""

    def read() -> None:
        for split in open_dataset(spec, **options).splits.values():
            for index in range(len(split)):
                split.images.load(index)

    return OtherFile(name, path, read)


def _coco(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    spec = write_dataset(dataset, f"coco:{folder}")
    for path in sorted(folder.rglob("*train*.json")):
        yield _opened("coco:", path, spec)


def _folder(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    for label in LABELS:
        write_images(folder / label, [f"{label}{n}.png" for n in range(NUM_IMAGES)])
    yield _opened("folder:", folder / "ant/ant3.png", f"folder:{folder}")


def _labelstudio(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    spec = write_dataset(dataset, f"labelstudio:{folder}")
    tasks = next(folder.glob("*.json"))
    yield _opened("labelstudio:", tasks, spec)
    yield _opened("labelstudio:", folder / "label_config.xml", spec)
    content = json.loads(tasks.read_text())
    references = [task["data"]["image"] for task in content]
    rows = [{"id": n, "image": image, "choice": LABELS[n % 2]} for n, image in enumerate(references)]
    (folder / "rows.json").write_text(json.dumps(rows))
    yield _opened("labelstudio:", folder / "rows.json", f"labelstudio:{folder / 'rows.json'}")


def _cvat(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    folder.mkdir()
    images = [
        f'<image id="{n}" name="{n}.png" subset="train"><tag label="{LABELS[n % 2]}"/></image>'
        for n in range(NUM_IMAGES)
    ]
    xml = folder / "annotations.xml"
    xml.write_text(CVAT + "\n".join(images) + "\n</annotations>\n")
    yield _opened("cvat:", xml, f"cvat:{xml}", images=str(table.parent))
    archive = folder / "task.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.write(xml, xml.name)
        for n in range(NUM_IMAGES):
            opened.write(table.parent / f"{n}.png", f"images/{n}.png")
    yield _opened("cvat:", archive, f"cvat:{archive}")


def _yolo(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    for part in ("train", "val"):
        write_images(folder / "images" / part, [f"{n}.png" for n in range(12)])
        (folder / "labels" / part).mkdir(parents=True)
        for n in range(12):
            (folder / "labels" / part / f"{n}.txt").write_text(f"{n % 2} 0.5 0.5 0.2 0.2\n")
    (folder / "train.txt").write_text("".join(f"./images/train/{n}.png\n" for n in range(12)))
    described = folder / "data.yaml"
    described.write_text(f"path: .\ntrain: train.txt\nval: images/val\nnames: [{', '.join(LABELS)}]\n")
    for path in (described, folder / "train.txt", folder / "labels/train/1.txt"):
        yield _opened("yolo:", path, f"yolo:{described}")
    (folder / "plain").mkdir()
    for part in ("images", "labels"):
        shutil.copytree(folder / part / "train", folder / "plain" / part)
    (folder / "plain/classes.txt").write_text("\n".join(LABELS) + "\n")
    yield _opened("yolo:", folder / "plain/classes.txt", f"yolo:{folder / 'plain'}")


def _hf(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    spec = write_dataset(dataset, f"hf:{folder}")
    train = next(folder.rglob("train-*.parquet"))
    yield _opened("hf:", train, spec)
    content = pq.read_table(train)
    saved = folder.with_name("saved")
    saved.mkdir()
    with pyarrow.ipc.new_stream(saved / "data-00000-of-00001.arrow", content.schema) as stream:
        stream.write_table(content)
    info = json.loads(content.schema.metadata[b"huggingface"])["info"]
    (saved / "dataset_info.json").write_text(json.dumps(info))
    yield _opened("hf:", saved / "data-00000-of-00001.arrow", f"hf:{saved}")
    plain = folder.with_name("described")
    shutil.copytree(saved, plain)
    with pyarrow.ipc.new_stream(
        plain / "data-00000-of-00001.arrow", content.schema.remove_metadata()
    ) as stream:
        stream.write_table(content.replace_schema_metadata(None))
    yield _opened("hf:", plain / "dataset_info.json", f"hf:{plain}")


def _shards(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    shards = write_shards(dataset, folder, 4)
    for path in (shards[0], folder / "labels.json"):
        yield _opened("shards:", path, f"shards:{folder}")


def _beside_tables(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    folder.mkdir()
    parents = folder / "parents.yaml"
    parents.write_text("ant: insect\nbee: [insect, flies]\ninsect: animal\n")
    yield _opened("label parents", parents, f"table:{table}", parents=str(parents))
    with_source = table.with_name("sources.csv")
    lines = table.read_text().splitlines()
    with_source.write_text(
        "\n".join([f"{lines[0]},source", *(f"{line},clinic" for line in lines[1:])]) + "\n"
    )
    sources = folder / "sources.yaml"
    sources.write_text("clinic: [ant, bee]\npractice: [ant]\n")
    yield _opened("sources of labels", sources, f"table:{with_source}", sources=str(sources))
    decisions = folder / "decisions.csv"
    images = [dataset.splits["train"].images.name(row) for row in range(4)]
    decided = ("accept", "reject", "", "accept")
    decisions.write_text(
        "image,label,given,suggested,decision,kind,probability,line,why\n"
        + "".join(
            f"{image},ant,0,1,{word},missing,0.91,2,x\n" for image, word in zip(images, decided, strict=True)
        )
    )
    yield OtherFile("decisions of an audit", decisions, lambda: correct_labels(dataset, decisions))


def _predicted(folder: Path, dataset: Dataset, table: Path) -> Iterator[OtherFile]:
    """What `kmcl predict` is given, and what it leaves when it is interrupted."""
    write_images(folder, [f"{n}.png" for n in range(4)])
    (folder / "images.txt").write_text("".join(f"{n}.png\n" for n in range(4)))
    archive, *_ = write_shards(dataset, folder / "tar", 100)
    for path in (folder / "images.txt", archive):
        yield OtherFile("images to predict", path, lambda path=path: _decode_all(ImageSource([str(path)])))
    output = folder / "scores.csv"
    source = ImageSource([str(folder / "0.png"), str(folder / "1.png")])
    parts = PredictionJob.begin(output, {"model": "x"}, source.find).folder

    def go_on() -> None:
        job = PredictionJob.begin(output, {"model": "x"}, source.find)
        for chunk in job.missing():
            [source.open(record) for record in job.records(chunk)]

    for name in ("manifest.json", "images.jsonl"):
        yield OtherFile("interrupted predictions", parts / name, go_on)


def _decode_all(source: ImageSource) -> None:
    for record in source.find():
        image = source.open(record)
        if isinstance(image, Path):
            decode_image(image, 32)
        elif isinstance(image, TarMember | StoredImage):
            image.load(32)
        else:
            raise TypeError(type(image))
