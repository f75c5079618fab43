"""What a method is: a head, a loss, and the options it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from kmcl.losses import ObjectiveSettings
from kmcl.losses.arguments import check_between
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder


@dataclass(frozen=True)
class MethodOptions:
    """What a method may be told: the same for all, each reads those it has a use for.

    kernel, head_init, normalise_dimension: of the kernel mixture, see `KernelMixtureHead`
    query_width: width of KMCL's label queries, 0 for none
    memory_size: training images that KMCL's memory holds, 0 for no memory
    recollection_size: training images that KMCL's recollection holds, 0 for none
    frozen_stages: first stages of the encoder that training leaves as they are, which a recollection looks at
    objective: weights of the terms and the hyper-parameters inside them
    focal_focus: γ of the focal loss
    attention_heads, residual_weight: number of temperatures and λ of CSRA
    decoder_width: width of the tokens that ML-Decoder, Query2Label and TDRG attend with
    decoder_groups: most queries of ML-Decoder
    decoder_layers: of Query2Label and TDRG
    graph_width: width of the label nodes inside ML-GCN, ADD-GCN and TDRG
    graph_threshold, graph_neighbour_weight: τ and p of ML-GCN's label graph
    label_embedding_dim: width of ML-GCN's label embeddings, that of the word vectors where these are given
    embedding_dim: width of the embeddings MulSupCon contrasts
    """

    kernel: str = "isotropic"
    head_init: str = "paper"
    normalise_dimension: bool = False
    query_width: int = 0
    memory_size: int = 0
    recollection_size: int = 0
    frozen_stages: int = 0
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    focal_focus: float = 2.0
    attention_heads: int = 4
    residual_weight: float = 0.1
    decoder_width: int = 768
    decoder_groups: int = 100
    decoder_layers: int = 2
    graph_width: int = 1024
    graph_threshold: float = 0.4
    graph_neighbour_weight: float = 0.2
    label_embedding_dim: int = 300
    embedding_dim: int = 128

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            check_between(name, getattr(self, name), low, high)
        for name in ("decoder_width", "query_width"):
            if getattr(self, name) % ATTENTION_HEADS_OF_DECODERS:
                raise ValueError(
                    f"{name} must be a multiple of its {ATTENTION_HEADS_OF_DECODERS} attention heads; "
                    f"got {getattr(self, name)}"
                )


ATTENTION_HEADS_OF_DECODERS = 8

_BOUNDS = (
    ("query_width", 0, math.inf),
    ("memory_size", 0, math.inf),
    ("recollection_size", 0, math.inf),
    ("frozen_stages", 0, math.inf),
    ("focal_focus", 0, math.inf),
    ("attention_heads", 1, math.inf),
    ("residual_weight", 0, math.inf),
    ("decoder_width", ATTENTION_HEADS_OF_DECODERS, math.inf),
    ("decoder_groups", 1, math.inf),
    ("decoder_layers", 1, math.inf),
    ("graph_width", 1, math.inf),
    ("graph_threshold", 0, 1),
    ("graph_neighbour_weight", 0, 1),
    ("label_embedding_dim", 1, math.inf),
    ("embedding_dim", 1, math.inf),
)


class LossTerms(NamedTuple):
    """What is minimised, and its unweighted terms by name, for the logs."""

    total: Tensor
    named: Mapping[str, Tensor]


@dataclass(frozen=True)
class Method:
    """summary: one line for the help. The head is built for an encoder and a number of labels."""

    summary: str
    build_head: Callable[[Encoder, int, MethodOptions], nn.Module]
    loss: Callable[[HeadOutput, Tensor, MethodOptions], LossTerms]
