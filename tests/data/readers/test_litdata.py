"""Chunks of LitData: written and read, also those that LitData itself has written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.data import open_dataset
from kmcl.data.litdata_images import check_index
from kmcl.data.loading import LoaderSettings, make_train_loader
from kmcl.data.readers.litdata_chunks import open_chunks
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object
from small_images import save_small_image

NUM_IMAGES = 60


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = ["image,split,patient,cat,dog"]
    for number in range(NUM_IMAGES):
        save_small_image(tmp_path / f"{number}.png", number)
        split = "val" if number % 10 == 9 else "train"
        rows.append(
            f"{number}.png,{split},p{number},{number % 2},{'' if number % 7 == 0 else number % 3 % 2}"
        )
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "labels.csv"


@pytest.fixture
def chunks(table: Path, tmp_path: Path) -> Path:
    pytest.importorskip("litdata", reason="the extra litdata is not installed")
    folder = tmp_path / "chunks"
    arguments = ["data", "shard", f"table:{table}", str(folder), "--form", "litdata", "--images", "8"]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "wrote 2 folders of chunks" in result.output
    return folder


def assert_equal(found: Any, expected: Any) -> None:
    assert (found.labels, list(found.splits)) == (expected.labels, list(expected.splits))
    for name, split in expected.splits.items():
        np.testing.assert_array_equal(found.splits[name].targets, split.targets)
        np.testing.assert_array_equal(found.splits[name].groups, split.groups)
        for index in range(len(split)):
            np.testing.assert_array_equal(found.splits[name].images.load(index), split.images.load(index))


def test_a_dataset_comes_back_as_it_was(table: Path, chunks: Path):
    assert len(list((chunks / "train").glob("*.bin"))) == 7  # 54 images, 8 in a chunk
    found = pickle.loads(pickle.dumps(open_dataset(f"shards:{chunks}")))
    assert_equal(found, open_dataset(f"table:{table}"))
    assert found.splits["val"].images.name(1) == f"{chunks}/val[1]"


def test_what_litdata_optimised_is_read(tmp_path: Path):
    litdata = pytest.importorskip("litdata", reason="the extra litdata is not installed")
    for number in range(5):
        save_small_image(tmp_path / f"{number}.png", number)
    litdata.optimize(
        fn=optimised_sample,
        inputs=[str(tmp_path / f"{number}.png") for number in range(5)],
        output_dir=str(tmp_path / "out"),
        chunk_bytes="1MB",
        num_workers=1,
    )
    train = open_dataset(f"shards:{tmp_path / 'out'}", val_fraction=0).splits["train"]
    assert train.targets.tolist() == [[number % 2] for number in range(5)]
    assert train.images.load(3)[0, 0].tolist() == [3, 0, 77]


def optimised_sample(path: str) -> dict[str, object]:
    number = int(Path(path).stem)
    return {"image": Path(path).read_bytes(), "labels": json.dumps({"labels": ["odd"] * (number % 2)})}


@pytest.mark.parametrize("num_processes", [1, 3])
def test_every_image_once_an_epoch_over_processes_and_workers(chunks: Path, num_processes: int):
    split = open_dataset(f"shards:{chunks}").splits["train"]
    settings = LoaderSettings(batch_size=6, image_size=8, num_workers=2, augmentation="none", seed=3)
    orders = []
    for epoch in (0, 1, 1):
        seen = []
        for rank in range(num_processes):
            loader = make_train_loader(split, settings, rank=rank, world_size=num_processes)
            loader.set_epoch(epoch)
            seen += [index for batch in loader for index in batch.indices.tolist()]
            loader.close()
        assert sorted(seen) == list(range(len(split)))
        orders.append(seen)
    assert orders[0] != orders[1] == orders[2]  # another order each epoch, and the same again after a resume


def test_what_could_run_code_is_refused():
    index = {"chunks": [{"chunk_size": 3}], "config": {"data_format": ["bytes", "pickle"]}}
    with pytest.raises(InputError, match="data: has values stored as 'pickle', which are not read"):
        check_index(index, "data")
    index["config"]["data_format"] = ["file:jpg", "str"]
    assert check_index(index, "data") == 3
    with pytest.raises(InputError, match=r"its index\.json is not LitData's"):
        check_index({"chunks": []}, "data")


def test_pickled_chunks_are_not_opened(tmp_path: Path):
    cache = pytest.importorskip("litdata.streaming", reason="the extra litdata is not installed").Cache
    written = cache(str(tmp_path), chunk_size=2)
    written[0] = {"image": b"", "labels": Unpickled()}
    written.done()
    written.merge()
    with pytest.raises(InputError, match="stored as 'pickle'"):
        open_dataset(f"shards:{tmp_path}")


class Unpickled:
    def __setstate__(self, state: object) -> None:
        raise AssertionError("was unpickled")


def test_chunks_in_s3_are_refused():
    with pytest.raises(InputError, match=r"s3://a/b/index\.json: chunks of LitData are read from a disk"):
        open_chunks(S3Object("a", "b/index.json"))
