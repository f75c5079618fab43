"""TDRG: transformer-based dual relation graph (Zhao et al., ICCV 2021)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions, DecoderWidth


class TDRGOptions(AsymmetricOptions):
    name: Literal["tdrg"] = "tdrg"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")


METHOD = Method(
    "TDRG: attention over scales and a graph of the labels",
    TDRGOptions,
    head="kmcl.methods.heads.dual_relation:DualRelationHead",
    loss="kmcl.methods.heads.dual_relation:tdrg_loss",
    needs_feature_map=True,
)
