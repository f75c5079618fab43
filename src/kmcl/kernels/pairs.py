"""Similarities of one label's kernels across images, for chosen (image, label) pairs against all candidates.

Axes: P chosen pairs, C candidate images, L labels, D feature dimension.

Of the B x B x L similarities of a batch, Eq. 7 uses those of the labels an image carries: about 3 of 80 on
COCO. Only these are computed. Kernels with D numbers per label need P x C x D work; it is done label by label
in blocks that fit the processor's cache and recomputed in the backward pass, so memory grows with P x C.
Second-order gradients (`create_graph`) are those of the plain formulas, without either saving.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from kmcl.kernels.parameters import KernelParameters, LogSimilarity
from kmcl.kernels.similarity import (
    log_bhattacharyya_diagonal,
    log_bhattacharyya_isotropic,
    log_gaussian,
    log_mahalanobis_diagonal,
)
from kmcl.shapes import Float, Int

BLOCK_ELEMENTS = 2**18
"""Elements of one P x C x D block: 1 MB of float32, of which a handful are alive at a time."""


def gathered_pairs(
    log_similarity: LogSimilarity,
    anchors: KernelParameters,
    candidates: KernelParameters,
    anchor_rows: Int[Tensor, " P"],
    labels: Int[Tensor, " P"],
) -> Float[Tensor, "P C"]:
    """Any formula on the pairs' parameters, gathered to P x C (x D) numbers: for user-defined families."""
    shared = anchors.variances.shape[1] == 1
    variance_labels = torch.zeros_like(labels) if shared else labels
    return anchors.exponent_scale * log_similarity(
        anchors.means[anchor_rows, labels].unsqueeze(1),
        anchors.variances[anchor_rows, variance_labels].unsqueeze(1),
        candidates.means.transpose(0, 1)[labels],
        candidates.variances.transpose(0, 1)[variance_labels],
        anchors.feature_dim,
    )


def scalar_pairs(
    anchors: KernelParameters,
    candidates: KernelParameters,
    anchor_rows: Int[Tensor, " P"],
    labels: Int[Tensor, " P"],
    *,
    has_scale_factor: bool,
) -> Float[Tensor, "P C"]:
    """Corollary 2 (ii), or without the scale factor Eq. 2b, for one mean and one variance per label."""
    shared = anchors.variances.shape[1] == 1
    variance_labels = torch.zeros_like(labels) if shared else labels
    result: Tensor = _ScalarPairs.apply(  # type: ignore[no-untyped-call]
        anchors.means[anchor_rows, labels].unsqueeze(1),
        anchors.variances[anchor_rows, variance_labels].unsqueeze(1),
        # Transposed first, so that the P x C result is laid out in rows.
        candidates.means.T.contiguous().index_select(0, labels),
        candidates.variances.T.contiguous().index_select(0, variance_labels),
        anchors.feature_dim * anchors.exponent_scale,
        has_scale_factor,
    )
    return result


def diagonal_pairs(
    anchors: KernelParameters,
    candidates: KernelParameters,
    anchor_rows: Int[Tensor, " P"],
    labels: Int[Tensor, " P"],
    *,
    has_scale_factor: bool,
) -> Float[Tensor, "P C"]:
    """Corollary 2 (i), or without the scale factor Eq. 2a, for a mean and a variance per dimension."""
    result: Tensor = _DiagonalPairs.apply(  # type: ignore[no-untyped-call]
        anchors.means,
        anchors.variances.expand_as(anchors.means),
        candidates.means,
        candidates.variances.expand_as(candidates.means),
        anchor_rows,
        labels,
        has_scale_factor,
    )
    return result * anchors.exponent_scale


