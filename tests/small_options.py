"""Options of every method that make heads small enough for tests."""

from __future__ import annotations

from typing import Any

from kmcl.options import METHOD_OPTIONS, read_options
from kmcl.options.methods import MethodOptions

SMALL = {
    "kernel": "isotropic",
    "query_width": 16,
    "decoder_width": 32,
    "graph_width": 16,
    "label_embedding_dim": 8,
    "embedding_dim": 8,
    "reconstruction_weight": 1.0,
    "contrastive_weight": 0.3,
}


def small_options(method: str, **changes: Any) -> MethodOptions:
    """The method's options with those of `SMALL` that it has, then `changes`."""
    known = METHOD_OPTIONS[method].option_names()
    return read_options({"name": method, **{k: v for k, v in SMALL.items() if k in known}, **changes})
