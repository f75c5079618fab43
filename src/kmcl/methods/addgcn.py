"""ADD-GCN: a graph of the labels for each image (Ye et al., ECCV 2020)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions


class AddGCNOptions(AsymmetricOptions):
    name: Literal["addgcn"] = "addgcn"
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")


METHOD = Method(
    "ADD-GCN: a graph of the labels for each image",
    AddGCNOptions,
    head="kmcl.methods.heads.dynamic_graph:DynamicGraphHead",
    loss="kmcl.methods.heads.linear:asl_loss",
    needs_feature_map=True,
)
