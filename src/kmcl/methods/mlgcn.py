"""ML-GCN: a graph network over the labels generates their classifiers (Chen et al., CVPR 2019).

Its paper trains with binary cross-entropy; here with the asymmetric loss, like every rival.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.errors import InputError
from kmcl.methods.interface import Method
from kmcl.methods.label_statistics import LabelStatistics, reweighted_graph
from kmcl.methods.layers import LEAK, graph_convolution, graph_weight
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import MLGCNOptions
from kmcl.options.word_vectors import read_word_vectors
from kmcl.shapes import Float


def mean_word_vectors(path: Path, labels: tuple[str, ...]) -> Float[Tensor, "L E"]:
    """The mean of the vectors of each label's words, or the vector of its whole name where there is one."""
    return torch.stack([torch.tensor(words).mean(dim=0) for words in read_word_vectors(path, labels)])


class GraphClassifierHead(nn.Module):
    """Label embeddings, two graph convolutions to one classifier per label, and the maxima over positions.

        C = A LReLU(A Z W_1) W_2,   logit_k = C_k · max_t x_t

    The embeddings Z are word vectors, which are not trained, or learned if none are given. Until
    `set_label_statistics` is called, the graph A has no edges.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: MLGCNOptions) -> None:
        super().__init__()
        self.threshold = options.graph_threshold
        self.neighbour_weight = options.graph_neighbour_weight
        self.word_vectors = options.word_vectors
        self.register_buffer("graph", torch.eye(num_labels))
        # 0.4 is about the spread of GloVe's numbers, so that learned embeddings start on their scale.
        self.label_embeddings = nn.Parameter(0.4 * torch.randn(num_labels, options.label_embedding_dim))
        self.first_weight = graph_weight(options.label_embedding_dim, options.graph_width)
        self.second_weight = graph_weight(options.graph_width, encoder.spatial_dim)

    def set_label_statistics(self, statistics: LabelStatistics) -> None:
        graph: Tensor = self.graph  # type: ignore[assignment]
        graph.copy_(reweighted_graph(statistics.conditional, self.threshold, self.neighbour_weight))
        if self.word_vectors is None:
            return
        vectors = mean_word_vectors(self.word_vectors, statistics.labels)
        if vectors.shape != self.label_embeddings.shape:
            raise InputError(
                f"the word vectors of {len(vectors)} labels have {vectors.shape[1]} numbers; "
                f"label_embedding_dim is {self.label_embeddings.shape[1]}"
            )
        with torch.no_grad():
            self.label_embeddings.copy_(vectors)
        self.label_embeddings.requires_grad_(False)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        graph: Tensor = self.graph  # type: ignore[assignment]
        nodes = graph_convolution(graph, self.label_embeddings, self.first_weight)
        nodes = functional.leaky_relu(nodes, LEAK)
        classifiers = graph_convolution(graph, nodes, self.second_weight)
        return HeadOutput(encoded.spatial.amax(dim=1) @ classifiers.T, encoded.pooled, None)


METHOD = Method(MLGCNOptions, GraphClassifierHead, asl_loss)