class _ScalarPairs(torch.autograd.Function):
    """Corollary 2 (ii), or Eq. 2b, of P anchors with C candidates each, in few passes over P x C numbers.

    With gap Δ = μp - μq and sum s = σp² + σq²,

        log ρ  = -D/4 [ log(s² / (4 σp² σq²)) + Δ²/s ]
        ∂/∂μp  = -D/2 Δ/s                                    ∂/∂μq is its negative
        ∂/∂σp² = -D/4 [ (σp² - σq²) / (s σp²) - (Δ/s)² ]     and alike for σq²

    where the terms without Δ belong to the scale factor, which Eq. 2b leaves out.
    """

    @staticmethod
    def forward(
        ctx: Any,
        means_p: Tensor,
        variances_p: Tensor,
        means_q: Tensor,
        variances_q: Tensor,
        feature_dim: float,
        has_scale_factor: bool,
    ) -> Tensor:
        ctx.save_for_backward(means_p, variances_p, means_q, variances_q)
        ctx.feature_dim, ctx.has_scale_factor = feature_dim, has_scale_factor
        result_PC = (means_p - means_q).square_().div_(variances_p + variances_q)
        if has_scale_factor:
            gap_PC = variances_p - variances_q
            ratio_PC = gap_PC / variances_q
            result_PC.add_(ratio_PC.mul_(gap_PC.mul_(0.25 / variances_p)).log1p_())
        return result_PC.mul_(-0.25 * feature_dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        means_p, variances_p, means_q, variances_q = ctx.saved_tensors
        if torch.is_grad_enabled():
            formula = log_bhattacharyya_isotropic if ctx.has_scale_factor else log_gaussian
            plain_PC = formula(means_p, variances_p, means_q, variances_q, ctx.feature_dim)
            return *_differentiable_gradients(plain_PC, gradients[0], ctx), None, None
        weights_PC = gradients[0] * (-0.25 * ctx.feature_dim)
        inverse_sum_PC = (variances_p + variances_q).reciprocal_()
        pull_PC = (means_p - means_q).mul_(inverse_sum_PC)
        into_means_q = (weights_PC * pull_PC).mul_(-2)
        into_means_p = -into_means_q.sum(dim=1, keepdim=True)
        spread_PC = pull_PC.square_().mul_(weights_PC)
        into_variances_p = -spread_PC.sum(dim=1, keepdim=True)
        into_variances_q = spread_PC.neg_()
        if ctx.has_scale_factor:
            scale_PC = inverse_sum_PC.mul_(variances_p - variances_q).mul_(weights_PC)
            into_variances_p += scale_PC.sum(dim=1, keepdim=True) / variances_p
            into_variances_q.sub_(scale_PC.div_(variances_q))
        return into_means_p, into_variances_p, into_means_q, into_variances_q, None, None


class _DiagonalPairs(torch.autograd.Function):
    """Corollary 2 (i), or Eq. 2a with diagonal covariances, over blocks of pairs that share a label.

    With gap Δ = μp - μq and sum s = σp² + σq² in each dimension,

        log ρ      = -¼ Σ_d [ log(s² / (4 σp² σq²)) + Δ²/s ]
        ∂/∂μp      = -½ Δ/s                              ∂/∂μq is its negative
        ∂/∂σp²     = -½/s + ¼/σp² + ¼ (Δ/s)²             and alike for σq²

    where the terms without Δ belong to the scale factor, which Eq. 2a leaves out.
    """

    @staticmethod
    def forward(
        ctx: Any,
        anchor_means: Tensor,
        anchor_variances: Tensor,
        candidate_means: Tensor,
        candidate_variances: Tensor,
        anchor_rows: Tensor,
        labels: Tensor,
        has_scale_factor: bool,
    ) -> Tensor:
        ctx.save_for_backward(
            anchor_means, anchor_variances, candidate_means, candidate_variances, anchor_rows, labels
        )
        ctx.has_scale_factor = has_scale_factor
        ctx.blocks = _blocks_of_one_label(labels, candidate_means[:, 0].numel())
        num_candidates = candidate_means.shape[0]
        result_PC = anchor_means.new_empty(len(labels), num_candidates)
        for label, pairs in ctx.blocks:
            rows = anchor_rows[pairs]
            variances_p = anchor_variances[rows, label].unsqueeze(1)
            variances_q = candidate_variances[:, label]
            exponents_PCD = anchor_means[rows, label].unsqueeze(1) - candidate_means[:, label]
            exponents_PCD.square_().div_(variances_p + variances_q)
            if has_scale_factor:
                gap_PCD = variances_p - variances_q
                ratio_PCD = gap_PCD * (0.25 / variances_p)
                exponents_PCD.add_(ratio_PCD.mul_(gap_PCD.mul_(1 / variances_q)).log1p_())
            torch.sum(exponents_PCD, dim=-1, out=result_PC[pairs])
        return result_PC.mul_(-0.25)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient_PC,) = gradients
        anchor_means, anchor_variances, candidate_means, candidate_variances, anchor_rows, labels = (
            ctx.saved_tensors
        )
        if torch.is_grad_enabled():
            formula = log_bhattacharyya_diagonal if ctx.has_scale_factor else log_mahalanobis_diagonal
            plain_PC = formula(
                anchor_means[anchor_rows, labels].unsqueeze(1),
                anchor_variances[anchor_rows, labels].unsqueeze(1),
                candidate_means.transpose(0, 1)[labels],
                candidate_variances.transpose(0, 1)[labels],
            )
            return *_differentiable_gradients(plain_PC, gradient_PC, ctx), None, None, None
        into_anchor_means = torch.zeros_like(anchor_means)
        into_candidate_means = torch.zeros_like(candidate_means)
        # Not zeros_like: variances may be an expanded view, whose rows would share memory.
        into_anchor_variances = torch.zeros_like(anchor_means)
        into_candidate_variances = torch.zeros_like(candidate_means)
        for label, pairs in ctx.blocks:
            rows = anchor_rows[pairs]
            gradient = gradient_PC[pairs]
            variances_p = anchor_variances[rows, label]
            variances_q = candidate_variances[:, label]
            weights_PC1 = gradient.unsqueeze(-1)
            inverse_sum_PCD = (variances_p.unsqueeze(1) + variances_q).reciprocal_()
            pull_PCD = (anchor_means[rows, label].unsqueeze(1) - candidate_means[:, label]).mul_(
                inverse_sum_PCD
            )
            weighted_pull_PCD = pull_PCD * weights_PC1
            into_anchor_means[rows, label] += weighted_pull_PCD.sum(dim=1).mul_(-0.5)
            into_candidate_means[:, label] += weighted_pull_PCD.sum(dim=0).mul_(0.5)
            spread_PCD = weighted_pull_PCD.mul_(pull_PCD).mul_(0.25)
            if ctx.has_scale_factor:
                spread_PCD.sub_(inverse_sum_PCD.mul_(weights_PC1).mul_(0.5))
                into_anchor_variances[rows, label] += 0.25 * gradient.sum(dim=1, keepdim=True) / variances_p
                into_candidate_variances[:, label] += 0.25 * gradient.sum(dim=0).unsqueeze(1) / variances_q
            into_anchor_variances[rows, label] += spread_PCD.sum(dim=1)
            into_candidate_variances[:, label] += spread_PCD.sum(dim=0)
        return (
            into_anchor_means,
            into_anchor_variances,
            into_candidate_means,
            into_candidate_variances,
            None,
            None,
            None,
        )


