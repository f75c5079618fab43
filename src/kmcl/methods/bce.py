"""BCE: a linear head with binary cross-entropy."""

from __future__ import annotations

from typing import Literal

from kmcl.methods.interface import Method, MethodOptions


class BceOptions(MethodOptions):
    name: Literal["bce"] = "bce"


METHOD = Method(
    "linear head, binary cross-entropy",
    BceOptions,
    head="kmcl.methods.heads.linear:LinearHead",
    loss="kmcl.methods.heads.linear:bce_loss",
)
