"""Bytes in files of annotation tools that parsers trip over: they are refused by name, and nothing hangs."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.errors import InputError
from small_images import save_small_image, small_image_bytes

DEEP = "a: " + "[" * 600
CVAT = "<annotations><image id='0' name='0.png'><tag label='ant'/></image></annotations>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        save_small_image(tmp_path / "images" / f"{number}.png", number)
        (tmp_path / "labels").mkdir(exist_ok=True)
        (tmp_path / "labels" / f"{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.1 0.1\n")
    rows = "".join(f"images/{number}.png,ant,clinic\n" for number in range(4))
    (tmp_path / "labels.csv").write_text(f"image,labels,source\n{rows}")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [ant, bee]\n")
    return tmp_path


WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


def open_and_load(spec: str, **options: object) -> Dataset:
    dataset = open_dataset(spec, **options)
    for split in dataset.splits.values():
        for index in range(len(split)):
            split.images.load(index)
    return dataset


@pytest.mark.parametrize("option", ["parents", "sources"])
def test_yaml_beside_a_table_that_is_nested_too_deeply(folder: Path, option: str):
    (folder / "x.yaml").write_text(DEEP)
    with pytest.raises(InputError, match=f"^{option} .*cannot be read as YAML: it is nested too deeply"):
        open_dataset(f"table:{folder / 'labels.csv'}", **{option: "x.yaml", **WHOLE})


def _of_yolo(name: str, text: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / name).write_text(text)
        return f"yolo:{folder / 'data.yaml'}"

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_of_yolo("data.yaml", DEEP), r"data\.yaml cannot be read as YAML: it is nested too deeply"),
        (_of_yolo("labels/1.txt", "1e999 0 0 1 1\n"), r"1\.txt line 1: '1e999' is not the number of a class"),
        (_of_yolo("labels/1.txt", "nan 0 0 1 1\n"), r"1\.txt line 1: 'nan' is not the number of a class"),
        (_of_yolo("data.yaml", "train: /dev/zero\nnames: [ant]\n"), "/dev/zero is not a file"),
    ],
    ids=["deep", "infinite", "nan", "device"],
)
def test_yolo(folder: Path, write: Callable[[Path], str], message: str):
    with pytest.raises(InputError, match=message):
        open_dataset(write(folder), val_fraction=0)


def test_folders_of_unknown_users_do_not_exist(folder: Path):
    (folder / "data.yaml").write_text("path: ~nobody-of-this-name\ntrain: images\nnames: [ant, bee]\n")
    assert len(open_dataset(f"yolo:{folder / 'data.yaml'}", val_fraction=0).splits["train"]) == 4
    with pytest.raises(InputError, match=r"~nobody-of-this-name/a\.csv does not exist"):
        open_dataset("table:~nobody-of-this-name/a.csv")


def test_named_pipes_are_not_opened(folder: Path):
    os.mkfifo(folder / "data.json")
    (folder / "other.yaml").unlink(missing_ok=True)
    os.mkfifo(folder / "other.yaml")
    assert len(open_dataset(f"yolo:{folder}", val_fraction=0).splits["train"]) == 4
    with pytest.raises(InputError, match="holds no COCO annotations"):
        open_dataset(f"coco:{folder}")


@pytest.mark.parametrize("encoding", ["utf-9", "hex"])
def test_xml_in_an_unknown_encoding(folder: Path, encoding: str):
    header = f"<?xml version='1.0' encoding='{encoding}'?>"
    (folder / "a.xml").write_text(header + CVAT)
    with pytest.raises(InputError, match=r"^CVAT annotations .*a\.xml cannot be read"):
        open_dataset(f"cvat:{folder / 'a.xml'}")
    (folder / "label_config.xml").write_text(f"{header}<View/>")
    task = {"data": {"image": "0.png"}, "annotations": [{"result": []}]}
    (folder / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(InputError, match=r"^labeling interface .*label_config\.xml cannot be read"):
        open_dataset(f"labelstudio:{folder / 'tasks.json'}")


def test_archives_of_cvat(folder: Path):
    path = folder / "task.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", CVAT)
        archive.writestr("images/0.png", small_image_bytes(1))
    content = path.read_bytes()
    assert len(open_and_load(f"cvat:{path}", **WHOLE).splits["train"]) == 1
    refusals = []
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            open_and_load(f"cvat:{path}", **WHOLE)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > len(content) / 6
    assert all("task.zip" in message for message in refusals)


def _write_tar(path: Path, names: list[bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT, errors="surrogateescape"
    ) as archive:
        for name in names:
            for ending, content in ((b".png", small_image_bytes(3)), (b".json", b'{"labels": ["ant"]}')):
                member = tarfile.TarInfo((name + ending).decode(errors="surrogateescape"))
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    path.write_bytes(buffer.getvalue())
    return buffer.getvalue()


def test_a_name_that_is_not_utf8_does_not_hide_the_others(tmp_path: Path):
    _write_tar(tmp_path / "a.tar", [b"caf\xe9", b"b"])
    dataset = open_and_load(f"shards:{tmp_path}", val_fraction=0)
    assert dataset.splits["train"].images.name(0).endswith("a.tar/caf\ufffd.png")


def test_damaged_headers_of_a_shard(tmp_path: Path):
    path = tmp_path / "a.tar"
    content = _write_tar(path, [b"a", b"b"])
    num_refused = 0
    for place in range(100, 160):
        for byte in (0x80, 0xFF):
            header = bytearray(content[:512])
            header[place] = byte
            header[148:156] = b" " * 8  # the sum of the header is right again, so that it is believed
            header[148:156] = b"%06o\0 " % sum(header)
            path.write_bytes(bytes(header) + content[512:])
            try:
                open_and_load(f"shards:{tmp_path}", val_fraction=0)
            except InputError:
                num_refused += 1
    assert num_refused > 10


def test_a_size_below_zero(tmp_path: Path):
    path = tmp_path / "a.tar"
    content = bytearray(_write_tar(path, [b"a"]))
    content[124:136] = b"\xff" * 10 + b"\xfe\x00"  # base 256: -512
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tar"):
        open_dataset(f"shards:{tmp_path}")


@pytest.mark.parametrize(
    "text", ["[" * 2000, '{"format": "kmcl-shards-1", "labels": ["ant"], "shards": [1, "a"]}']
)
def test_the_index_of_shards(tmp_path: Path, text: str):
    _write_tar(tmp_path / "a.tar", [b"a"])
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(InputError, match=r"labels\.json"):
        open_dataset(f"shards:{tmp_path}")


def test_descriptions_of_hugging_face_that_are_nested_too_deeply(folder: Path):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    table = pa.table({"image": [f"images/{n}.png" for n in range(4)], "labels": ["ant", "bee", "ant", "bee"]})
    pq.write_table(table.replace_schema_metadata({"huggingface": "[" * 2000}), folder / "a.parquet")
    (folder / "dataset_info.json").write_text("[" * 2000)
    assert open_and_load(f"hf:{folder / 'a.parquet'}", **WHOLE).labels == ("ant", "bee")


def test_arrow_files_with_wrong_positions(tmp_path: Path):
    """pyarrow would read outside of the file, and end the process."""
    pa = pytest.importorskip("pyarrow", reason="Arrow needs pyarrow")
    images = pa.array([small_image_bytes(number) for number in range(4)], pa.binary())
    table = pa.table({"image": images, "labels": ["ant", "bee", "ant", "bee"]})
    path = tmp_path / "data.arrow"
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    content = path.read_bytes()
    offsets = images.buffers()[1].to_pybytes()[:20]
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, offsets[:8] + b"\xff\xff\xff\x7f" + offsets[12:]))
    shutil.copy(path, tmp_path / "copy.arrow")
    with pytest.raises(InputError, match=r"copy\.arrow is not a readable Parquet or Arrow file"):
        open_dataset(f"hf:{tmp_path / 'copy.arrow'}")
