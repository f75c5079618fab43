"""MulSupCon: supervised contrast of embeddings, label by label (Zhang and Wu, AAAI 2024), and the ASL.

The paper contrasts against a queue of momentum embeddings and trains with binary cross-entropy. Here the
images of the global batch are contrasted, as in KMCL, with its weights, temperature and classification loss:
what differs between the two methods is the kernels, not what is around them.

Axes: A anchors, C candidates, L labels, P active (anchor, label) pairs, E width of an embedding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from kmcl.data.targets import read_targets
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.losses.arguments import check_between, check_finite
from kmcl.losses.distributed import gather_rows, is_distributed
from kmcl.methods.interface import LossTerms, MethodOptions
from kmcl.methods.linear import LinearHead, asl_loss
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder, EncoderFeatures
from kmcl.shapes import Float, Num


@without_autocast
def label_contrastive_loss(
    embeddings: Float[Tensor, "C E"],
    targets: Num[Tensor, "C L"],
    *,
    temperature: float = 0.2,
    anchors: slice = slice(None),
) -> Float[Tensor, ""]:
    """Draw together the embeddings of the images that carry a label, for each label.

        L = 1/|Q| Σ_{(n, k) in Q} -1/|P(n, k)| Σ_{m in P(n, k)} log[ exp(z_n·z_m/τ) / Σ_{i≠n} exp(z_n·z_i/τ) ]

    z: embeddings of length 1. P(n, k): the other images with label k. Q: the pairs of an image n and a label
    k it carries, where P(n, k) is not empty. τ: temperature. Two images that share several labels are drawn
    together once for each.

    An image without labels is no anchor but stands in every denominator. Where label k is not known of an
    image, it stands in none of k's denominators.

    `anchors` limits the outer sum to some images; |Q| stays that of all, so that such parts add up.
    """
    check_between("temperature", temperature, 0, math.inf, open_low=True)
    check_finite("embeddings", embeddings)
    annotation = read_targets(targets)
    embeddings = functional.normalize(at_least_float32(embeddings), dim=1)

    active_CL = annotation.positive & (annotation.positive.sum(dim=0) > 1)
    rows = torch.arange(len(targets), device=targets.device)[anchors]
    pairs_P, labels_P = active_CL[rows].nonzero().unbind(1)
    similarity_AC = embeddings[rows] @ embeddings.T / temperature
    not_self_AC = rows.unsqueeze(1) != torch.arange(len(targets), device=targets.device)
    similarity_PC, not_self_PC = similarity_AC[pairs_P], not_self_AC[pairs_P]

    in_denominator_PC = not_self_PC & annotation.known.T[labels_P]
    log_denominator_P = similarity_PC.masked_fill(~in_denominator_PC, -torch.inf).logsumexp(dim=1)
    partners_PC = not_self_PC & annotation.positive.T[labels_P]
    attraction_P = (similarity_PC * partners_PC).sum(dim=1) / partners_PC.sum(dim=1)
    return (log_denominator_P - attraction_P).sum() / active_CL.sum().clamp(min=1)


class ProjectedHead(nn.Module):
    """A linear head, and a small network that projects the pooled features to embeddings of length 1.

    The embeddings are the head's features: they are what its loss draws together.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: MethodOptions) -> None:
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


def mulsupcon_loss(output: HeadOutput, targets: Tensor, options: MethodOptions) -> LossTerms:
    """λ_ASL L_ASL + λ_contrastive L, with KMCL's weights.

    Where several processes train together, the mean over processes is the loss of the global batch.
    """
    settings = options.objective
    classification = asl_loss(output, targets, options).total
    embeddings, all_targets, anchors, num_processes = output.features, targets, slice(None), 1
    if is_distributed():
        num_processes, first = distributed.get_world_size(), distributed.get_rank() * len(targets)
        anchors = slice(first, first + len(targets))
        embeddings, all_targets = gather_rows(embeddings), gather_rows(targets)
    contrastive = num_processes * label_contrastive_loss(
        embeddings, all_targets, temperature=settings.temperature, anchors=anchors
    )
    total = settings.classification_weight * classification + settings.contrastive_weight * contrastive
    return LossTerms(total, {"classification": classification, "contrastive": contrastive})
