"""Trained models at work: prediction on anybody's images, and the forms in which models leave the machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kmcl.serving.image_predictor import ImagePrediction, ImagePredictor, LabelPrediction
    from kmcl.serving.loading import load, open_predictor
    from kmcl.serving.onnx_predictor import OnnxPredictor
    from kmcl.serving.predictor import Predictor

__all__ = [
    "ImagePrediction",
    "ImagePredictor",
    "LabelPrediction",
    "OnnxPredictor",
    "Predictor",
    "load",
    "open_predictor",
]

_HOMES = {
    "ImagePrediction": "kmcl.serving.image_predictor",
    "ImagePredictor": "kmcl.serving.image_predictor",
    "LabelPrediction": "kmcl.serving.image_predictor",
    "OnnxPredictor": "kmcl.serving.onnx_predictor",
    "Predictor": "kmcl.serving.predictor",
    "load": "kmcl.serving.loading",
    "open_predictor": "kmcl.serving.loading",
}


def __getattr__(name: str) -> object:
    """Import what is used when it is used: an exported model predicts where torch is not installed."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kmcl.serving' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    return value
