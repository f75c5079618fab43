"""`import kmcl` is light."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_pulls_torch_alone():
    heavy = {
        "torchvision",
        "timm",
        "pytorch_lightning",
        "torchmetrics",
        "pandas",
        "sklearn",
        "PIL",
        "matplotlib",
    }
    loaded = run(
        "import torch, sys; before = set(sys.modules); import kmcl;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    ).split()
    assert "kmcl" in loaded
    assert not heavy & set(loaded), loaded
