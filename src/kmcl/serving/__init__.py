"""Trained models at work: prediction on anybody's images."""

from kmcl.serving.predictor import ImagePrediction, LabelPrediction, Predictor, load

__all__ = ["ImagePrediction", "LabelPrediction", "Predictor", "load"]
