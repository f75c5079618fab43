"""Released datasets, and what annotation programs and hubs export, as files of a few small images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from small_images import save_small_image, small_image_bytes

ADP_TREE = {
    "E": ["M", "M.S", "M.C", "T", "T.S", "T.C"],
    "C": ["D", "D.I", "D.R", "L"],
    "H": ["E", "K", "Y"],
    "S": ["M", "C", "R"],
    "A": ["W", "M"],
    "M": [],
    "N": ["P", "R", "G", "G.M"],
    "G": ["O", "N"],
    "T": [],
}
ADP_CODES = [
    code for root, below in ADP_TREE.items() for code in (root, *(f"{root}.{rest}" for rest in below))
]

CHESTXRAY_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)

COCO_CATEGORIES = [
    {"id": 7, "name": "kite", "supercategory": "toy"},
    {"id": 3, "name": "dog", "supercategory": "animal"},
    {"id": 40, "name": "boat", "supercategory": "vehicle"},
]

COCO2014_CATEGORIES = [
    {"supercategory": "animal", "id": 18, "name": "dog"},
    {"supercategory": "person", "id": 1, "name": "person"},
    {"supercategory": "kitchen", "id": 90, "name": "toothbrush"},
]

CVAT_XML = """\
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

HF_NAMES = ["zebra", "cat", "dog"]


def write_adp(folder: Path, count: int = 20) -> Path:
    root = folder / "ADP V1.0 Release"
    (root / "img_res_1um_bicubic").mkdir(parents=True)
    (root / "splits").mkdir()
    lines = [",".join(["Patch Names", *ADP_CODES])]
    rng = np.random.default_rng(0)
    for number in range(count):
        name = f"{number:03}.png_crop_{number}.png"
        Image.new("RGB", (4, 4), (number, 0, 0)).save(root / "img_res_1um_bicubic" / name)
        lines.append(",".join([name, *(str(value) for value in rng.integers(0, 2, len(ADP_CODES)))]))
    (root / "ADP_EncodedLabels_Release1_Flat.csv").write_text("\n".join(lines) + "\n")
    return root


def write_chestxray14(root: Path, rows: list[tuple[str, str, int]], test: set[str]) -> None:
    """rows: the name of each image, its findings, and the number of the patient; test: names of images."""
    root.mkdir(exist_ok=True)
    lines = [f"{name},{found},0,{patient},058Y,M,PA,2682,2749,0.143,0.143," for name, found, patient in rows]
    (root / "Data_Entry_2017_v2020.csv").write_text("\r\n".join([CHESTXRAY_HEADER, *lines]) + "\r\n")
    names = [name for name, _, _ in rows]
    (root / "train_val_list.txt").write_text("\n".join(name for name in names if name not in test))
    (root / "test_list.txt").write_text("\n".join(name for name in names if name in test) + "\n")
    for number, name in enumerate(names):
        folder = root / f"images_{1 + number % 12:03}" / "images"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 5), 100 + number % 100).save(folder / name)


def coco_annotation(image: int | str, category: int, **more: Any) -> dict[str, Any]:
    return {"id": 1, "image_id": image, "category_id": category, "bbox": [0, 0, 2, 2], "iscrowd": 0, **more}


