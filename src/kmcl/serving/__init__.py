"""Prediction with trained models, export to one file, the model hub, and the HTTP service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.loading import load
from kmcl.serving.onnx_predictor import OnnxPredictor
from kmcl.serving.prediction_run import Predicted
from kmcl.serving.predictions import ImagePrediction, LabelPrediction, NamedImage, PredictionList

if TYPE_CHECKING:
    from kmcl.serving.check_images import MapCost
    from kmcl.serving.export import Exported, ExportReport, WrittenExport, export_model
    from kmcl.serving.predictor import Predictor

__all__ = [
    "BatchScores",
    "ExportReport",
    "Exported",
    "ImagePrediction",
    "ImagePredictor",
    "LabelPrediction",
    "MapCost",
    "NamedImage",
    "OnnxPredictor",
    "Predicted",
    "PredictionList",
    "Predictor",
    "WrittenExport",
    "export_model",
    "load",
]

# An exported model predicts without torch, which these load.
__getattr__ = lazy_names(
    __name__,
    {
        "ExportReport": "kmcl.serving.export",
        "Exported": "kmcl.serving.export",
        "MapCost": "kmcl.serving.check_images",
        "Predictor": "kmcl.serving.predictor",
        "WrittenExport": "kmcl.serving.export",
        "export_model": "kmcl.serving.export",
    },
)
