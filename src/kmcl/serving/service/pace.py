"""How a model is run for the most images per second."""

from __future__ import annotations

from typing import Any

from kmcl.serving.image_predictor import ImagePredictor

PIXELS_AT_ONCE = 250_000
"""Per batch on a CPU. Larger ones leave the caches, and their activations are mapped and unmapped by the
system at every layer: EfficientNet-Lite0 at 224 pixels takes twice as long per image in batches of 32 as in
batches of 4. docs/serving.md has the figures."""
MOST_IMAGES_AT_ONCE = 32


def best_batch_size(predictor: ImagePredictor) -> int:
    """A power of two for the model's image size; the largest where it runs on a GPU."""
    if _device(predictor) != "cpu":
        return MOST_IMAGES_AT_ONCE
    size = 1
    while size < MOST_IMAGES_AT_ONCE and 2 * size * predictor.image_size**2 <= PIXELS_AT_ONCE:
        size *= 2
    return size


def lay_out(predictor: ImagePredictor) -> None:
    """Channels last, in which convolutions on a CPU take two thirds of the time; scores stay the same."""
    classifier: Any = getattr(predictor, "classifier", None)
    if classifier is not None:
        import torch

        classifier.to(memory_format=torch.channels_last)


def _device(predictor: ImagePredictor) -> str:
    classifier: Any = getattr(predictor, "classifier", None)
    return "cpu" if classifier is None else str(next(classifier.parameters()).device.type)
