"""Grad-CAM against a hand-made one, for the three ways encoders lay out their features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from kmcl.encoders import open_encoder
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.explain.evidence import label_evidence
from kmcl.explain.saliency import enlarge, label_heat
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options.methods import KMCL_PRESETS, AslOptions
from kmcl.reports.explained import NamedImage, choose_labels, explain, overlay

pytest.importorskip("captum", reason="saliency needs captum")

LABELS = ("a", "b", "c")


def classifier_of(encoder: str, size: int, method: str = "kmcl") -> Classifier:
    torch.manual_seed(0)
    options = KMCL_PRESETS["paper"] if method == "kmcl" else AslOptions()
    classifier = build_classifier(ModelDescription(LabelRules(LABELS), options, encoder, size))
    for parameter in classifier.head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return classifier.eval()


def images_of(size: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (count, size, size, 3), dtype=np.uint8)


def reference_heat(classifier: Classifier, image: np.ndarray, label: int, tokens: bool) -> np.ndarray:
    """Grad-CAM by hand: hooks and autograd, one image at a time."""
    backbone = classifier.encoder.backbone
    kept = {}
    if tokens:
        layer = backbone.blocks[-1].norm1
        handle = layer.register_forward_hook(lambda module, inputs, output: kept.update(map=output))
        logits = classifier(torch.from_numpy(image[None]).permute(0, 3, 1, 2)).logits
        handle.remove()
    else:
        from kmcl.encoders import EncoderFeatures

        pixels = classifier.normalise(torch.from_numpy(image[None]).permute(0, 3, 1, 2))
        kept["map"] = backbone.forward_features(pixels)
        pooled = backbone.forward_head(kept["map"], pre_logits=True)
        logits = classifier.head(EncoderFeatures(pooled, kept["map"].flatten(2).transpose(1, 2))).logits
    (gradient,) = torch.autograd.grad(logits[0, label], kept["map"])
    activation, gradient = kept["map"][0].detach(), gradient[0]
    if tokens:
        side = int((activation.shape[0]) ** 0.5)
        activation, gradient = (
            tensor[-side * side :].T.reshape(-1, side, side) for tensor in (activation, gradient)
        )
    heat = torch.zeros(activation.shape[1:])
    for channel in range(len(activation)):
        heat += gradient[channel].mean() * activation[channel]
    heat = heat.clamp(min=0)
    return (heat / heat.max().clamp(min=1e-30)).numpy()


@pytest.mark.parametrize(
    ("encoder", "size", "tokens"),
    [("test_convnext", 160, False), ("test_resnet", 160, False), ("test_vit", 160, True)],
)
def test_heat_is_grad_cam(encoder, size, tokens):
    classifier, images = classifier_of(encoder, size), images_of(size)
    rows, labels = [0, 1, 1], [2, 0, 1]
    found = label_heat(classifier, images, rows, labels)
    for heat, row, label in zip(found, rows, labels, strict=True):
        np.testing.assert_allclose(heat, reference_heat(classifier, images[row], label, tokens), atol=1e-4)
    assert found.max() == 1
    assert found.std() > 0.01


def test_a_class_token_transformer_has_heat_although_its_last_patches_have_no_gradient():
    classifier, images = classifier_of("test_vit", 160), images_of(160)
    assert classifier.encoder.backbone.global_pool == "token"
    assert (label_heat(classifier, images, [0, 0, 0], [0, 1, 2]).max(axis=(1, 2)) > 0).any()


def test_small_images_use_an_earlier_finer_map():
    classifier, images = classifier_of("test_convnext", 32), images_of(32)
    assert classifier.encoder(classifier.normalise(torch.zeros(1, 3, 32, 32))).spatial.shape[1] == 1
    heat = label_heat(classifier, images, [0], [0])
    assert heat.shape[1] >= 4


@pytest.mark.parametrize(("size", "num_stages"), [(64, 4), (160, 2)])  # an earlier map, and the last one
def test_frozen_stages_and_taps_change_nothing(size, num_stages):
    images = images_of(size)
    plain = classifier_of("test_resnet", size)
    torch.manual_seed(0)
    encoder = open_encoder("test_resnet", image_size=size, frozen_stages=num_stages, taps=True)
    tapped = Classifier(encoder, plain.head).eval()
    expected = label_heat(plain, images, [0, 1], [2, 0])
    np.testing.assert_allclose(label_heat(tapped, images, [0, 1], [2, 0]), expected, atol=1e-5)
    assert expected.std() > 0.01


def test_a_users_own_module_is_explained_by_its_map():
    encoder = open_encoder(nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.ReLU()), image_size=64)
    head = classifier_of("test_resnet", 64).head
    head.kernel_mixture = type(head.kernel_mixture)(4, 3, "isotropic", init="small")
    nn.init.normal_(next(head.kernel_mixture.parameters()))
    heat = label_heat(Classifier(encoder, head).eval(), images_of(64), [0, 0, 1], [0, 1, 2])
    assert heat.shape == (3, 8, 8)
    assert heat.max() == 1


@pytest.mark.parametrize(("encoder", "size"), [("test_resnet", 64), ("test_convnext", 32), ("test_vit", 64)])
def test_several_labels_from_one_pass_have_the_same_heat(encoder, size):
    classifier, images = classifier_of(encoder, size), images_of(size, 3)
    found = label_evidence(classifier, images, [[0, 2], [1, 0], [2, 1]])
    expected = label_heat(classifier, images, [0, 0, 1, 1, 2, 2], [0, 2, 1, 0, 2, 1])
    np.testing.assert_allclose(found.heats.reshape(expected.shape), expected, atol=2e-4)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    np.testing.assert_allclose(found.logits, classifier(pixels).logits.detach().numpy(), atol=1e-4)


def test_the_classifier_is_left_as_it_was():
    classifier, images = classifier_of("test_resnet", 64), images_of(64)
    before = classifier(torch.from_numpy(images).permute(0, 3, 1, 2)).logits
    label_heat(classifier, images, [0], [0])
    assert "forward_features" not in vars(classifier.encoder.backbone)
    torch.testing.assert_close(classifier(torch.from_numpy(images).permute(0, 3, 1, 2)).logits, before)


def test_enlarged_heat_keeps_its_place():
    heat = np.zeros((4, 4))
    heat[1, 2] = 1
    large = enlarge(heat, 40, 80)
    assert large.shape == (40, 80)
    row, column = np.unravel_index(large.argmax(), large.shape)
    assert 10 <= row < 20
    assert 40 <= column < 60


def test_overlay_is_hot_where_the_heat_is():
    pixels = np.full((2, 2, 3), 100, dtype=np.uint8)
    heat = np.array([[1.0, 0.0], [0.0, 0.0]])
    mixed = overlay(pixels, heat).astype(int)
    assert mixed[0, 0].sum() > pixels[0, 0].sum() > mixed[1, 1].sum()


def test_labels_are_those_any_run_predicts_or_the_nearest():
    rules = LabelRules(("a", "b", "c"))
    first, second = (rules.decide(np.array([row])) for row in ([0.1, 0.9, 0.2], [0.6, 0.2, 0.1]))
    assert choose_labels([first, second], 0) == [1, 0]
    assert choose_labels([rules.decide(np.array([[0.1, 0.2, 0.4]]))] * 2, 0) == [2]


def test_explained_images_carry_probabilities_of_each_run_for_the_same_labels():
    classifiers = [classifier_of("test_convnext", 64), classifier_of("test_resnet", 64, "asl")]
    image = NamedImage("x.png", images_of(50, 1)[0], ("a",))
    (explained,) = explain(classifiers, [LabelRules(LABELS)] * 2, [image], wanted=("c", "a"))
    assert [[heat.label for heat in heats] for heats in explained.of_runs] == [["c", "a"]] * 2
    assert explained.of_runs[0][0].heat.shape == (50, 50)
    assert explained.of_runs[0][0].probability != explained.of_runs[1][0].probability
    with pytest.raises(InputError, match="no label 'd'"):
        explain(classifiers, [LabelRules(LABELS)] * 2, [image], wanted=("d",))
