"""Options of every method that make heads small enough for tests."""

from __future__ import annotations

from typing import Any

from kmcl.methods import MethodOptions, find_method, read_options

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
    known = find_method(method).option_names
    return read_options({"name": method, **{k: v for k, v in SMALL.items() if k in known}, **changes})
