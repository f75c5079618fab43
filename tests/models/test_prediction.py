"""What predicting a split takes over from it."""

from __future__ import annotations

import numpy as np

from kmcl.data.arrays import ArrayImages
from kmcl.data.dataset import Split
from kmcl.data.loading import LoaderSettings, make_eval_loader
from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.models.prediction import predict_split
from kmcl.options.methods import KmclOptions


def test_predictions_have_the_groups_of_their_images() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 32, 32, 3), dtype=np.uint8)
    targets = np.eye(5, 2, dtype=np.int8)
    groups = np.array(["anna", "bert", "anna", "", "carl"])
    classifier = build_classifier(ModelDescription(LabelRules(("a", "b")), KmclOptions(), "test_resnet", 32))
    found = {}
    for name, split in (
        ("grouped", Split(ArrayImages(pixels, "x"), targets, groups=groups)),
        ("plain", Split(ArrayImages(pixels, "x"), targets)),
    ):
        loader = make_eval_loader(split, LoaderSettings(batch_size=2, image_size=32, num_workers=0))
        found[name] = predict_split(classifier, ("a", "b"), split, loader)
    assert found["grouped"].groups == ("anna", "bert", "anna", "", "carl")
    assert found["plain"].groups is None


def test_a_classifier_in_training_predicts_as_in_evaluation() -> None:
    """Batch normalisation would otherwise normalise by the batch, and learn from the images of val."""
    pixels = np.random.default_rng(0).integers(0, 255, (5, 32, 32, 3), dtype=np.uint8)
    split = Split(ArrayImages(pixels, "x"), np.eye(5, 2, dtype=np.int8))
    classifier = build_classifier(ModelDescription(LabelRules(("a", "b")), KmclOptions(), "test_resnet", 32))
    loader = make_eval_loader(split, LoaderSettings(batch_size=2, image_size=32, num_workers=0))
    expected = predict_split(classifier.eval(), ("a", "b"), split, loader)
    found = predict_split(classifier.train(), ("a", "b"), split, loader)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.features, expected.features)
    assert not classifier.training
