"""Shapes in signatures: B batch, L labels, D feature dimension, P active pairs, A anchors, C candidates.

They are jaxtyping's types for a type checker and wherever jaxtyping is already loaded (the tests load it
and check every shape at run time). Elsewhere annotations are never evaluated, and nothing is imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int, Num
else:
    Bool = Float = Int = Num = None

__all__ = ["Bool", "Float", "Int", "Num"]
