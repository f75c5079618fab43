"""MulSupCon: supervised contrast of embeddings, label by label (Zhang and Wu, AAAI 2024), and the ASL.

The paper contrasts against a queue of momentum embeddings and trains with binary cross-entropy. Here the
images of the global batch are contrasted, as in KMCL, with its weights, temperature and classification loss:
the two methods differ in the kernels alone.

Axes: A anchors, C candidates, L labels, P active (anchor, label) pairs, E width of an embedding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.kernels.targets import Targets
from kmcl.losses.arguments import check_between, check_inputs
from kmcl.losses.distributed import gather_rows, gather_targets, is_distributed
from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.linear import LinearHead, asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import MulSupConOptions
from kmcl.shapes import Bool, Float, Num


@without_autocast
def label_contrastive_loss(
    embeddings: Float[Tensor, "C E"],
    targets: Num[Tensor, "C L"] | Bool[Tensor, "C L"] | Targets,
    *,
    temperature: float = 0.2,
    anchors: slice = slice(None),
) -> Float[Tensor, ""]:
    """Attract the embeddings of the images that carry a label to each other, for each label.

        L = 1/|Q| Σ_{(n, k) in Q} -1/|P(n, k)| Σ_{m in P(n, k)} log[ exp(z_n·z_m/τ) / Σ_{i≠n} exp(z_n·z_i/τ) ]

    z: embeddings of length 1. P(n, k): the other images with label k. Q: the pairs of an image n and a label
    k it carries, where P(n, k) is not empty. τ: temperature. Two images that share several labels attract
    each other once for each.

    An image without labels is not an anchor but is part of every denominator. An image whose label k is
    unknown is part of none of k's denominators.

    `anchors` limits the outer sum to some images; |Q| remains that of all images, so that partial sums add
    up.
    """
    check_between("temperature", temperature, 0, math.inf, open_low=True)
    checked = check_inputs(targets, {"embeddings": embeddings})
    embeddings = functional.normalize(at_least_float32(embeddings), dim=1)

    active_CL = checked.positive & (checked.positive.sum(dim=0) > 1)
    rows = torch.arange(len(targets), device=targets.device)[anchors]
    pairs_P, labels_P = active_CL[rows].nonzero().unbind(1)
    similarity_AC = embeddings[rows] @ embeddings.T / temperature
    not_self_AC = rows.unsqueeze(1) != torch.arange(len(targets), device=targets.device)
    similarity_PC, not_self_PC = similarity_AC[pairs_P], not_self_AC[pairs_P]

    in_denominator_PC = not_self_PC & checked.known.T[labels_P]
    log_denominator_P = similarity_PC.masked_fill(~in_denominator_PC, -torch.inf).logsumexp(dim=1)
    partners_PC = not_self_PC & checked.positive.T[labels_P]
    attraction_P = (similarity_PC * partners_PC).sum(dim=1) / partners_PC.sum(dim=1)
    return (log_denominator_P - attraction_P).sum() / active_CL.sum().clamp(min=1)


class ProjectedHead(nn.Module):
    """A linear head, and a small network that projects the pooled features to embeddings of length 1.

    The embeddings are the head's features: its loss acts on them.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: MulSupConOptions) -> None:
        super().__init__()
        self.classifier = LinearHead(encoder, num_labels, options)
        self.projection = nn.Sequential(
            nn.Linear(encoder.feature_dim, encoder.feature_dim),
            nn.ReLU(),
            nn.Linear(encoder.feature_dim, options.embedding_dim),
        )

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        embeddings = functional.normalize(self.projection(encoded.pooled), dim=1)
        return HeadOutput(self.classifier(encoded).logits, embeddings, None)


def mulsupcon_loss(output: HeadOutput, targets: Tensor, options: MulSupConOptions) -> LossTerms:
    """λ_ASL L_ASL + λ_contrastive L, with KMCL's weights.

    Where several processes train together, the mean over processes is the loss of the global batch.
    """
    checked = check_inputs(targets, {"logits": output.logits, "embeddings": output.features})
    classification = asl_loss(output, checked, options).total
    embeddings, all_targets, anchors, num_processes = output.features, checked, slice(None), 1
    if is_distributed():
        num_processes, first = distributed.get_world_size(), distributed.get_rank() * len(targets)
        anchors = slice(first, first + len(targets))
        embeddings, all_targets = gather_rows(embeddings), gather_targets(checked)
    contrastive = num_processes * label_contrastive_loss(
        embeddings, all_targets, temperature=options.temperature, anchors=anchors
    )
    total = options.classification_weight * classification + options.contrastive_weight * contrastive
    return LossTerms(total, {"classification": classification, "contrastive": contrastive})


METHOD = Method(MulSupConOptions, ProjectedHead, mulsupcon_loss)