def _differentiable_gradients(plain_PC: Tensor, gradient_PC: Tensor, ctx: Any) -> list[Tensor | None]:
    """Gradients of the first four saved tensors by autograd, which can be differentiated again.

    In a backward pass that builds a graph the saved tensors are part of it; the written-out gradients, which
    reuse memory in place, are not.
    """
    needed = ctx.needs_input_grad[:4]
    inputs = [tensor for tensor, is_needed in zip(ctx.saved_tensors[:4], needed, strict=True) if is_needed]
    found = iter(torch.autograd.grad(plain_PC, inputs, gradient_PC, create_graph=True))
    return [next(found) if is_needed else None for is_needed in needed]


class _Block(NamedTuple):
    """Consecutive pairs of one label."""

    label: int
    pairs: slice


def _blocks_of_one_label(labels: Tensor, elements_per_pair: int) -> list[_Block]:
    """Runs of equal labels, cut so that a block of P x C x D stays near BLOCK_ELEMENTS."""
    pairs_per_block = max(1, BLOCK_ELEMENTS // max(1, elements_per_pair))
    runs = torch.stack(torch.unique_consecutive(labels, return_counts=True))
    blocks: list[_Block] = []
    start = 0
    for label, count in runs.T.tolist():
        stop = start + count
        blocks += [
            _Block(label, slice(first, min(first + pairs_per_block, stop)))
            for first in range(start, stop, pairs_per_block)
        ]
        start = stop
    return blocks
