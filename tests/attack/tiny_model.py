"""A small model with random weights that tell images apart."""

from __future__ import annotations

import torch

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options import read_options
from kmcl.serving import Predictor

LABELS = ("ant", "bee", "cat & dog", "emu")


def make_predictor() -> Predictor:
    torch.manual_seed(0)
    description = ModelDescription(
        rules=LabelRules(LABELS, thresholds=(0.4, 0.5, 0.6, 0.55)),
        method=read_options({"name": "kmcl"}),
        encoder="test_convnext",
        image_size=32,
    )
    classifier = build_classifier(description).eval()
    with torch.no_grad():
        for parameter in classifier.head.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return Predictor(classifier, description)
