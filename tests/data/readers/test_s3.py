"""Shards and images in S3, read from a real server of its protocol on loopback."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from brightness_onnx import brightness_model
from kmcl.cli.app import make_app
from kmcl.data import open_dataset
from kmcl.data.loading import LoaderSettings, make_train_loader
from kmcl.data.shard_writing import write_shards
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object, list_objects, s3_location
from s3_server import running_s3
from small_images import save_small_image

boto3 = pytest.importorskip("boto3", reason="the extra s3 is not installed")
pytest.importorskip("moto.server", reason="no server of S3: moto[server] is not installed")
pytestmark = pytest.mark.slow

NUM_IMAGES = 60


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_s3(tmp_path_factory.mktemp("s3")) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        found = boto3.resource("s3").Bucket("photographs")
        found.create()
        yield found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = ["image,split,cat,dog"]
    for number in range(NUM_IMAGES):
        save_small_image(tmp_path / "images" / f"{number}.png", number)
        rows.append(
            f"images/{number}.png,{'val' if number % 10 == 9 else 'train'},{number % 2},{number % 3 % 2}"
        )
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "labels.csv"


def upload(bucket: Any, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.upload_file(str(path), f"{prefix}/{path.relative_to(folder).as_posix()}")


def test_a_prefix_is_a_dataset(bucket: Any, table: Path, tmp_path: Path):
    shards = tmp_path / "shards"
    write_shards(open_dataset(f"table:{table}"), shards, 7)
    upload(bucket, shards, "sets/small")
    upload(bucket, shards, "sets/smaller")  # not below the prefix, though its key begins with it
    local = open_dataset(f"shards:{shards}")
    remote = pickle.loads(pickle.dumps(open_dataset("shards:s3://photographs/sets/small")))
    assert (remote.name, remote.labels, list(remote.splits)) == ("small", local.labels, list(local.splits))
    for name, split in local.splits.items():
        np.testing.assert_array_equal(remote.splits[name].targets, split.targets)
        for index in range(len(split)):
            np.testing.assert_array_equal(remote.splits[name].images.load(index), split.images.load(index))
    assert remote.splits["train"].images.name(0) == (
        "s3://photographs/sets/small/train-000000.tar/00000000.png"
    )
    bucket.Object("sets/small/val-000000.tar").delete()
    with pytest.raises(InputError, match=r"val-000000\.tar is missing, which labels\.json names"):
        open_dataset("shards:s3://photographs/sets/small")


@pytest.mark.parametrize("num_processes", [1, 3])
def test_every_image_once_an_epoch_over_processes_and_workers(
    bucket: Any, table: Path, tmp_path: Path, num_processes: int
):
    write_shards(open_dataset(f"table:{table}"), tmp_path / "shards", 10)
    upload(bucket, tmp_path / "shards", "sets/epoch")
    split = open_dataset("shards:s3://photographs/sets/epoch").splits["train"]
    settings = LoaderSettings(batch_size=6, image_size=8, num_workers=2, augmentation="none", seed=3)
    orders = []
    for epoch in (0, 1, 1):
        seen = []
        for rank in range(num_processes):
            loader = make_train_loader(split, settings, rank=rank, world_size=num_processes)
            loader.set_epoch(epoch)
            for batch in loader:
                for index, image in zip(batch.indices.tolist(), batch.images, strict=True):
                    np.testing.assert_array_equal(
                        image.permute(1, 2, 0).numpy()[0, 0], pixel_of(split, index)
                    )
                seen += batch.indices.tolist()
            loader.close()
        assert sorted(seen) == list(range(len(split)))
        orders.append(seen)
    assert (
        orders[0] != orders[1] == orders[2]
    )  # another order each epoch, and the same one again after a resume


def pixel_of(split: Any, index: int) -> np.ndarray:
    return np.asarray(split.images.load(index)[0, 0])


def test_predictions_of_a_prefix(bucket: Any, table: Path, tmp_path: Path):
    write_shards(open_dataset(f"table:{table}"), tmp_path / "shards", 10)
    upload(bucket, tmp_path / "shards", "mixed/shards")
    upload(bucket, table.parent / "images", "mixed/images")
    bucket.Object("mixed/images/broken.png").put(Body=b"no image")
    model = tmp_path / "model.onnx"
    model.write_bytes(brightness_model(("bright",)))
    arguments = [
        "predict",
        str(model),
        "s3://photographs/mixed",
        "--output",
        str(tmp_path / "scores.parquet"),
    ]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 1  # of the broken one
    found = pd.read_parquet(tmp_path / "scores.parquet")
    assert len(found) == found["image"].nunique() == 2 * NUM_IMAGES + 1
    (broken,) = found[found["error"].notna()]["image"]
    assert broken == "s3://photographs/mixed/images/broken.png"
    listed = tmp_path / "list.txt"
    listed.write_text("s3://photographs/mixed/images/3.png\nimages/4.png\n")
    arguments[2:3], arguments[-1] = [str(listed)], str(tmp_path / "two.parquet")
    assert CliRunner().invoke(make_app(), arguments).exit_code == 0
    assert len(pd.read_parquet(tmp_path / "two.parquet")) == 2


def test_what_cannot_be_read_is_said(bucket: Any):
    bucket.Object("one/a.bin").put(Body=b"0123456789")
    (found,) = list_objects(S3Object.parse("s3://photographs/one"))
    assert (found.read(), found.read(2, 3), found.size) == (b"0123456789", b"234", 10)
    bucket.Object("one/a.bin").put(Body=b"9876543210")
    with pytest.raises(InputError, match=r"one/a\.bin has been replaced since it was opened"):
        found.read(2, 3)
    with pytest.raises(InputError, match=r"s3://nowhere/x cannot be read: .*NoSuchBucket"):
        list(list_objects(S3Object.parse("s3://nowhere/x")))
    with pytest.raises(InputError, match=r"has no \.tar file"):
        open_dataset("shards:s3://photographs/one")
    with pytest.raises(InputError, match="must be as in s3://BUCKET/PREFIX"):
        S3Object.parse("s3://")


def test_a_location_that_went_through_a_path():
    assert s3_location(Path("s3://bucket/a/b")) == S3Object("bucket", "a/b")
    assert s3_location(Path("/data/s3:/b")) is None
    assert s3_location(Path("s3x/b")) is None