def write_coco(
    path: Path, images: dict[int, str], annotations: list[dict[str, Any]], categories: Any = COCO_CATEGORIES
) -> Path:
    """An annotation file without its images."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"id": key, "file_name": name, "width": 8, "height": 6} for key, name in images.items()]
    path.write_text(json.dumps({"images": entries, "annotations": annotations, "categories": categories}))
    return path


def coco2014_annotation(image_id: int, category_id: int, crowd: bool = False) -> dict[str, Any]:
    outline = {"counts": [3, 2, 1], "size": [4, 4]} if crowd else [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]
    return {"image_id": image_id, "category_id": category_id, "iscrowd": int(crowd), "segmentation": outline}


def write_coco2014(root: Path, part: str, ids: list[int], annotations: list[dict[str, Any]]) -> Path:
    """One part in the published layout; returns its annotation file."""
    (root / part).mkdir(parents=True)
    (root / "annotations").mkdir(exist_ok=True)
    images = [{"id": number, "file_name": f"COCO_{part}_{number:012}.jpg", "height": 6} for number in ids]
    for image in images:
        Image.new("RGB", (8, 6), (int(str(image["id"])) % 256, 0, 0)).save(
            root / part / str(image["file_name"])
        )
    content = {
        "info": {},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": COCO2014_CATEGORIES,
    }
    path = root / "annotations" / f"instances_{part}.json"
    path.write_text(json.dumps(content))
    return path


def cvat_xml(first: str = "", second: str = "") -> str:
    """The subsets of the first image and of the two others, if they are in any."""
    return CVAT_XML.format(
        first=f' subset="{first}"' if first else "", second=f' subset="{second}"' if second else ""
    )


def hf_features(kind: str = "List") -> dict[str, Any]:
    """The description of the columns, in the forms of old and new releases of `datasets`."""
    label = {"names": HF_NAMES, "_type": "ClassLabel"}
    lists = {"List": {"feature": label, "_type": "List"}, "Sequence": {"feature": label, "_type": "Sequence"}}
    return {
        "image": {"_type": "Image"},
        "caption": {"dtype": "string", "_type": "Value"},
        "tags": lists.get(kind, [label]),
    }


def hf_table(
    numbers: Sequence[int], *, kind: str = "List", described: bool = True, inside: bool = True
) -> Any:
    """Images with the labels `number % 3` and 2, as a table of pyarrow."""
    import pyarrow as pa

    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = [
        {"bytes": small_image_bytes(number) if inside else None, "path": f"{number}.png"}
        for number in numbers
    ]
    columns = {
        "image": pa.array(images, struct),
        "caption": pa.array([f"picture {number}" for number in numbers]),
        "tags": pa.array([sorted({number % 3, 2}) for number in numbers], pa.list_(pa.int64())),
    }
    metadata = {"huggingface": json.dumps({"info": {"features": hf_features(kind)}})} if described else None
    return pa.table(columns).replace_schema_metadata(metadata)


def labelstudio_choice(*choices: str, control: str = "labels", **more: Any) -> dict[str, Any]:
    """One person's annotation, as the export JSON has it."""
    result = {
        "id": "xYz1",
        "type": "choices",
        "value": {"choices": list(choices)},
        "origin": "manual",
        "to_name": "image",
        "from_name": control,
    }
    return {"id": 7, "completed_by": 1, "was_cancelled": False, "result": [result] if choices else [], **more}


def labelstudio_task(number: int, image: str, *annotations: dict[str, Any], **data: Any) -> dict[str, Any]:
    return {
        "id": number,
        "annotations": list(annotations),
        "file_upload": image.rpartition("/")[2],
        "predictions": [{"result": labelstudio_choice("never")["result"], "score": 0.9}],
        "data": {"caption": "a note", "image": image, **data},
        "project": 3,
    }


def write_medmnist(
    path: Path, shape: tuple[int, ...], num_labels: int, **changes: np.ndarray
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    for name, count in (("train", 6), ("val", 3), ("test", 4)):
        arrays[f"{name}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{name}_labels"] = rng.integers(0, 2, (count, num_labels)).astype(np.uint8)
    arrays.update(changes)
    np.savez_compressed(path, **arrays)
    return arrays


def voc_object(name: str, difficult: str | None = "0", parts: str = "") -> str:
    mark = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    return f"<object>\n  <name>{name}</name>{mark}{parts}<bndbox><xmin>1</xmin></bndbox></object>"


def write_voc(root: Path, annotations: dict[str, str], lists: dict[str, str]) -> None:
    """annotations: the objects of each image by its id; lists: the ids of each list by its name."""
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / folder).mkdir(parents=True)
    for image_id, objects in annotations.items():
        text = f"<annotation><filename>{image_id}.jpg</filename>{objects}</annotation>"
        (root / "Annotations" / f"{image_id}.xml").write_text(text)
        Image.new("RGB", (20, 10)).save(root / "JPEGImages" / f"{image_id}.jpg")
    for name, text in lists.items():
        (root / "ImageSets/Main" / f"{name}.txt").write_text(text)


def write_yolo(root: Path) -> None:
    """Images and label files of three classes, without data.yaml or classes.txt."""
    for number, name in enumerate(("train/1", "train/deep/2", "train/3", "val/1")):
        save_small_image(root / "images" / f"{name}.png", number)
    texts = {
        "train/1.txt": "1 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.2 0.2\n\n0 0.5 0.5 0.1 0.1\n",
        "train/deep/2.txt": "",
        "val/1.txt": "2.0 0.1 0.2 0.3 0.4 0.5 0.6\n",
        "train.cache": "not a label file",
    }
    for name, text in texts.items():
        path = root / "labels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
