"""The site builds without a warning, holds every command and public name, and asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from docs.pages import ROOT
from kmcl.data.readers.options import ReaderOptions
from kmcl.data.readers.registry import READERS
from kmcl.runs.resolution import PRESETS, flat_values, resolve_settings

for module in ("furo", "sphinx_copybutton"):
    pytest.importorskip(module, reason="the extra docs is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going"),
            *("-b", "html", "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder / "html"


@pytest.fixture(autouse=True)
def building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


def test_every_command_and_flag_is_there(site: Path):
    commands = import_module("building.commands")
    text = re.sub(r"<[^>]+>", "", (site / "commands.html").read_text(encoding="utf-8"))
    text = unescape(text)
    leaves = list(commands.leaf_commands(commands.command_tree()))
    assert len(leaves) > 12
    for words, command in leaves:
        assert " ".join(words) in text
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option in text, (words, option)


PAGES_OF_PACKAGES = {path.stem for path in (ROOT / "docs" / "reference").glob("*.md")} - {"index", "kmcl"}


@pytest.mark.parametrize("package", sorted(PAGES_OF_PACKAGES))
def test_every_public_name_has_its_place(package: str, site: Path):
    page = (site / "reference" / f"{package}.html").read_text(encoding="utf-8")
    wanted = import_module("building.python_names").public_names(f"kmcl.{package}")
    assert wanted
    for name in wanted:
        assert f'id="{name}"' in page, name


def test_every_package_has_a_page():
    packages = import_module("building.package_table").package_summaries().keys()
    assert packages - {"cli"} == PAGES_OF_PACKAGES


def test_names_lead_to_the_reference(site: Path):
    paper = (site / "paper.html").read_text(encoding="utf-8")
    assert 'href="reference/losses.html#kmcl.losses.contrastive_loss"' in paper
    assert 'href="commands.html#kmcl-complexity"' in paper


def test_presets_are_those_of_the_program(site: Path):
    text = re.sub(r"<[^>]+>", "", (site / "paper.html").read_text(encoding="utf-8"))
    table = text[text.index("setting\n") :]
    presets = [flat_values(resolve_settings("digits", name)) for name in PRESETS]
    for name in presets[0]:
        differs = any(preset[name] != presets[0][name] for preset in presets)
        assert (f"\n{name}\n" in table) == differs, name


def test_every_option_of_every_reader_is_there(site: Path):
    text = re.sub(r"<[^>]+>", "", (site / "data.html").read_text(encoding="utf-8"))
    shared = set(ReaderOptions.model_fields)
    of_all = text[text.index("Every dataset", text.index("Options of every reader")) :]
    assert all(f"\n{option}\n" in of_all[: of_all.index("digits")] for option in shared)
    for name, reader in READERS.items():
        table = text[
            text.index(f"{name}:" if reader.place else name, text.index("Options of every reader")) :
        ]
        for option in reader.options.model_fields.keys() - shared:
            assert f"\n{option}\n" in table, (name, option)


def test_blocks_have_a_copy_button(site: Path):
    page = (site / "start.html").read_text(encoding="utf-8")
    scripts = re.findall(r'<script src="([^"?]*copybutton[^"?]*)', page)
    assert scripts
    assert all((site / script).is_file() for script in scripts)


def test_formulas_need_no_script(site: Path):
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") > 10
    assert not re.search(r"<script[^>]*mathjax", page, re.IGNORECASE)


def test_nothing_is_loaded_from_elsewhere(site: Path):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preload|icon)"[^>]*href="([^"]+)"', text)
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], page


DOCSTRING = """Sum of a*b, see `name`.

    x = y_

log g = -f² / 2

one: first
two: second
     line
"""

RESTRUCTURED = """Sum of a\\*b, see ``name``.
::
    x = y_
::
    log g = -f² / 2
* **one**: first
* **two**: second
  line"""


def test_docstrings_become_restructured_text():
    found = import_module("building.docstrings").to_restructured_text(DOCSTRING.splitlines())
    assert [line for line in found if line] == RESTRUCTURED.splitlines()
