"""Batch normalisation folded into convolutions: the same outputs, fewer layers, the original untouched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.models.folding import fold_batch_norms
from kmcl.options import read_options
from kmcl.posthoc.frozen_gp import FrozenFeatureGP


def make_classifier(
    encoder: str, method: str = "kmcl", image_size: int = 64, frozen_stages: int = 0
) -> Classifier:
    """Random weights; normalisations with statistics of images and affine weights that matter."""
    torch.manual_seed(0)
    description = ModelDescription(
        rules=LabelRules(("ant", "bee", "cat")),
        method=read_options({"name": method} | ({"kernel": "isotropic"} if method == "kmcl" else {})),
        encoder=encoder,
        image_size=image_size,
        frozen_stages=frozen_stages,
    )
    classifier = build_classifier(description, taps=frozen_stages > 0)
    with torch.no_grad():
        for norm in norms(classifier):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(std=0.3)
            norm.momentum = 1.0  # the statistics of the one batch below
        for parameter in classifier.head.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape))
        classifier.train()(torch.rand(8, 3, image_size, image_size))
    return classifier.eval()


def norms(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]


def images(size: int = 64) -> Tensor:
    return torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_a_gaussian_process_is_folded_too():
    classifier = make_classifier("resnet18", frozen_stages=3)
    many = torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    process = FrozenFeatureGP(classifier.encoder, 3)
    process.fit_images(process.statistics(classifier.encode(many).taps), torch.eye(8, 3, dtype=torch.int8))
    process.set_weight(1.0)
    classifier.posthoc["frozen_gp"] = process
    folded = fold_batch_norms(classifier)
    assert not norms(folded)
    torch.testing.assert_close(folded(images()).logits, classifier(images()).logits, rtol=1e-4, atol=1e-4)
    assert process(process.statistics(classifier.encode(images()).taps)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("encoder", "method", "num_left"),
    [
        ("tf_efficientnet_lite0", "kmcl", 0),  # its norms have an activation, its convolutions pad
        ("resnet18", "asl", 0),
        ("resnetv2_50", "kmcl", 17),  # normalises before it convolves: the first of a block stays
        ("tresnet_m", "asl", 0),
        ("small_convnet", "kmcl", 0),
        ("test_convnext", "kmcl", 0),
    ],
)
@torch.no_grad()
def test_outputs_stay_the_same(encoder: str, method: str, num_left: int):
    classifier = make_classifier(encoder, method)
    assert classifier(images()).logits.std() > 0.01  # else the comparison would mean little
    # In float32 tresnet_m's own rounding is 3e-4 with such weights.
    for dtype, tolerance in (
        (torch.float32, 1e-3 if encoder == "tresnet_m" else 1e-4),
        (torch.float64, 1e-9),
    ):
        classifier = classifier.to(dtype)
        folded = fold_batch_norms(classifier)
        assert folded is not classifier
        assert len(norms(folded)) == num_left
        ours, expected = folded(images().to(dtype)), classifier(images().to(dtype))
        assert (expected.sigma is None) == (method == "asl")
        for name in ("logits", "features", "sigma"):
            torch.testing.assert_close(
                getattr(ours, name), getattr(expected, name), rtol=tolerance, atol=tolerance
            )


@torch.no_grad()
def test_the_original_is_left_as_it_was():
    classifier = make_classifier("small_convnet").train()
    state = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    folded = fold_batch_norms(classifier)
    assert classifier.training
    assert not folded.training
    assert len(norms(classifier)) == 5
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in classifier.modules())
    for name, tensor in classifier.state_dict().items():
        assert torch.equal(tensor, state[name]), name


class UsedTwice(nn.Module):
    """A convolution whose output a normalisation takes, and something else too."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.convolution(images)
        return maps + self.norm(maps)


@pytest.mark.parametrize("head", ["random", "constant"])
def test_where_it_would_change_the_outputs_the_original_comes_back(head: str):
    classifier = make_classifier("small_convnet")
    twice = UsedTwice()
    twice.norm.running_mean.fill_(0.5)
    classifier.encoder.backbone.convolutions.insert(0, twice.eval())
    if head == "constant":  # its logits alone would not show it
        for parameter in classifier.head.parameters():
            nn.init.zeros_(parameter)
    assert fold_batch_norms(classifier) is classifier


def test_norms_that_keep_no_statistics_stay():
    classifier = make_classifier("small_convnet")
    convolutions = classifier.encoder.backbone.convolutions
    convolutions[1] = nn.BatchNorm2d(24, track_running_stats=False)
    folded = fold_batch_norms(classifier)
    assert len(norms(folded)) == 1
    with torch.no_grad():
        torch.testing.assert_close(folded(images()).logits, classifier(images()).logits, rtol=1e-4, atol=1e-4)
