"""Storage, data, training and studies import without fcntl and resource, which Windows does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kmcl

SOURCE = Path(kmcl.__file__).parent
MODULES = [
    "kmcl." + ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for package in ("storage", "studies", "data", "training")
    for file in sorted((SOURCE / package).rglob("*.py"))
]

IMPORTS = """
import importlib, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
from kmcl.studies.member import _peak_memory
import torch
assert torch.cuda.is_available() or _peak_memory() is None
print(len(sys.argv) - 1, "imported")
"""


def test_no_module_needs_fcntl_or_resource():
    assert {"kmcl.storage.locks", "kmcl.studies.member", "kmcl.data.cache"} <= set(MODULES)
    command = [sys.executable, "-c", IMPORTS, *MODULES]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.stdout == f"{len(MODULES)} imported\n", result.stderr


@pytest.mark.parametrize("module", ["fcntl", "msvcrt"])
def test_only_filelock_knows_the_locks_of_a_system(module: str):
    using = [file for file in SOURCE.rglob("*.py") if f"import {module}" in file.read_text(encoding="utf-8")]
    assert using == []


def test_files_are_replaced_by_the_storage_package_alone():
    """One implementation of an atomic write."""
    marks = ("os.replace", "os.rename", "mkstemp", "NamedTemporaryFile")
    using = {
        file.relative_to(SOURCE).parts[0]
        for file in SOURCE.rglob("*.py")
        if any(mark in file.read_text(encoding="utf-8") for mark in marks)
    }
    assert using == {"storage"}
