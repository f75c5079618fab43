"""A model without weights: the score of a label is the mean of a colour."""

from __future__ import annotations

import numpy as np
from PIL import Image

from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.serving.image_predictor import BatchScores, ImagePredictor

HOSTILE = "<script>alert('x')</script>\"&'onerror=1"

RULES = LabelRules(("red", HOSTILE, "image"), thresholds=(0.5, 0.9, 0.1), temperatures=(2.0,) * 3)


class Brightness(ImagePredictor):
    """Scores the mean of each colour channel."""

    def __init__(self) -> None:
        super().__init__(RULES, 8)

    def score(self, images) -> BatchScores:
        score = (images.mean(axis=(1, 2)) / 255).astype(np.float32)
        return BatchScores(score, self.rules.calibrate(logit(score)), None)

    def resize(self, image):
        return np.asarray(Image.fromarray(image).resize((8, 8)))
