"""Counts the operations that make a program wait for its GPU; on a CPU the same operations are called."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = (
    "_local_scalar_dense",  # item(), bool(), int(), float(); also equal() on a GPU
    "equal",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "_unique2",
)


class CountSynchronisations(TorchDispatchMode):
    """`counts` by operation; a `tolist()` and an index by a mask count too."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._tolist = mock.patch.object(torch.Tensor, "tolist", self._counted(torch.Tensor.tolist))

    def __enter__(self) -> CountSynchronisations:
        self._tolist.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._tolist.stop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in WAITING:
            self.counts[name] += 1
        if name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        ):
            self.counts["index by a mask"] += 1
        return function(*args, **(kwargs or {}))

    def _counted(self, tolist: Any) -> Any:
        def call(tensor: torch.Tensor) -> Any:
            self.counts["tolist"] += 1
            return tolist(tensor)

        return call
