"""Saliency maps for the service, and which labels of a request get one."""

from __future__ import annotations

from copy import deepcopy
from importlib.util import find_spec
from threading import local
from typing import TYPE_CHECKING

import numpy as np

from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Mask
from kmcl.evaluation.ranking import Values
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.predictions import Pixels

if TYPE_CHECKING:
    from kmcl.models.classifier import Classifier

LABELS_PER_IMAGE = 5

Maps = list[dict[int, "Values"]]
"""For each image the G x G heat, 0 to 1, of some labels by their index."""


class Explainer:
    """Grad-CAM of a model's labels; available for a model in torch where captum is installed.

    Grad-CAM registers hooks on the model's layers, so each thread that explains has its own copy, while other
    threads score with the model.
    """

    def __init__(self, predictor: ImagePredictor) -> None:
        self._classifier = getattr(predictor, "classifier", None)
        self._of_thread = local()

    @property
    def is_available(self) -> bool:
        return self._classifier is not None and find_spec("captum") is not None

    def explain(
        self, images: Pixels, scores: BatchScores, rules: LabelRules, wanted: tuple[int, ...]
    ) -> Maps:
        """Maps of the wanted labels of every image; by default of up to five present labels, those furthest
        above their thresholds (of the label nearest to its threshold where none is present)."""
        from kmcl.explain.saliency import label_heat

        decided = rules.decide(scores.score, scores.probability)
        margins = decided.probabilities - decided.thresholds
        chosen = [wanted or choose_labels(*row) for row in zip(margins, decided.present, strict=True)]
        rows = [row for row, labels in enumerate(chosen) for _ in labels]
        flat = [label for labels in chosen for label in labels]
        heat = label_heat(self._own_classifier(), images, rows, flat)
        maps: Maps = [{} for _ in images]
        for row, label, one in zip(rows, flat, heat, strict=True):
            maps[row][label] = one
        return maps

    def _own_classifier(self) -> Classifier:
        if not hasattr(self._of_thread, "classifier"):
            self._of_thread.classifier = deepcopy(self._classifier)
        classifier: Classifier = self._of_thread.classifier
        return classifier


def choose_labels(margins: Values, present: Mask) -> tuple[int, ...]:
    """The present labels with the largest margins above their thresholds; else the nearest one."""
    order = np.argsort(-margins, kind="stable")
    return tuple(int(label) for label in order[:LABELS_PER_IMAGE] if present[label]) or (int(order[0]),)
