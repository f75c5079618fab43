"""Every method: shapes, gradients, and one batch learned by heart."""

from __future__ import annotations

import json

import pytest
import torch

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.losses import asymmetric_loss
from kmcl.methods import METHODS, find_method
from kmcl.methods.output import HeadOutput
from kmcl.models.folder import ModelDescription, build_classifier, load_model, save_model
from kmcl.options import METHOD_OPTIONS, read_options
from kmcl.options.methods import KMCL_PRESETS, BceOptions, FocalOptions
from random_inputs import make_targets
from small_options import small_options

ENCODERS = {"convolutions": "test_convnext", "patches": "test_vit", "widened": "mobilenetv3_small_050"}


def make_classifier(method: str, encoder: str = "test_convnext"):
    torch.manual_seed(0)
    description = ModelDescription(LabelRules(("a", "b", "c")), small_options(method), encoder, 32)
    return build_classifier(description), description


@pytest.mark.parametrize("name", METHODS)
def test_one_batch_is_learned_by_heart(name):
    classifier, _ = make_classifier(name)
    method = find_method(name)
    images = torch.randint(
        0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    targets = make_targets(8, 3, seed=1)
    optimiser = torch.optim.Adam(classifier.parameters(), lr=3e-3)
    first = None
    positive = targets == 1
    is_learned = False
    for step in range(60):
        output = classifier.train()(images)
        terms = method.compute_loss(output, targets, small_options(name))
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
        first = first or terms.total.item()
        if step % 10 == 9 and terms.total.item() < 0.5 * first:
            scores = classifier.eval()(images).probabilities
            is_learned = bool(scores[positive].min() > scores[~positive].max())
        if is_learned:
            break
    assert output.logits.shape == (8, 3)
    assert is_learned


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_the_head_gets_a_gradient(name, encoder):
    classifier, _ = make_classifier(name, encoder)
    output = classifier(torch.rand(6, 3, 32, 32))
    assert output.logits.shape == (6, 3)
    assert output.features.ndim == 2
    find_method(name).compute_loss(output, make_targets(6, 3), small_options(name)).total.backward()
    for parameter_name, parameter in classifier.head.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", METHODS)
def test_unknown_labels_take_no_part(name):
    """A batch has the loss, and its images the gradients, they have without its unannotated images."""
    classifier, _ = make_classifier(name)
    images, targets = torch.rand(7, 3, 32, 32), make_targets(7, 3, unknown=0.2, seed=2)
    targets[[2, 5]] = -1
    known = targets.ne(-1).any(dim=1)
    losses, gradients = [], []
    for rows in (torch.ones(7, dtype=torch.bool), known):
        output = classifier.eval()(images[rows])
        total = find_method(name).compute_loss(output, targets[rows], small_options(name)).total
        losses.append(total)
        trained = output.branches or (output.logits,)
        gradients.append(torch.stack(torch.autograd.grad(total, trained)).sum(dim=0))
    torch.testing.assert_close(*losses)
    assert (gradients[0][targets == -1] == 0).all()
    torch.testing.assert_close(gradients[0][known], gradients[1])


def test_terms_are_named():
    classifier, _ = make_classifier("kmcl")
    output, targets = classifier(torch.rand(4, 3, 32, 32)), make_targets(4, 3)
    terms = find_method("kmcl").compute_loss(output, targets, small_options("kmcl"))
    assert list(terms.named) == ["reconstruction", "classification", "contrastive"]
    of_mixture, of_queries = output.branches
    torch.testing.assert_close(of_mixture, output.mixture.logits)
    torch.testing.assert_close(output.logits, (of_mixture + of_queries) / 2)
    expected = (asymmetric_loss(of_mixture, targets) + asymmetric_loss(of_queries, targets)) / 2
    torch.testing.assert_close(terms.named["classification"], expected)


def test_the_paper_s_head_is_the_mixture_alone():
    description = ModelDescription(LabelRules(("a", "b", "c")), KMCL_PRESETS["paper"], "test_convnext", 32)
    classifier = build_classifier(description)
    output, targets = classifier(torch.rand(4, 3, 32, 32)), make_targets(4, 3)
    assert not output.branches
    assert {name.split(".")[0] for name, _ in classifier.head.named_parameters()} == {"kernel_mixture"}
    assert output.logits is output.mixture.logits
    terms = find_method("kmcl").compute_loss(output, targets, KMCL_PRESETS["paper"])
    torch.testing.assert_close(terms.named["classification"], asymmetric_loss(output.logits, targets))


def test_uint8_and_float_images_are_normalised_alike():
    classifier, _ = make_classifier("asl")
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (classifier.encoder.mean, classifier.encoder.std))
    expected = (images / 255 - mean) / std
    torch.testing.assert_close(classifier.normalise(images), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(classifier.normalise(images / 255), expected, atol=1e-5, rtol=1e-5)


def test_grey_classifier_takes_one_of_three_equal_channels():
    description = ModelDescription(
        LabelRules(("a", "b")), small_options("asl"), "test_convnext", 32, in_channels=1
    )
    classifier = build_classifier(description).eval()
    grey = torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(classifier(grey).logits, classifier(grey.expand(-1, 3, -1, -1)).logits)


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_model_gives_the_same_scores(name, tmp_path):
    classifier, description = make_classifier(name)
    save_model(tmp_path, classifier.eval(), description)
    loaded, read = load_model(tmp_path)
    assert read == description
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(loaded(images).logits, classifier(images).logits)


def test_broken_model_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"is no model: it has no model\.json"):
        load_model(tmp_path)
    classifier, description = make_classifier("asl")
    save_model(tmp_path, classifier, description)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model\.safetensors: is no file of weights"):
        load_model(tmp_path)
    weights.unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: there is no such file"):
        load_model(tmp_path)
    with torch.no_grad():
        classifier.head.logits.weight[0, 0] = torch.nan
    save_model(tmp_path, classifier, description)
    with pytest.raises(InputError, match=r"'head\.logits\.weight' holds values that are not finite"):
        load_model(tmp_path)
    other, _ = make_classifier("kmcl")
    save_model(tmp_path, other, description)
    with pytest.raises(InputError, match=r"tensor 'head\..*has shape"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(InputError, match=r"model\.json: is not a model of the format kmcl-model-2"):
        load_model(tmp_path)


def test_an_unknown_method_is_named():
    message = r"method must be one of kmcl, asl, bce, .*; got 'asll' \(did you mean 'asl'\?\)"
    with pytest.raises(InputError, match=message):
        find_method("asll")


@pytest.mark.parametrize(
    ("method", "option", "value", "message"),
    [
        ("csra", "attention_heads", 0, "attention_heads: .* greater than or equal to 1; got 0"),
        ("mlgcn", "graph_threshold", 1.5, "graph_threshold: .* less than or equal to 1; got 1.5"),
        ("q2l", "decoder_width", 100, "decoder_width: .* multiple of 8; got 100"),
        ("asl", "kernel", "gaussian", "method asl has no option kernel; it is an option of kmcl"),
        ("bce", "temperature", 1, "method bce has no option temperature; it is an option of kmcl, mulsupcon"),
        ("kmcl", "kernle", "gaussian", r"method kmcl has no option kernle \(did you mean 'kernel'\?\)"),
    ],
)
def test_impossible_options_are_refused(method, option, value, message):
    with pytest.raises(InputError, match=message):
        read_options({"name": method, option: value})


@pytest.mark.parametrize("name", METHODS)
def test_a_model_holds_its_own_options_and_no_others(name, tmp_path):
    classifier, description = make_classifier(name)
    save_model(tmp_path, classifier, description)
    saved = json.loads((tmp_path / "model.json").read_text())["method"]
    assert set(saved) == {"name", *METHOD_OPTIONS[name].option_names()}


def test_an_option_that_a_model_does_not_name_has_its_default(tmp_path):
    classifier, description = make_classifier("asl")
    save_model(tmp_path, classifier, description)
    file = tmp_path / "model.json"
    values = json.loads(file.read_text())
    del values["method"]["negative_focus"]
    file.write_text(json.dumps(values))
    assert load_model(tmp_path)[1].method.negative_focus == 4.0


def test_focal_and_bce_equal_their_formulas():
    logits, targets = torch.randn(5, 4, dtype=torch.float64), make_targets(5, 4, unknown=0.2)
    output = HeadOutput(logits, logits, None)
    probability = logits.sigmoid()
    focal, bce = 0.0, 0.0
    for image, label in (targets != -1).nonzero().tolist():
        right = probability[image, label] if targets[image, label] == 1 else 1 - probability[image, label]
        bce -= right.log() / 5
        focal -= (1 - right) ** 3 * right.log() / 5
    torch.testing.assert_close(
        find_method("focal").compute_loss(output, targets, FocalOptions(focal_focus=3)).total, focal
    )
    torch.testing.assert_close(find_method("bce").compute_loss(output, targets, BceOptions()).total, bce)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_exports_with_a_free_batch_size(name):
    classifier = make_classifier(name)[0].eval()

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = classifier

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.classifier(images).probabilities

    images = torch.rand(3, 3, 32, 32)
    free = {"images": {0: torch.export.Dim("batch", min=1, max=64)}}
    exported = torch.export.export(Scores(), (images[:2],), dynamic_shapes=free).module()
    torch.testing.assert_close(exported(images), classifier(images).probabilities)
