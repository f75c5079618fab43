"""How a model is run for the most images per second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

from kmcl.cores import available_cores
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.onnx_predictor import OnnxPredictor

PIXELS_AT_ONCE = 250_000
"""Per batch on a CPU. Larger ones leave the caches, and their activations are mapped and unmapped by the
system at every layer: EfficientNet-Lite0 at 224 pixels takes twice as long per image in batches of 32 as in
batches of 4. docs/serving.md has the figures."""
MOST_IMAGES_AT_ONCE = 32
MOST_THREADS = 4
"""That score at once, where the model runs on a CPU."""


def best_batch_size(predictor: ImagePredictor) -> int:
    """A power of two for the model's image size; the largest where it runs on a GPU."""
    if _device(predictor) != "cpu":
        return MOST_IMAGES_AT_ONCE
    size = 1
    while size < MOST_IMAGES_AT_ONCE and 2 * size * predictor.image_size**2 <= PIXELS_AT_ONCE:
        size *= 2
    return size


def num_scoring_threads(predictor: ImagePredictor) -> int:
    """One per core of a CPU, up to MOST_THREADS; one for a GPU.

    Two batches on a core each are done sooner than one after the other on both: nothing waits for the slower
    half of every layer, which is the rule where decoding and clients want the cores too.
    """
    return min(MOST_THREADS, available_cores()) if _device(predictor) == "cpu" else 1


def gains_by_batches(predictor: ImagePredictor) -> bool:
    """Whether an image costs less in a larger batch; with onnxruntime on a CPU it hardly does."""
    return not isinstance(predictor, OnnxPredictor)


@contextmanager
def cores_shared(predictor: ImagePredictor, num_threads: int) -> Iterator[None]:
    """While it lasts, each of so many threads that score uses its share of the cores.

    They must be started meanwhile: torch counts its threads for the thread that sets their number and for
    those begun later. For the same reason it must be left on the thread that entered it.
    """
    share = max(1, available_cores() // num_threads)
    if isinstance(predictor, OnnxPredictor):
        before = predictor.session
        # The threads of a session help all who score with it, and each of these is one core more.
        predictor.use_cores(1 + num_threads * (share - 1))
        try:
            yield
        finally:
            predictor.session = before
    elif _classifier(predictor) is not None:
        import torch

        num_before = torch.get_num_threads()
        torch.set_num_threads(min(num_before, share))
        try:
            yield
        finally:
            torch.set_num_threads(num_before)
    else:
        yield


def hastened(predictor: ImagePredictor) -> ImagePredictor:
    """The same model arranged for speed; the one given stays as it is.

    Channels last, in which convolutions on a CPU take two thirds of the time, and batch normalisation folded
    into them. Scores stay the same but for rounding.
    """
    if isinstance(predictor, OnnxPredictor):
        return copy(predictor)  # `cores_shared` gives it a session of its own
    if _classifier(predictor) is None:
        return predictor
    import torch

    from kmcl.models.folding import fold_batch_norms
    from kmcl.serving.predictor import Predictor

    if not isinstance(predictor, Predictor):
        return predictor  # it may score in a way of its own
    hasty = copy(predictor)
    # A copy of it, since folding may give back what it was given, and the layout is changed in place.
    folded: Any = fold_batch_norms(deepcopy(predictor.classifier))
    hasty.classifier = folded.to(memory_format=torch.channels_last)
    return hasty


def _device(predictor: ImagePredictor) -> str:
    classifier = _classifier(predictor)
    return "cpu" if classifier is None else str(next(classifier.parameters()).device.type)


def _classifier(predictor: ImagePredictor) -> Any:
    """The model in torch, where it is one."""
    return getattr(predictor, "classifier", None)
