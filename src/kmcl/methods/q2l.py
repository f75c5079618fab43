"""Query2Label: a query for each label (Liu et al., 2021)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions, DecoderWidth


class Q2LOptions(AsymmetricOptions):
    name: Literal["q2l"] = "q2l"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


METHOD = Method(
    "Query2Label: a query for each label",
    Q2LOptions,
    head="kmcl.methods.heads.label_queries:LabelQueriesHead",
    loss="kmcl.methods.heads.linear:asl_loss",
    needs_feature_map=True,
)
