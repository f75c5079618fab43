"""Options that several methods share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kmcl.methods.interface import MethodOptions

ATTENTION_HEADS = 8
"""Attention heads of the decoders; their width is a multiple of it."""

DecoderWidth = Annotated[int, Field(ge=ATTENTION_HEADS, multiple_of=ATTENTION_HEADS)]


class AsymmetricOptions(MethodOptions):
    """Hyper-parameters of the asymmetric loss (Eq. 6), for every method that is trained with it."""

    positive_focus: float = Field(0.0, ge=0, description="gamma+ of the asymmetric loss (Eq. 6)")
    negative_focus: float = Field(4.0, ge=0, description="gamma- of the asymmetric loss (Eq. 6)")
    probability_margin: float = Field(0.05, ge=0, lt=1, description="m of the asymmetric loss (Eq. 6)")


class ContrastiveOptions(AsymmetricOptions):
    """Weights of a classification and a contrastive term, and the temperature of the second."""

    classification_weight: float = Field(1.0, ge=0, description="weight of the asymmetric loss (Eq. 6)")
    contrastive_weight: float = Field(0.1, ge=0, description="weight of the contrastive loss (Eq. 7)")
    temperature: float = Field(0.2, gt=0, description="temperature of the contrastive loss (Eq. 7)")
