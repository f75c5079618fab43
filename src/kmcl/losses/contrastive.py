"""Eq. 7: the kernel contrastive loss, which attracts the kernels of labels that images share.

Axes: A anchors, C candidates, L labels, P active (anchor, label) pairs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from kmcl.kernels import KernelMixture, pairwise_log_similarity
from kmcl.kernels.precision import without_autocast
from kmcl.kernels.targets import Targets, read_targets
from kmcl.losses.arguments import check_between, check_inputs, check_same_shape, mean_over_images
from kmcl.shapes import Bool, Float, Num


class Candidates(NamedTuple):
    """The images that anchors are compared with, if these are more than the anchors themselves.

    The anchors are among them, in order, from row `first_anchor` on.
    """

    mixture: KernelMixture
    targets: Num[Tensor, "C L"] | Bool[Tensor, "C L"] | Targets
    first_anchor: int


@without_autocast
def contrastive_loss(
    mixture: KernelMixture,
    targets: Num[Tensor, "A L"] | Bool[Tensor, "A L"] | Targets,
    *,
    temperature: float = 0.2,
    jaccard_in_log: bool = False,
    candidates: Candidates | None = None,
    num_images: Tensor | float | None = None,
) -> Float[Tensor, ""]:
    """Kernel contrastive loss (Eq. 7), exact, over the active pairs only.

        L_KMCL = 1/N Σ_n -1/|A(n)| Σ_{m in A(n)} J(n, m) Σ_{k in K(n, m)}
                     log[ exp(ρ_k(n, m)/τ) / Σ_{i≠n} exp(ρ_k(n, i)/τ) ]

    A(n): the other images that share a label with n. K(n, m): the labels n and m share. J: Jaccard index of
    their label sets. ρ_k(n, i): similarity of label k's kernels in n and i. τ: temperature. Since the
    denominator does not depend on m, and with W_nm = J(n, m)/|A(n)| and s_nk = Σ_m W_nm y_mk, this is

        1/N Σ_{(n, k)} [ s_nk · logsumexp_i(ρ_k(n, i)/τ) - Σ_m W_nm y_mk ρ_k(n, m)/τ ]

    over the active pairs: labels k of n that another image carries too (about 3 an image on COCO, not 80).

    An image without labels is not an anchor but is in every other anchor's denominator. An unknown label is
    ignored: it is left out of J, A and K, and its image out of that label's denominators.

    With `jaccard_in_log` J is a factor inside the logarithm, as in the released code: it adds -log J to the
    value and has no part in the gradient, so that W_nm = 1/|A(n)|.

    `candidates` compares the anchors with more images than themselves (the other processes' of a distributed
    run); `num_images` replaces N, by default the anchors with a known label. Inputs are checked, unless
    targets are `Targets`, which a caller has checked with the rest (`check_inputs`).
    """
    check_between("temperature", temperature, 0, math.inf, open_low=True)
    if candidates is None:
        candidates = Candidates(mixture, targets, first_anchor=0)
    _check_candidates(mixture, targets, candidates)
    anchor = check_inputs(
        targets,
        {"mixture.means": mixture.means, "mixture.variances": mixture.variances},
        above_zero=("mixture.variances",),
    )
    other = (
        anchor if candidates.targets is targets else read_targets(candidates.targets, "candidates.targets")
    )
    not_self_AC = _not_self(len(targets), len(candidates.targets), candidates.first_anchor, targets.device)
    mixture, others = mixture.at_least_float32(), candidates.mixture.at_least_float32()
    overlap = _overlap(anchor, other, not_self_AC, mixture.means.dtype)
    weights_AC = overlap.shares() if jaccard_in_log else overlap.jaccard_shares()

    has_partner_L = other.positive.sum(dim=0) > 1  # the anchor itself is one of the carriers
    labels_P, anchors_P = (anchor.positive & has_partner_L).T.nonzero().unbind(1)
    similarity_PC = pairwise_log_similarity(mixture, others, anchors_P, labels_P).exp() / temperature
    in_denominator_PC = not_self_AC[anchors_P] & other.known.T[labels_P]
    log_denominator_P = torch.logsumexp(similarity_PC.masked_fill(~in_denominator_PC, -torch.inf), dim=1)
    weights_PC = weights_AC[anchors_P] * other.positive.T[labels_P]
    total = (weights_PC * (log_denominator_P.unsqueeze(1) - similarity_PC)).sum()
    if jaccard_in_log:
        total = total - (weights_AC * overlap.num_shared * overlap.log_jaccard()).sum()
    return mean_over_images(total, anchor, num_images)


class ContrastiveLoss(torch.nn.Module):
    """`contrastive_loss` with its temperature."""

    def __init__(self, temperature: float = 0.2) -> None:
        super().__init__()
        check_between("temperature", temperature, 0, math.inf, open_low=True)
        self.temperature = temperature

    def forward(
        self, mixture: KernelMixture, targets: Tensor, candidates: Candidates | None = None
    ) -> Tensor:
        return contrastive_loss(mixture, targets, temperature=self.temperature, candidates=candidates)


class _Overlap(NamedTuple):
    """What the label sets of anchors n and candidates m have in common, A x C.

    num_shared:    |K(n, m)|, 0 where m is not in A(n)
    num_either:    labels of n or m, among those known in both
    num_positives: |A(n)|, A x 1
    """

    num_shared: Float[Tensor, "A C"]
    num_either: Float[Tensor, "A C"]
    num_positives: Num[Tensor, "A 1"]

    def jaccard_shares(self) -> Float[Tensor, "A C"]:
        """J(n, m) / |A(n)| for m in A(n), else 0."""
        return self.num_shared / (self.num_either * self.num_positives).clamp(min=1)

    def shares(self) -> Float[Tensor, "A C"]:
        """1 / |A(n)| for m in A(n), else 0."""
        return (self.num_shared > 0) / self.num_positives.clamp(min=1).to(self.num_shared.dtype)

    def log_jaccard(self) -> Float[Tensor, "A C"]:
        """log J(n, m) for m in A(n), else 0."""
        jaccard = self.num_shared / self.num_either
        return jaccard.where(self.num_shared > 0, jaccard.new_ones(())).log()


def _overlap(
    anchor: Targets, other: Targets, not_self_AC: Bool[Tensor, "A C"], dtype: torch.dtype
) -> _Overlap:
    positive_AL, known_AL = anchor.positive.to(dtype), anchor.known.to(dtype)
    positive_CL, known_CL = other.positive.to(dtype), other.known.to(dtype)
    shared_AC = positive_AL @ positive_CL.T
    union_AC = positive_AL @ known_CL.T + known_AL @ positive_CL.T - shared_AC
    shares_label_AC = (shared_AC > 0) & not_self_AC
    return _Overlap(shares_label_AC * shared_AC, union_AC, shares_label_AC.sum(dim=1, keepdim=True))


def _not_self(
    num_anchors: int, num_candidates: int, first_anchor: int, device: torch.device
) -> Bool[Tensor, "A C"]:
    anchor_positions = torch.arange(first_anchor, first_anchor + num_anchors, device=device)
    return anchor_positions.unsqueeze(1) != torch.arange(num_candidates, device=device)


def _check_candidates(mixture: KernelMixture, targets: Tensor | Targets, candidates: Candidates) -> None:
    check_same_shape("targets", targets, "the mixture's logits", mixture.logits)
    check_same_shape(
        "candidates.targets", candidates.targets, "candidates.mixture's logits", candidates.mixture.logits
    )
    other = candidates.mixture
    if (other.kernel, other.feature_dim, other.exponent_scale) != (
        mixture.kernel,
        mixture.feature_dim,
        mixture.exponent_scale,
    ):
        raise ValueError(
            f"candidates.mixture must be {mixture.kernel} of dimension {mixture.feature_dim} and scale "
            f"{mixture.exponent_scale:g}, the anchors'; got {other.kernel} of dimension "
            f"{other.feature_dim} and scale {other.exponent_scale:g}"
        )
    if not 0 <= candidates.first_anchor <= len(candidates.targets) - len(targets):
        raise ValueError(
            f"candidates.first_anchor must leave room for {len(targets)} anchors among "
            f"{len(candidates.targets)} candidates; got {candidates.first_anchor}"
        )
