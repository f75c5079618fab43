"""Corrupted images, and how a model's uncertainty responds to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kmcl.evaluation.ranking import Values
from kmcl.models.classifier import Classifier

# Blur: deviation as a share of the image's side. Noise: deviation, of pixels between 0 and 1. Occlusion:
# share of the image under one grey square.
STRENGTHS: dict[str, tuple[float, ...]] = {
    "blur": (0.0, 0.01, 0.02, 0.04, 0.08),
    "noise": (0.0, 0.05, 0.1, 0.2, 0.4),
    "occlusion": (0.0, 0.1, 0.25, 0.4, 0.6),
}


@dataclass(frozen=True)
class CorruptionCurve:
    """Means over images and labels at each strength; sigma is None for a model without kernels."""

    kind: str
    num_images: int
    strengths: tuple[float, ...]
    sigma: Values | None
    entropy: Values


def corruption_curves(
    classifier: Classifier, images: Tensor, seed: int, advance: Callable[[float], object] | None = None
) -> list[CorruptionCurve]:
    """images: B x 3 x size x size between 0 and 1, at the classifier's own size.

    advance: called with the share of the work that is done
    """
    curves = []
    clean = _mean_uncertainty(classifier, images)
    num_done, total = 1, 1 + sum(len(strengths) - 1 for strengths in STRENGTHS.values())
    for kind, strengths in STRENGTHS.items():
        sigmas, entropies = [], []
        for strength in strengths:
            # The same noise and positions at every strength, so that a curve shows the effect of strength
            # alone.
            generator = torch.Generator().manual_seed(seed)
            if strength == 0:
                sigma, entropy = clean
            else:
                corrupted = corrupt(images, kind, strength, generator)
                sigma, entropy = _mean_uncertainty(classifier, corrupted)
                num_done += 1
            if advance is not None:
                advance(num_done / total)
            entropies.append(entropy)
            if sigma is not None:
                sigmas.append(sigma)
        curves.append(
            CorruptionCurve(
                kind, len(images), strengths, np.array(sigmas) if sigmas else None, np.array(entropies)
            )
        )
    return curves


def corrupt(images: Tensor, kind: str, strength: float, generator: torch.Generator) -> Tensor:
    """Corrupted images between 0 and 1; unchanged at strength 0."""
    if strength == 0:
        return images
    if kind == "blur":
        return _blur(images, strength * images.shape[-1])
    if kind == "noise":
        return (images + strength * torch.randn(images.shape, generator=generator)).clamp(0, 1)
    side = images.shape[-1]
    covered = max(1, round(side * strength**0.5))
    result = images.clone()
    places = torch.rand(len(images), 2, generator=generator)
    for image, (vertical, horizontal) in zip(result, places.tolist(), strict=True):
        top, left = (round(share * (side - covered)) for share in (vertical, horizontal))
        image[:, top : top + covered, left : left + covered] = 0.5
    return result


def _blur(images: Tensor, deviation: float) -> Tensor:
    """Gaussian blur, separable, with replicated borders."""
    radius = max(1, min(round(3 * deviation), images.shape[-1] - 1))
    offsets = torch.arange(-radius, radius + 1, dtype=images.dtype)
    weights = torch.exp(-0.5 * (offsets / deviation) ** 2)
    weights = weights / weights.sum()
    channels = images.shape[1]
    for shape, padding in (((1, -1), (radius, radius, 0, 0)), ((-1, 1), (0, 0, radius, radius))):
        kernel = weights.view(1, 1, *shape).expand(channels, 1, -1, -1)
        padded = functional.pad(images, padding, mode="replicate")
        images = functional.conv2d(padded, kernel, groups=channels)
    return images


@torch.inference_mode()
def _mean_uncertainty(
    classifier: Classifier, images: Tensor, batch_size: int = 32
) -> tuple[float | None, float]:
    """Mean sigma, and mean entropy of the binary probabilities in bits."""
    device = next(classifier.parameters()).device
    outputs = [classifier(batch.to(device)) for batch in torch.split(images, batch_size)]
    logits = torch.cat([output.logits for output in outputs]).double()
    entropy = functional.softplus(logits) - logits.sigmoid() * logits
    sigmas = [output.sigma for output in outputs if output.sigma is not None]
    sigma = float(torch.cat(sigmas).double().mean()) if sigmas else None
    return sigma, float(entropy.mean()) / float(np.log(2))
