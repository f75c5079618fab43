"""Shapes in signatures are checked in every package that has them, under the tests."""

from __future__ import annotations

import re
from pathlib import Path

import jaxtyping
import pytest
import torch

import kmcl
from conftest import CHECKED
from kmcl.methods.csra import residual_attention

SOURCE = Path(kmcl.__file__).parent


def test_every_module_with_shapes_is_checked():
    modules = {
        ".".join(("kmcl", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in SOURCE.rglob("*.py")
        if re.search(r"^from kmcl\.shapes import|^import kmcl\.shapes", path.read_text(), re.MULTILINE)
    }
    assert len(modules) >= 20
    unchecked = {name for name in modules if not any(name.startswith(f"{part}.") for part in CHECKED)}
    assert not unchecked, "add their packages to CHECKED in tests/conftest.py"


def test_no_package_is_checked_for_nothing():
    for package in CHECKED:
        files = (SOURCE / package.removeprefix("kmcl.")).rglob("*.py")
        assert any("kmcl.shapes" in path.read_text() for path in files), package


def test_a_wrong_shape_is_found():
    with pytest.raises(jaxtyping.TypeCheckError, match="scores"):
        residual_attention(torch.zeros(2, 3), 1.0, 0.1)
