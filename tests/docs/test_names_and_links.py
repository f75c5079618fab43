"""What the documentation names exists: functions, tests, files."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from docs.pages import FENCE, PAGES, ROOT, page_name
from kmcl.data.readers.registry import READERS
from kmcl.encoders import ENCODERS
from kmcl.methods import METHODS
from kmcl.posthoc import PARTS
from kmcl.runs import RECIPES

PAPER = ROOT / "docs" / "paper.md"
ENTRY_POINT_GROUPS = {registry.group for registry in (METHODS, READERS, ENCODERS, PARTS, RECIPES)}


def paper_rows() -> list[list[str]]:
    """Cells of the table from the paper to the code."""
    lines = [line for line in PAPER.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    header = next(index for index, line in enumerate(lines) if line.startswith("| in the paper"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[header + 1 :]]
    return [row for row in rows if len(row) == 4]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_equation_has_a_row():
    first = " ".join(row[0] for row in paper_rows())
    for equation in (
        "Eq. 1",
        "Eq. 2a",
        "Eq. 2b",
        "Eq. 3a",
        "Eq. 3b",
        "Eq. 4",
        "Eq. 5",
        "Eq. 6",
        "Eq. 7",
        "Eq. 8",
    ):
        assert f"{equation}:" in first or f"{equation}," in first, equation


@pytest.mark.parametrize("row", paper_rows(), ids=lambda row: row[0])
def test_an_equation_leads_to_a_function_and_a_test(row: list[str]):
    functions, tests = names_in(row[1]), names_in(row[3])
    assert functions
    assert tests
    for name in functions:
        module, _, attribute = name.rpartition(".")
        assert module.startswith("kmcl")
        assert hasattr(import_module(module), attribute), name
    for node in tests:
        file, _, function = node.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {item.name for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)}
        assert function in defined, node


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "#")):
            continue
        assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_names_of_the_package_in_sentences_exist(page: Path):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for name in set(re.findall(r"`(kmcl(?:\.[A-Za-z_]\w*)+)(?:\(\))?`", text)) - ENTRY_POINT_GROUPS:
        value: object = import_module("kmcl")
        for part in name.split(".")[1:]:
            path = f"{value.__name__}.{part}" if hasattr(value, "__path__") else None  # type: ignore[attr-defined]
            try:
                value = getattr(value, part)
            except AttributeError:
                assert path, name
                value = import_module(path)


def test_the_table_of_extras_is_complete():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \|", text[: text.index("## Train")], re.MULTILINE)
    assert set(listed) == set(project["optional-dependencies"]) - {"docs", "dev"}


def test_every_figure_of_the_pages_is_drawn_by_code(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    drawn = {path.name for path in import_module("building.draw_figures").draw_all(tmp_path)}
    assert all((tmp_path / name).stat().st_size > 2000 for name in drawn)
    kept = {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    assert drawn <= kept
