"""What is known of a model's labels beside their scores: thresholds, bands, company."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kmcl.data.companions import Companions, find_companions
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_bands import ProbabilityBands, fit_bands
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.temperature import logit
from kmcl.serving.image_predictor import ImagePredictor


@dataclass(frozen=True)
class LabelContext:
    """thresholds: of the scores, as `kmcl predict` uses them.

    probability_thresholds: the same decisions on the scale of the calibrated probabilities
    bands: None for a model that was not calibrated
    companions: for each label those that usually come along; empty where nothing is known
    """

    labels: tuple[str, ...]
    thresholds: Values
    probability_thresholds: Values
    bands: ProbabilityBands | None
    companions: Companions

    @classmethod
    def of(cls, predictor: ImagePredictor) -> LabelContext:
        """From what is stored with the model; for a run of before that, from its predictions on val."""
        stored: Any = getattr(predictor, "description", None) or getattr(predictor, "metadata", None)
        num_labels = len(predictor.labels)
        temperatures = np.array(getattr(stored, "temperatures", None) or (1.0,) * num_labels)
        biases = np.array(getattr(stored, "biases", None) or (0.0,) * num_labels)
        thresholds = np.array(getattr(stored, "thresholds", None) or (0.5,) * num_labels)
        rows, companions = getattr(stored, "bands", None), getattr(stored, "companions", None)
        bands = None if rows is None else ProbabilityBands.from_rows(rows)
        val = _val_predictions(predictor) if rows is None or companions is None else None
        if val is not None and rows is None and getattr(stored, "temperatures", None) is not None:
            bands = fit_bands(val, temperatures, biases)
        if val is not None and companions is None:
            companions = find_companions(val.targets)
        return cls(
            predictor.labels,
            thresholds,
            1 / (1 + np.exp(-(logit(thresholds) / temperatures + biases))),
            bands,
            companions or ((),) * num_labels,
        )


def _val_predictions(predictor: ImagePredictor) -> Predictions | None:
    folder: Path | None = getattr(predictor, "source", None)
    file = None if folder is None else folder / "predictions" / "val.npz"
    if file is None or not file.is_file():
        return None
    try:
        predictions = Predictions.load(file)
    except InputError:
        return None
    return predictions if predictions.labels == predictor.labels else None
