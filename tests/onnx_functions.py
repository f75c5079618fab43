"""The ONNX functions of torch's exporter, read once for a process.

At every export torch reads the source of some five hundred functions anew, which takes longer than the export
of a small model. Where another torch has them elsewhere, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch


@contextmanager
def reading_functions_once() -> Iterator[None]:
    """While it is open, the first export by `torch.onnx` reads the functions for all that follow."""
    export = torch.onnx.export
    with pytest.MonkeyPatch.context() as patch:

        @cache
        def keep_functions() -> None:
            try:  # not before: it loads onnxscript, which few tests need
                from torch.onnx._internal.exporter._registration import ONNXRegistry

                patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
            except (ImportError, AttributeError):
                pass

        def export_with_kept_functions(*arguments: Any, **options: Any) -> Any:
            if options.get("dynamo"):
                keep_functions()
            return export(*arguments, **options)

        patch.setattr(torch.onnx, "export", export_with_kept_functions)
        yield
