"""Beyond the paper: two labels of one image have kernels that overlap as far as both are there."""

from __future__ import annotations

import torch
from torch import Tensor

from kmcl.data.targets import read_targets
from kmcl.kernels import KernelMixture, within_image_log_similarity
from kmcl.kernels.precision import without_autocast
from kmcl.losses.arguments import check_same_shape
from kmcl.shapes import Float, Num


@without_autocast
def affinity_loss(
    mixture: KernelMixture, targets: Num[Tensor, "B L"], *, num_images: float | None = None
) -> Float[Tensor, ""]:
    """Squared error of the overlap ρ_kl(n) of a present label k with each other label l, as a forecast of l.

        L_AFF = 1/N Σ_n mean over k in S(n), l ≠ k of (ρ_kl(n) - y_nl)²

    S(n): the present labels of image n; ρ_kl(n): similarity of the kernels of k and l in it. No other term
    compares two labels, so without it where their kernels lie relative to each other is chance. The squared
    error is a proper score: what minimises it is ρ_kl(n) = P(l is there | k is, image), the share of images
    with k that have l too, as far as the image does not tell more.

    An image without a present label, or with one known label alone, adds 0 and counts in N; unknown labels
    take no part. `num_images` replaces N, by default the images with a known label.
    """
    check_same_shape("targets", targets, "the mixture's logits", mixture.logits)
    annotation = read_targets(targets)
    count = annotation.num_images if num_images is None else num_images
    images, labels = annotation.positive.nonzero(as_tuple=True)
    overlap = within_image_log_similarity(mixture, images, labels).exp()
    others = annotation.known[images].clone()
    others[torch.arange(len(labels), device=labels.device), labels] = False
    errors = (overlap - annotation.positive[images].to(overlap.dtype)).square() * others
    # Each image counts once, however many labels it has.
    num_others = others.sum(dim=1)
    pairs_of_image = torch.zeros(len(targets), device=labels.device, dtype=num_others.dtype)
    pairs_of_image.index_add_(0, images, num_others)
    return (errors.sum(dim=1) / pairs_of_image[images].clamp(min=1)).sum() / max(count, 1)
