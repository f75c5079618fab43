"""The packages of kmcl, their layers, and a sentence on each."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kmcl"
MODULES_WITH_A_LAYER = ("api",)
"""Modules beside the packages that import packages."""


def package_table() -> str:
    """A table in Markdown, from the packages that may import all others to those that may import none."""
    summaries = package_summaries()
    order = [name for layer in import_layers() for name in layer]
    rows = [f"| `kmcl.{name}` | {summaries[name]} |" for name in order]
    return "\n".join(["| package | what it holds |", "|---|---|", *rows])


def package_summaries() -> dict[str, str]:
    """The first paragraph of the docstring of each package, and of each module with a layer of its own."""
    files = {file.parent.name: file for file in sorted(SOURCE.glob("*/__init__.py"))}
    files |= {name: SOURCE / f"{name}.py" for name in MODULES_WITH_A_LAYER}
    summaries = {}
    for name, file in files.items():
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        summaries[name] = " ".join(docstring.partition("\n\n")[0].split())
    return summaries


def import_layers() -> list[list[str]]:
    """The layers of pyproject.toml, which lint-imports enforces: each may import those after it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    return [[name.strip().removeprefix("kmcl.") for name in layer.split("|")] for layer in layers]
