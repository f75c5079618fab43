"""ML-GCN: classifiers from a graph of the labels (Chen et al., CVPR 2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import AsymmetricOptions


class MLGCNOptions(AsymmetricOptions):
    name: Literal["mlgcn"] = "mlgcn"
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")
    graph_threshold: float = Field(0.4, ge=0, le=1, description="tau of the label graph")
    graph_neighbour_weight: float = Field(0.2, ge=0, le=1, description="p of the label graph")
    label_embedding_dim: int = Field(
        300, ge=1, description="width of the label embeddings; that of the word vectors where these are given"
    )
    word_vectors: Path | None = Field(
        None, description="text file of word vectors for the labels, as GloVe's; learned if not given"
    )

    def resolved(self, *, pretrained: bool, labels: tuple[str, ...]) -> Self:
        if self.word_vectors is None:
            return self
        from kmcl.methods.label_statistics import read_word_vectors

        width = read_word_vectors(self.word_vectors, labels).shape[1]
        return self.model_copy(update={"label_embedding_dim": width})

    def for_model(self) -> Self:
        return self.model_copy(update={"word_vectors": None})


METHOD = Method(
    "ML-GCN: classifiers from a graph of the labels",
    MLGCNOptions,
    head="kmcl.methods.heads.graph_classifier:GraphClassifierHead",
    loss="kmcl.methods.heads.linear:asl_loss",
)
