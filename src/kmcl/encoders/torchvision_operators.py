"""Make `import torchvision` work beside a CPU build of torch.

The torchvision of PyPI is linked to CUDA. Beside a CPU build of torch its binary cannot be loaded, which
torchvision itself tolerates, except that it describes the shapes of two of its operators to torch without
looking whether they exist: the import, and that of timm and torchmetrics after it, dies with "operator
torchvision::nms does not exist". Box suppression is nothing an image classifier needs, so the names alone
are declared; calling them still fails, with torchvision's own explanation.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util

import torch

__all__ = ["declare_missing_operators"]

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

# torch forgets a declaration when its Library object is collected.
_libraries: list[torch.library.Library] = []


def declare_missing_operators() -> None:
    """Declare the operators that `import torchvision` insists on, where its binary cannot be loaded.

    Call it before the first import of torchvision, timm or torchmetrics. It does nothing where torchvision
    is absent or its binary loads, and nothing the second time.
    """
    if _missing_operators() and _binary_is_unusable():
        # Asked again: loading the binary, successful or not, is what registers operators.
        for name in _missing_operators():
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(_SCHEMAS[name])  # type: ignore[no-untyped-call]
            _libraries.append(library)


def _missing_operators() -> list[str]:
    return [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]


def _binary_is_unusable() -> bool:
    """Whether torchvision is installed with a binary that this torch cannot load (or with none)."""
    package = importlib.util.find_spec("torchvision")
    if package is None or package.submodule_search_locations is None:
        return False
    binary = importlib.machinery.PathFinder.find_spec("_C", list(package.submodule_search_locations))
    if binary is None or binary.origin is None:
        return True
    try:
        torch.ops.load_library(binary.origin)  # type: ignore[no-untyped-call]
    except (ImportError, OSError):  # what torchvision itself catches when it tries the same
        return True
    return False
