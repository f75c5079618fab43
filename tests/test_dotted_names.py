"""Every dotted name that the project writes as a string, such as `kmcl.data.readers.coco:READER`, is there.

A name in a registry, in a list of modules to import beforehand or in `pyproject.toml` fails late, or
silently, once what it names has moved.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kmcl.data.readers.registry import READERS
from kmcl.runs.recipes import RECIPES

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "benchmarks", "docs/building", "examples", "tests/attack", "tests/mutants")
NAME = re.compile(r"kmcl(\.\w+)+(:\w+(\.\w+)*)?")
ENTRY_POINTS_ALONE = {READERS.group, RECIPES.group}
"""Groups of entry points that are not the names of packages too."""


def dotted_strings() -> Iterator[tuple[str, str]]:
    """Each with the place where it stands."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    for file in [*files, *sorted((ROOT / "tests").glob("*.py"))]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                yield node.value, f"{file.relative_to(ROOT)}:{node.lineno}"
    for text in _strings(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))):
        for found in re.split(r"[\s|]+", text.replace("\\", "").removeprefix("error::RuntimeWarning:")):
            if NAME.fullmatch(found):
                yield found, "pyproject.toml"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
    elif isinstance(value, str):
        yield value


def resolve(name: str) -> object:
    """The module, or what is in one: the longest beginning of the name that can be imported is the module."""
    parts = re.split("[.:]", name)
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("kmcl"):
                raise
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def test_every_dotted_name_is_there():
    found = [each for each in dotted_strings() if each[0] not in ENTRY_POINTS_ALONE]
    assert {"kmcl.data.readers.coco:READER", "kmcl.cli.app:main", "kmcl.studies.member"} <= {
        name for name, _ in found
    }
    for name, place in found:
        try:
            resolve(name)
        except (ModuleNotFoundError, AttributeError) as error:
            pytest.fail(f"{place}: {name} is not there ({error})")


def test_every_public_name_is_there():
    """Those of `__all__`, which packages import when they are first asked for."""
    packages = sorted(file.parent for file in (ROOT / "src").rglob("__init__.py"))
    for folder in packages:
        package = import_module(".".join(folder.relative_to(ROOT / "src").parts))
        missing = [name for name in getattr(package, "__all__", []) if not hasattr(package, name)]
        assert not missing, package.__name__
