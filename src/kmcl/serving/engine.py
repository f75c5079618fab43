"""The engine that computes a served model: torch, or onnxruntime, which is twice as fast on a CPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from kmcl.data.source_cache import cache_folder
from kmcl.errors import InputError
from kmcl.serving.check_images import random_vectors
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.onnx_predictor import OnnxPredictor
from kmcl.serving.predictions import Pixels, Samples
from kmcl.version import __version__

if TYPE_CHECKING:
    from kmcl.serving.predictor import Predictor

CONVERTERS = ("onnxruntime", "onnx", "onnxscript")
NUM_CHECK_IMAGES = 4


class ConvertedPredictor(OnnxPredictor):
    """A model in torch whose scores onnxruntime computes; resizing and saliency stay those of torch."""

    def __init__(self, path: Path, original: Predictor) -> None:
        super().__init__(path)
        self.classifier = original.classifier
        self.description = original.description
        self.source = original.source
        self._resize = original.resize

    def resize(self, image: Pixels) -> Pixels:
        return self._resize(image)


def with_engine(predictor: ImagePredictor, engine: Engine, say: Callable[[str], None]) -> ImagePredictor:
    """The model on the chosen engine; an exported model is returned unchanged.

    A conversion takes some seconds and is cached in the cache folder. With `auto` a model that cannot be
    converted stays in torch, and `say` is called with the reason.
    """
    if isinstance(predictor, OnnxPredictor):
        if engine == Engine.torch:
            raise InputError(f"{predictor.path}: an exported .onnx file needs the engine onnxruntime")
        return predictor
    from kmcl.serving.predictor import Predictor

    if engine == Engine.torch or not isinstance(predictor, Predictor):
        return predictor
    missing = [name for name in CONVERTERS if find_spec(name) is None]
    on_cpu = next(predictor.classifier.parameters()).device.type == "cpu"
    if engine == Engine.auto and (missing or not on_cpu):
        return predictor
    if missing:
        raise InputError(
            f"engine onnxruntime needs {', '.join(missing)}, not installed: pip install 'kmcl[export]'"
        )
    try:
        return _converted(predictor, say)
    except InputError as error:
        if engine == Engine.onnxruntime:
            raise
        say(f"the model stays in torch: {error}")
        return predictor


def _converted(predictor: Predictor, say: Callable[[str], None]) -> ConvertedPredictor:
    from kmcl.serving.export import export_model

    path = cache_folder() / "served" / f"{_digest(predictor)}.onnx"
    images = _check_images(predictor)
    if (cached := _cached(path, predictor, images)) is not None:
        return cached
    say(f"converting the model for onnxruntime, once; cached as {path}")
    export_model(predictor, path, images)
    return ConvertedPredictor(path, predictor)


def _cached(path: Path, predictor: Predictor, images: Samples) -> ConvertedPredictor | None:
    """The conversion of an earlier start, if its scores still agree with the model's."""
    from kmcl.serving.export import TOLERANCES

    try:
        cached = ConvertedPredictor(path, predictor)
        ours, theirs = cached.score(images), predictor.score(images)
    except InputError:
        return None
    for name, found in ours._asdict().items():
        expected = getattr(theirs, name)
        tolerance = TOLERANCES[name]
        if (found is None) != (expected is None):
            return None
        if found is not None and not np.allclose(found, expected, rtol=tolerance, atol=tolerance):
            return None
    return cached


def model_digest(predictor: ImagePredictor) -> str:
    """A hash of everything that the predictions depend on."""
    if isinstance(predictor, OnnxPredictor):
        return hashlib.sha256(predictor.path.read_bytes()).hexdigest()[:32]
    from kmcl.serving.predictor import Predictor

    if not isinstance(predictor, Predictor):
        raise TypeError(f"{type(predictor).__name__} has no digest")
    return _digest(predictor)


def _digest(predictor: Predictor) -> str:
    from kmcl.encoders.stages import digest_of

    encoder = predictor.classifier.encoder
    weights = digest_of(predictor.classifier.state_dict())
    facts = (
        __version__,
        predictor.description.to_json(),
        encoder.input_size,
        encoder.mean,
        encoder.std,
        weights,
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _check_images(predictor: Predictor) -> Samples:
    """Smooth random colours: as in photographs, neighbouring pixels are similar. Or random vectors."""
    size = predictor.image_size
    if predictor.feature_dim is not None:
        return random_vectors(predictor.feature_dim, NUM_CHECK_IMAGES)
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (NUM_CHECK_IMAGES, 8, 8, 3), dtype=np.uint8)
    smooth = [Image.fromarray(one).resize((size, size), Image.Resampling.BICUBIC) for one in coarse]
    return np.stack([np.asarray(one) for one in smooth])
