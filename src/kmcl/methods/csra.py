"""CSRA: class-specific residual attention (Zhu and Wu, ICCV 2021)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions


class CsraOptions(AsymmetricOptions):
    name: Literal["csra"] = "csra"
    attention_heads: int = Field(4, ge=1, description="number of temperatures")
    residual_weight: float = Field(0.1, ge=0, description="lambda, the weight of the attended score")


METHOD = Method(
    "residual attention of each label over positions",
    CsraOptions,
    head="kmcl.methods.heads.residual_attention:ResidualAttentionHead",
    loss="kmcl.methods.heads.linear:asl_loss",
    needs_feature_map=True,
)
