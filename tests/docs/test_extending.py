"""The package of docs/extending.md, as printed: installed, and used from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from PIL import Image

import kmcl
from docs.pages import ROOT, blocks
from kmcl.data import open_dataset

PAGE = ROOT / "docs" / "extending.md"


def install(folder: Path) -> dict[str, dict[str, str]]:
    """Write the page's modules and metadata into a folder of the Python path; returns the entry points."""
    for block in blocks(PAGE):
        if block.language == "python" and (match := re.match(r"# (\S+\.py)\n", block.text)):
            (folder / match[1]).parent.mkdir(exist_ok=True)
            (folder / match[1]).write_text(block.text)
    project = next(tomllib.loads(block.text) for block in blocks(PAGE) if block.language == "toml")["project"]
    metadata = folder / f"my_parts-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    entry_points: dict[str, dict[str, str]] = project["entry-points"]
    return entry_points


def write_photos(folder: Path) -> None:
    entries = []
    digits = open_dataset("digits", size=48)
    for name, split in digits.splits.items():
        for index in range(len(split)):
            file = f"{name}-{index}.png"
            Image.fromarray(split.images.load(index)).save(folder / file)
            present = [
                label for label, target in zip(digits.labels, split.targets[index], strict=True) if target
            ]
            entries.append({"image": file, "labels": present, "split": name})
    (folder / "photos.json").write_text(json.dumps(entries))


def test_the_parts_of_the_page_train_together(tmp_path: Path):
    entry_points = install(tmp_path)
    assert set(entry_points) == {
        "kmcl.methods",
        "kmcl.readers",
        "kmcl.encoders",
        "kmcl.posthoc",
        "kmcl.recipes",
    }
    write_photos(tmp_path)
    command = next(
        line for block in blocks(PAGE) if block.language == "text" for line in block.text.splitlines()
    ).removeprefix("kmcl ")
    source = str(Path(kmcl.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), source]),
        "KMCL_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    small = ["--epochs=1", "--workers=0", "--augmentation=none", "--image-size=32", "--output=run"]
    result = subprocess.run(
        [sys.executable, "-m", "kmcl", *command.split(), *small],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    model = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    assert model["method"] == {"name": "smooth", "smoothing": 0.2}
    assert model["encoder"] == "patches"
    assert [part["name"] for part in model["posthoc"]] == ["nearest_mean"]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert "recipe steps: 2666 epochs are about 2000 steps" in result.stdout
