"""The public names of the packages of mathematics and data, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
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


def test_evaluation_is_numpy_alone():
    heavy = ("torch", "pandas", "sklearn", "scipy", "pydantic", "PIL")
    code = f"import sys, kmcl.evaluation; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
