"""The notebook of the tutorial, every cell of it run in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.pages import ROOT, TINY

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
SETTINGS = "settings"
"""The cell with the settings of the training, in whose place the test has tiny ones."""


@pytest.mark.usefixtures("quick_figures")
def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert SETTINGS in [cell["id"] for cell in cells]
    scope: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        text = f"settings = {TINY!r}" if cell["id"] == SETTINGS else "".join(cell["source"])
        exec(compile(text, f"cell {cell['id']}", "exec"), scope)
    assert (tmp_path / "runs" / "tutorial" / "metrics.json").is_file()
    assert (tmp_path / "my-images" / "labels.csv").is_file()


def test_it_is_stored_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
