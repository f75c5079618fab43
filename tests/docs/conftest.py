"""A folder like the one that the pages use: labels.csv, photos, and finished runs."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from PIL import Image

from docs.pages import TINY
from kmcl.data import open_dataset
from kmcl.runs.resolution import resolve_settings
from settings_runs import train

NUM_LABELS = 4


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "photos").mkdir()
    digits = open_dataset("digits", size=160)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", *digits.labels[:NUM_LABELS]])
        number = 0
        for name, split in digits.splits.items():
            for index in range(len(split)):
                number += 1
                path = f"photos/{number}.jpg"
                Image.fromarray(split.images.load(index)).save(folder / path)
                writer.writerow([path, name, *split.targets[index, :NUM_LABELS]])
    settings = resolve_settings(f"table:{folder / 'labels.csv'}", flags=TINY)
    train(settings, folder / "runs" / "RUN")
    shutil.copytree(folder / "runs" / "RUN", folder / "runs" / "OTHER")
    (folder / "settings.yaml").write_text(settings.to_yaml())
    return folder
