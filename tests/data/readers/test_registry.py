"""Readers by name: those of this package are imported when used, an installed package adds its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmcl.data import Reader
from kmcl.data.readers.registry import READERS

PLUGIN = """
import numpy as np
from kmcl.data import Dataset, Reader, ReaderOptions, Split
from kmcl.data.arrays import ArrayImages

class StripesOptions(ReaderOptions):
    count: int = 4

def read_stripes(options):
    pixels = np.zeros((options.count, 8, 8, 3), dtype=np.uint8)
    targets = np.eye(2, dtype=np.int8)[np.arange(options.count) % 2]
    return Dataset("stripes", ("even", "odd"), {"train": Split(ArrayImages(pixels, "stripes"), targets)})

READER = Reader(read_stripes, StripesOptions)
"""


def test_names_import_no_reader() -> None:
    code = (
        "import sys; from kmcl.data.readers.registry import READERS; print(*READERS);"
        "print([name for name in sys.modules if name.startswith(('kmcl.data.readers.voc', 'pandas'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, imported = output.stdout.splitlines()
    assert set(names.split()) >= {"adp", "chestxray14", "coco2014", "digits", "medmnist", "scenes", "table"}
    assert imported == "[]"


def test_only_embedded_datasets_need_no_location() -> None:
    assert [name for name, reader in READERS.items() if reader.place is None] == ["digits", "scenes"]


def test_an_installed_package_adds_a_reader(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "stripes.py").write_text(PLUGIN)
    information = tmp_path / "stripes-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: stripes\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[kmcl.readers]\nstripes = stripes:READER\n")
    code = (
        "from kmcl.data import open_dataset; d = open_dataset('stripes', count='6');"
        "print(d.labels, d.splits['train'].targets.sum())\n"
        "try: open_dataset('stripes:here')\n"
        "except Exception as error: print(error)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines() == [
        "('even', 'odd') 6",
        "dataset 'stripes' has no location, 'here' was given",
    ]


def test_options_must_be_a_model() -> None:
    with pytest.raises(ValueError, match="subclass of ReaderOptions; got <class 'dict'>"):
        Reader(print, dict)
