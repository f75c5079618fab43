"""ASL: a linear head with the asymmetric loss (Ridnik et al., ICCV 2021; Eq. 6 of the paper)."""

from __future__ import annotations

from typing import Literal

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions


class AslOptions(AsymmetricOptions):
    name: Literal["asl"] = "asl"


METHOD = Method(
    "linear head, asymmetric loss",
    AslOptions,
    head="kmcl.methods.heads.linear:LinearHead",
    loss="kmcl.methods.heads.linear:asl_loss",
)
