"""Focal: a linear head with the focal loss (Lin et al., ICCV 2017)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method, MethodOptions


class FocalOptions(MethodOptions):
    name: Literal["focal"] = "focal"
    focal_focus: float = Field(2.0, ge=0, description="gamma of the focal loss")


METHOD = Method(
    "linear head, focal loss",
    FocalOptions,
    head="kmcl.methods.heads.linear:LinearHead",
    loss="kmcl.methods.heads.linear:focal_loss",
)
