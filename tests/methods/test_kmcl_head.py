"""The default head of KMCL, without kernels: a linear branch and label queries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kmcl.evaluation.label_rules import LabelRules
from kmcl.losses import asymmetric_loss
from kmcl.methods import find_method
from kmcl.models.folder import ModelDescription, build_classifier, load_model, save_model
from kmcl.options import read_options
from kmcl.options.methods import KMCL_PRESETS, KmclOptions
from random_inputs import make_targets

NUM_LABELS = 3


def described(query_width: int) -> ModelDescription:
    options = read_options({"name": "kmcl", "query_width": query_width})
    return ModelDescription(LabelRules(("a", "b", "c")), options, "test_convnext", 32)


def scored(query_width: int):
    torch.manual_seed(0)
    classifier = build_classifier(described(query_width)).eval()
    images = torch.rand(4, 3, 32, 32)
    return classifier, images, classifier(images)


@pytest.mark.parametrize("query_width", [0, 16])
def test_branches_and_their_loss(query_width: int):
    """Logits are the mean of the linear branch and the queries; the loss is the mean of Eq. 6 of each."""
    classifier, images, output = scored(query_width)
    encoded = classifier.encode(images)
    head = classifier.head.linear.logits
    branches = [encoded.pooled @ head.weight.T + head.bias]
    if query_width:
        branches.append(classifier.head.query_branch(encoded.spatial))
    torch.testing.assert_close(output.logits, sum(branches) / len(branches))
    targets = make_targets(4, NUM_LABELS)
    options = classifier_options(query_width)
    terms = find_method("kmcl").compute_loss(output, targets, options)
    expected = sum(asymmetric_loss(logits, targets) for logits in branches) / len(branches)
    torch.testing.assert_close(terms.total, expected)
    assert list(terms.named) == ["classification"]


def classifier_options(query_width: int) -> KmclOptions:
    options = described(query_width).method
    assert isinstance(options, KmclOptions)
    return options


def test_the_classification_weight_acts():
    _, _, output = scored(16)
    targets = make_targets(4, NUM_LABELS)
    loss = find_method("kmcl").compute_loss
    half = classifier_options(16).model_copy(update={"classification_weight": 0.5})
    full = loss(output, targets, classifier_options(16))
    torch.testing.assert_close(loss(output, targets, half).total, full.total / 2)


def test_every_parameter_gets_a_gradient():
    classifier, _, output = scored(16)
    targets = make_targets(4, NUM_LABELS)
    find_method("kmcl").compute_loss(output, targets, classifier_options(16)).total.backward()
    without = [name for name, value in classifier.head.named_parameters() if not value.grad.abs().sum() > 0]
    assert without == []


def test_it_has_no_kernels(tmp_path: Path):
    classifier, images, output = scored(16)
    assert output.mixture is None
    assert output.sigma is None
    assert not [name for name in classifier.state_dict() if "variances" in name or "means" in name]
    save_model(tmp_path / "model", classifier, described(16))
    loaded, description = load_model(tmp_path / "model")
    assert isinstance(description.method, KmclOptions)
    assert not description.method.has_kernels
    torch.testing.assert_close(loaded(images).logits, classifier.eval()(images).logits)


def test_presets_differ_from_the_default_as_they_say():
    default, kernels, paper = (KMCL_PRESETS[name] for name in ("default", "kernels", "paper"))
    assert kernels == default.model_copy(update={"kernel": "isotropic"})
    assert not default.has_kernels
    assert paper.has_kernels
    assert paper.query_width == 0
