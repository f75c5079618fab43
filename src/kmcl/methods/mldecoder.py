"""ML-Decoder: queries that each score a group of labels (Ridnik et al., WACV 2023)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions, DecoderWidth


class MLDecoderOptions(AsymmetricOptions):
    name: Literal["mldecoder"] = "mldecoder"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_groups: int = Field(100, ge=1, description="largest number of queries")


METHOD = Method(
    "ML-Decoder: queries that each score a group of labels",
    MLDecoderOptions,
    head="kmcl.methods.heads.group_decoder:GroupDecoderHead",
    loss="kmcl.methods.heads.linear:asl_loss",
    needs_feature_map=True,
)
