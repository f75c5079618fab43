"""`kmcl predict --part`: a job array of 64 real processes, in any order."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from kmcl.runs.resolution import resolve_settings
from prepared_program import Program
from settings_runs import train
from small_images import save_small_image
from tiny_runs import TINY_CACHED

NUM_PARTS, NUM_IMAGES = 64, 3000


def start(folder: Path, output: Path, *flags: str) -> Program:
    words = ("predict", str(folder / "run"), str(folder / "images"), "--output", str(output))
    return Program(folder / f"{output.stem}{'-'.join(flags).replace('/', ' of ')}.txt", *words, *flags)


@pytest.mark.slow
def test_sixty_four_parts_make_the_predictions_of_one_process(tmp_path: Path):
    values = TINY_CACHED | {"epochs": 1, "posthoc": "none", "log": "csv"}
    train(resolve_settings("digits", flags=values), tmp_path / "run")
    for number in range(NUM_IMAGES):
        save_small_image(tmp_path / "images" / f"{number:05d}.png", number)
    shared, alone = tmp_path / "shared.csv", tmp_path / "alone.csv"
    process = start(tmp_path, alone)
    assert process.wait(600) == 0, process.errors
    numbers = random.Random(0).sample(range(1, NUM_PARTS + 1), NUM_PARTS)
    manifest = tmp_path / "shared.csv.parts" / "manifest.json"
    for pair in zip(numbers[::2], numbers[1::2], strict=True):
        assert not shared.exists()
        assert not manifest.exists() or not json.loads(manifest.read_text()).get("complete")
        processes = [start(tmp_path, shared, "--part", f"{number}/{NUM_PARTS}") for number in pair]
        for process in processes:
            assert process.wait(600) == 0, process.errors
    assert json.loads(manifest.read_text())["complete"] is True
    found, expected = (list(csv.DictReader(path.open())) for path in (shared, alone))
    assert len(found) == 10 * NUM_IMAGES
    for one, other in zip(found, expected, strict=True):
        assert (one["image"], one["label"], one["error"]) == (other["image"], other["label"], "")
        assert float(one["score"]) == pytest.approx(float(other["score"]), abs=1e-4)
    written = shared.stat().st_mtime_ns
    again = start(tmp_path, shared, "--part", f"3/{NUM_PARTS}")
    assert again.wait(600) == 0, again.errors
    assert "is complete" in again.errors
    assert shared.stat().st_mtime_ns == written
