"""Folders that one test process makes and all of them use: trained runs, a report."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills, called by the first process that asks; the others wait for it.

    No test may change it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # a worker's own folder is inside that of all
    folder, finished = root / "made-once" / name, root / "made-once" / f"{name}.finished"
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not finished.exists():
            make(folder)
            finished.touch()
    return folder
