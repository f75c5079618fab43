"""Every post-hoc part with every method: it corrects, saves, loads, exports and folds."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.methods import METHODS
from kmcl.models.folder import FittedPart, ModelDescription, build_classifier, load_model, save_model
from kmcl.models.folding import fold_batch_norms
from kmcl.options import parse_parts, read_parts
from kmcl.posthoc import PARTS, PosthocPart, find_part
from random_inputs import make_targets
from small_options import small_options

NUM_IMAGES = 6


def likelihood(logits, targets):
    return -float(functional.binary_cross_entropy_with_logits(logits, targets.float()))


def with_parts(method: str, names=tuple(PARTS)):
    """A classifier whose parts are fitted to six images, its description, and the images."""
    torch.manual_seed(0)
    rules = LabelRules(("a", "b", "c"))
    description = ModelDescription(rules, small_options(method), "test_resnet", 32, frozen_stages=2)
    classifier = build_classifier(description, taps=True).eval()
    images, targets = torch.rand(NUM_IMAGES, 3, 32, 32), make_targets(NUM_IMAGES, 3)
    with torch.no_grad():
        encoded = classifier.encode(images)
        output = classifier.head(encoded)
        for name in names:
            part = find_part(name)(classifier.encoder, 3)
            observations = part.observe(encoded, output)
            part.fit(observations, targets, find_part(name).Options(), seed=0)
            part.tune(observations, torch.zeros(NUM_IMAGES, 3), lambda logits: likelihood(logits, targets))
            classifier.posthoc[name] = part
    held = tuple(FittedPart(name, part.sizes) for name, part in classifier.posthoc.items())
    return classifier, ModelDescription(rules, small_options(method), "test_resnet", 32, 3, 2, held), images


@pytest.mark.parametrize("method", METHODS)
def test_logits_are_those_of_the_head_and_the_corrections(method):
    classifier, _, images = with_parts(method)
    with torch.no_grad():
        encoded = classifier.encode(images)
        output = classifier.head(encoded)
        expected = output.logits
        for part in classifier.posthoc.values():
            observations = part.observe(encoded, output)
            if part.corrects_logits:
                correction = part(observations)
                assert correction.abs().max() > 1e-3
                expected = expected + correction
            if part.gives_unfamiliarity:
                unfamiliarity = part.unfamiliarity(observations, expected)
                summary = part.feature_summary(observations)
        found = classifier(images)
        torch.testing.assert_close(found.logits, expected)
        torch.testing.assert_close(found.unfamiliarity, unfamiliarity)
        torch.testing.assert_close(found.feature_summary, summary)
        assert classifier.summary_size == summary.shape[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_model_is_saved_and_loaded_with_its_parts(method, tmp_path):
    classifier, description, images = with_parts(method)
    save_model(tmp_path, classifier, description)
    loaded, read = load_model(tmp_path)
    assert read == description
    assert list(loaded.posthoc) == list(PARTS)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images).logits, classifier(images).logits)
        torch.testing.assert_close(loaded(images).unfamiliarity, classifier(images).unfamiliarity)
        torch.testing.assert_close(loaded(images).feature_summary, classifier(images).feature_summary)


@pytest.mark.parametrize("method", ["kmcl", "asl", "mulsupcon"])
def test_parts_are_exported_and_folded(method):
    classifier, _, images = with_parts(method)

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = classifier

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.classifier(images).probabilities

    with torch.no_grad():
        expected = classifier(images)
        free = {"images": {0: torch.export.Dim("batch", min=1, max=64)}}
        exported = torch.export.export(Scores(), (images[:2],), dynamic_shapes=free).module()
        torch.testing.assert_close(exported(images), expected.probabilities, atol=1e-5, rtol=1e-5)
        folded = fold_batch_norms(classifier)
        assert folded is not classifier
        torch.testing.assert_close(folded(images).logits, expected.logits, atol=1e-3, rtol=1e-3)


def test_files_with_impossible_parts_are_refused(tmp_path):
    classifier, description, _ = with_parts("asl")
    save_model(tmp_path, classifier, description)
    file = tmp_path / "model.json"
    whole = file.read_text()
    for old, new, message in (
        ('"kernel_vote"', '"kernel_vot"', r"post-hoc part must be one of .*got 'kernel_vot'"),
        ('"feature_dim": ', '"feature_dim": -', "feature_dim of kernel_vote must be 0 to"),
        ('"num_images": 6', '"num_images": 7', r"tensor 'posthoc\.\S+' has shape .*; the model needs"),
        ('"num_images": 6', '"num_imags": 6', "no such model can be built"),
    ):
        assert old in whole
        file.write_text(whole.replace(old, new))
        with pytest.raises(InputError, match=message):
            load_model(tmp_path)


def test_parts_are_spelled_on_the_command_line():
    assert parse_parts("none") == []
    assert parse_parts("frozen_gp, kernel_vote:max_images=9") == [
        {"name": "frozen_gp"},
        {"name": "kernel_vote", "max_images": "9"},
    ]
    assert [part.max_images for part in read_parts(parse_parts("kernel_vote:max_images=9+frozen_gp"))] == [
        9,
        8192,
    ]
    for text, message in (
        ("frozen", r"post-hoc part must be one of frozen_gp, kernel_vote, unfamiliarity; got 'frozen'"),
        ("frozen_gp,frozen_gp", "frozen_gp is given twice"),
        ("frozen_gp:max_images=0", "frozen_gp: max_images: .* greater than or equal to 1; got '0'"),
        ("frozen_gp:size=3", "frozen_gp has no option 'size'; it has max_images"),
        ("frozen_gp:size", "'size' is not OPTION=VALUE"),
    ):
        with pytest.raises(InputError, match=message):
            read_parts(parse_parts(text))


def test_a_part_that_says_itself_that_it_needs_frozen_stages_is_refused():
    with pytest.raises(TypeError, match="Old: needs_frozen_stages is an attribute of its Options"):
        type("Old", (PosthocPart,), {"needs_frozen_stages": True})
