"""Running a model at the highest throughput: batch size, threads, memory layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

from kmcl.cores import available_cores
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.onnx_predictor import OnnxPredictor

MAX_BATCH_PIXELS = 250_000
"""Per batch on a CPU. Larger batches exceed the caches, and the system maps and unmaps their activations at
every layer: EfficientNet-Lite0 at 224 pixels takes twice as long per image in batches of 32 as in batches of
4. docs/serving.md has the measurements."""
MAX_BATCH_SIZE = 32
VECTOR_BATCH_SIZE = 256
MAX_THREADS = 4
"""Number of threads that score, where the model runs on a CPU."""


def best_batch_size(predictor: ImagePredictor) -> int:
    """A power of two that suits the model's image size; MAX_BATCH_SIZE on a GPU."""
    if predictor.feature_dim is not None:
        return VECTOR_BATCH_SIZE
    if not runs_on_cpu(predictor):
        return MAX_BATCH_SIZE
    size = 1
    while size < MAX_BATCH_SIZE and 2 * size * predictor.image_size**2 <= MAX_BATCH_PIXELS:
        size *= 2
    return size


def num_scoring_threads(predictor: ImagePredictor) -> int:
    """One per core of a CPU, up to MAX_THREADS; one for a GPU.

    Two batches on one core each finish sooner than one after the other on both: no thread waits at every
    layer for the slower one, as happens when decoding and clients use the cores too.
    """
    return min(MAX_THREADS, available_cores()) if runs_on_cpu(predictor) else 1


def benefits_from_batching(predictor: ImagePredictor) -> bool:
    """Whether larger batches are faster per image; with onnxruntime on a CPU they hardly are."""
    return not isinstance(predictor, OnnxPredictor)


@contextmanager
def shared_cores(predictor: ImagePredictor, num_threads: int) -> Iterator[None]:
    """Context in which each of `num_threads` scoring threads uses its share of the cores.

    Start the threads inside it: torch applies a thread count to the thread that sets it and to those started
    later. For the same reason leave the context on the thread that entered it.
    """
    share = max(1, available_cores() // num_threads)
    if isinstance(predictor, OnnxPredictor):
        before = predictor.session
        # All scoring threads share the threads of the session, and each of them uses one core itself.
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


def optimised(predictor: ImagePredictor) -> ImagePredictor:
    """A copy of the model that is optimised for speed; the original is not changed.

    Memory format channels last, in which convolutions on a CPU take two thirds of the time, and batch
    normalisation folded into them. Scores differ by rounding only.
    """
    if isinstance(predictor, OnnxPredictor):
        return copy(predictor)  # `shared_cores` replaces its session
    if _classifier(predictor) is None:
        return predictor
    import torch

    from kmcl.models.folding import fold_batch_norms
    from kmcl.serving.predictor import Predictor

    if not isinstance(predictor, Predictor):
        return predictor  # a subclass or wrapper with its own `score`
    fast = copy(predictor)
    # A copy, since folding may return its argument, and the memory format is changed in place.
    folded: Any = fold_batch_norms(deepcopy(predictor.classifier))
    fast.classifier = folded.to(memory_format=torch.channels_last)
    return fast


def runs_on_cpu(predictor: ImagePredictor) -> bool:
    return _device(predictor) == "cpu"


def _device(predictor: ImagePredictor) -> str:
    classifier = _classifier(predictor)
    return "cpu" if classifier is None else str(next(classifier.parameters()).device.type)


def _classifier(predictor: ImagePredictor) -> Any:
    """The classifier of a model in torch, else None."""
    return getattr(predictor, "classifier", None)
