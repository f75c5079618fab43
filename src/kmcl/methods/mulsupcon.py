"""MulSupCon: supervised contrast of embeddings, label by label (Zhang and Wu, AAAI 2024)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import ContrastiveOptions


class MulSupConOptions(ContrastiveOptions):
    name: Literal["mulsupcon"] = "mulsupcon"
    embedding_dim: int = Field(128, ge=1, description="width of the embeddings that are contrasted")


METHOD = Method(
    "linear head, embeddings contrasted label by label",
    MulSupConOptions,
    head="kmcl.methods.heads.label_contrast:ProjectedHead",
    loss="kmcl.methods.heads.label_contrast:mulsupcon_loss",
)
