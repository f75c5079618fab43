"""Predictions of many images: restarted, shared by processes, joined."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from kmcl.errors import InputError
from kmcl.serving import prediction_job, prediction_run
from kmcl.serving.image_sources import check_record
from kmcl.serving.prediction_job import Part, PredictionJob, chunk_size, parts_folder
from predicting_process import CHUNK_IMAGES, predict_to

NUM_IMAGES = 43


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(prediction_job, "MAX_CHUNK_IMAGES", CHUNK_IMAGES)
    monkeypatch.setattr(prediction_run, "model_digest", lambda predictor: "brightness")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Every image has a brightness of its own; one cannot be read."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(NUM_IMAGES):
        Image.fromarray(np.full((8, 8, 3), 5 * number, dtype=np.uint8)).save(folder / f"{number:02d}.png")
    (folder / "17.png").write_bytes(b"no image")
    return folder


def names_of(path: Path) -> list[str]:
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if path.suffix in readers:
        return [Path(name).stem for name in dict.fromkeys(readers[path.suffix](path)["image"])]
    text = path.read_text()
    images = json.loads(text) if path.suffix == ".json" else map(json.loads, text.splitlines())
    return [Path(image["image"]).stem for image in images]


ALL = [f"{number:02d}" for number in range(NUM_IMAGES)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".parquet"])
def test_every_image_is_there_once_and_in_order(pictures: Path, tmp_path: Path, suffix: str):
    output = tmp_path / f"scores{suffix}"
    run = predict_to(output, [str(pictures)])
    assert names_of(output) == ALL
    assert run.num_unreadable == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pictures", output.name]


def test_an_unreadable_image_is_a_row_with_the_reason(pictures: Path, tmp_path: Path):
    predict_to(tmp_path / "a.csv", [str(pictures)])
    predict_to(tmp_path / "a.parquet", [str(pictures)])
    table = pd.read_csv(tmp_path / "a.csv")
    columns = pd.read_parquet(tmp_path / "a.parquet").astype(object)
    pd.testing.assert_frame_equal(table.astype(object).fillna("-"), columns.fillna("-"), check_exact=False)
    assert len(table) == 3 * (NUM_IMAGES - 1) + 1
    (row,) = table[table["error"].notna()].to_dict("records")
    assert Path(row["image"]).name == "17.png"
    assert "cannot be decoded" in row["error"]
    assert pd.isna(row["label"])
    assert pd.isna(row["probability"])


def test_after_a_kill_the_same_command_goes_on(pictures: Path, tmp_path: Path):
    """Killed three times; chunks that are there are not computed again, and the file is that of one run."""
    predict_to(tmp_path / "whole.csv", [str(pictures)])
    output = tmp_path / "scores.csv"
    folder = parts_folder(output)
    done: dict[str, int] = {}
    for wanted in (2, 4, 6):
        process = start(output, pictures, seconds=0.03)
        wait_until(lambda wanted=wanted: len(list(folder.glob("0*.csv"))) >= wanted)
        process.send_signal(signal.SIGKILL)
        process.wait()
        times = {path.name: path.stat().st_mtime_ns for path in folder.glob("0*.csv")}
        assert done.items() <= times.items(), "a chunk was written again"
        done = times
        assert not output.exists()
    last = start(output, pictures)
    errors = last.communicate()[1]
    assert last.returncode == 0, errors
    assert f"going on with {output}: {len(done)} of 9 chunks are there" in errors
    assert output.read_text() == (tmp_path / "whole.csv").read_text()
    assert not folder.exists()


def start(output: Path, pictures: Path, *, part: str = "", seconds: float = 0.0) -> subprocess.Popen[str]:
    script = Path(__file__).parents[1] / "predicting_process.py"
    arguments = [sys.executable, str(script), str(output), part, str(seconds), str(pictures)]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.01)


def test_parts_at_the_same_time_make_one_file(pictures: Path, tmp_path: Path):
    predict_to(tmp_path / "whole.jsonl", [str(pictures)])
    output = tmp_path / "scores.jsonl"
    processes = [start(output, pictures, part=f"{number}/4") for number in (1, 2, 3, 4)]
    for process in processes:
        errors = process.communicate()[1]
        assert process.returncode == 0, errors
    assert output.read_text() == (tmp_path / "whole.jsonl").read_text()
    manifest = json.loads((parts_folder(output) / "manifest.json").read_text())
    assert (manifest["complete"], manifest["num_images"]) == (True, NUM_IMAGES)


def test_the_last_part_joins_and_a_repeated_part_changes_nothing(pictures: Path, tmp_path: Path, capsys):
    output = tmp_path / "scores.csv"
    for number in (3, 1):
        predict_to(output, [str(pictures)], f"{number}/3")
        assert not output.exists()
    assert "chunks are left to other parts" in capsys.readouterr().err
    predict_to(output, [str(pictures)], "2/3")
    assert names_of(output) == ALL
    output.unlink()
    predict_to(output, [str(pictures)], "2/3")
    assert "is complete; to predict again, remove" in capsys.readouterr().err.replace("\n", " ")
    assert not output.exists()
    (pictures / "42.png").unlink()
    predict_to(output, [f"{pictures}/*.png"])
    assert names_of(output) == ALL[:-1]
    assert not parts_folder(output).exists()


def test_another_number_of_parts_goes_on_with_the_same_chunks(pictures: Path, tmp_path: Path):
    output = tmp_path / "scores.csv"
    predict_to(output, [str(pictures)], "1/3")
    predict_to(output, [str(pictures)], "2/2")
    predict_to(output, [str(pictures)], "1/2")
    assert names_of(output) == ALL


def test_a_job_of_another_model_or_list_is_refused(pictures: Path, tmp_path: Path, monkeypatch):
    output = tmp_path / "scores.csv"
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"pictures/{name}.png\n" for name in ALL))
    predict_to(output, [str(listed)], "1/2")
    listed.write_text("pictures/00.png\n")
    with pytest.raises(InputError, match="was begun with another source"):
        predict_to(output, [str(listed)], "2/2")
    monkeypatch.setattr(prediction_run, "model_digest", lambda predictor: "another")
    with pytest.raises(InputError, match=r"scores.csv.parts: was begun with another model; .* remove the"):
        predict_to(output, [str(listed)])


def test_images_that_come_later_are_not_mixed_in(pictures: Path, tmp_path: Path):
    """The list of images is that of the first start, for every part."""
    output = tmp_path / "scores.csv"
    predict_to(output, [str(pictures)], "2/2")
    shutil.copy(pictures / "00.png", pictures / "00b.png")
    predict_to(output, [str(pictures)], "1/2")
    assert names_of(output) == ALL


@pytest.mark.parametrize("remnant", [True, False])
def test_a_folder_without_a_manifest(pictures: Path, tmp_path: Path, remnant: bool):
    """Chunks that came too late are removed; what somebody else put there is not."""
    output = tmp_path / "scores.csv"
    folder = parts_folder(output)
    folder.mkdir()
    (folder / ("00000003.csv" if remnant else "thesis.tex")).write_text("x")
    if remnant:
        predict_to(output, [str(pictures)])
        assert names_of(output) == ALL
    else:
        with pytest.raises(InputError, match="cannot be written"):
            predict_to(output, [str(pictures)])
        assert (folder / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("manifest.json", '"about"', "[" * 2000 + '"about"'),
        ("manifest.json", '"num_images": 43', '"num_images": 1e999'),
        ("manifest.json", '"num_images": 43', '"num_images": 4'),
        ("manifest.json", '"about": {', '"about": 5, "x": {'),
        ("manifest.json", '"offsets": [', '"offsets": ["a",'),
        ("images.jsonl", '"', "{"),
        ("images.jsonl", '"', '[" '),
        ("images.jsonl", "\n", ""),
        ("images.jsonl", '"', '{"archive": "a", "member": 5} "'),
    ],
)
def test_damaged_files_of_an_interrupted_job_are_refused(
    pictures: Path, tmp_path: Path, name: str, before: str, after: str
):
    output = tmp_path / "scores.csv"
    predict_to(output, [str(pictures)], "1/2")
    path = parts_folder(output) / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(InputError, match=r"scores\.csv\.parts: is not a folder of predictions: remove it"):
        predict_to(output, [str(pictures)], "2/2")


@pytest.mark.parametrize(
    "record",
    [5, None, ["a.png"], {}, {"archive": "a.tar", "member": "b", "offset": "c", "size": 1}, {"data": "x"}],
)
def test_what_is_no_record_of_an_image(record: object):
    with pytest.raises(TypeError, match="is no image"):
        check_record(record)


@pytest.mark.parametrize("num_parts", [1, 2, 7, 64])
@pytest.mark.parametrize("num_images", [1, 5, 43, 1000, 4999])
def test_chunks_are_small_and_shared_evenly(num_images: int, num_parts: int):
    size = chunk_size(num_images, num_parts)
    assert 1 <= size <= CHUNK_IMAGES
    num_chunks = -(-num_images // size)
    shares = [len(range(number, num_chunks, num_parts)) for number in range(num_parts)]
    assert max(shares) - min(shares) <= max(1, -(-max(shares) // 10))


def test_the_first_of_two_beginnings_wins(tmp_path: Path):
    """The second finds its images while the first makes the folder."""
    output = tmp_path / "scores.csv"

    def find():
        PredictionJob.begin(output, {"model": 1}, lambda: ["first.png"])
        return ["second.png"]

    job = PredictionJob.begin(output, {"model": 1}, find)
    assert job.records(0) == ["first.png"]
    assert os.listdir(tmp_path) == ["scores.csv.parts"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/2/3", ""])
def test_a_wrong_part_is_refused(text: str):
    with pytest.raises(InputError, match="--part must be as in 3/64"):
        Part.parse(text)


def test_nothing_to_predict_is_refused_and_leaves_nothing(tmp_path: Path):
    (tmp_path / "list.txt").write_text("\n\n")
    with pytest.raises(InputError, match="there is no image"):
        predict_to(tmp_path / "scores.csv", [str(tmp_path / "list.txt")])
    assert os.listdir(tmp_path) == ["list.txt"]
