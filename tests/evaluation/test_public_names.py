"""The public names of the packages of mathematics and data, and what importing them costs."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from dataclasses import is_dataclass
from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["kmcl.data", "kmcl.evaluation", "kmcl.kernels", "kmcl.losses"])
def test_every_public_name_is_there_and_has_a_docstring(package):
    module = import_module(package)
    assert module.__all__ == sorted(
        set(module.__all__), key=lambda name: (not name.isupper(), name.islower(), name)
    )
    for name in module.__all__:
        value = getattr(module, name)
        assert value.__doc__ or not callable(value), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("package", ["kmcl.evaluation", "kmcl.kernels", "kmcl.losses"])
def test_results_and_settings_cannot_be_changed(package):
    found = []
    for each in pkgutil.iter_modules(import_module(package).__path__):
        module = import_module(f"{package}.{each.name}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
        ]
    assert found
    assert [value for value in found if not value.__dataclass_params__.frozen] == []


def test_evaluation_needs_neither_torch_nor_scikit_learn():
    heavy = ("torch", "pandas", "sklearn", "scipy", "pyarrow")
    code = f"import sys, kmcl.evaluation; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
