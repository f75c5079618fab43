"""What the service answers is what the model says."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from kmcl.data.augmentation import resize
from kmcl.errors import InputError
from kmcl.evaluation.guarantee import Guarantee
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.probability_intervals import ProbabilityIntervals
from kmcl.explain.saliency import label_heat
from kmcl.posthoc import Unfamiliarity
from kmcl.serving import OnnxPredictor, Predictor, load
from kmcl.serving.export_metadata import ExportMetadata
from kmcl.serving.label_context import LabelContext
from kmcl.serving.service import schemas

from .conftest import LABELS, make_image, make_predictor
from .talking import send


def test_answers_are_those_of_kmcl_predict(client: TestClient, predictor: Predictor):
    contents = [make_image(seed) for seed in range(5)]
    answer = send(client, *contents)
    assert answer.status_code == 200, answer.text
    found = schemas.Predictions.model_validate_json(answer.content)
    assert [image.name for image in found.images] == ["0.png", "1.png", "2.png", "3.png", "4.png"]
    expected = predictor.predict([Image.open(io.BytesIO(content)) for content in contents])
    decisions = set()
    for image, one in zip(found.images, expected, strict=True):
        for label, wanted in zip(image.labels, one.labels, strict=True):
            assert (label.label, label.present) == (wanted.label, wanted.present)
            assert label.probability == pytest.approx(wanted.probability, abs=2e-6)
            assert label.score == pytest.approx(wanted.score, abs=2e-6)
            assert label.threshold == wanted.threshold
            assert (label.low, label.high) == pytest.approx((wanted.low, wanted.high), abs=2e-6)
            assert label.sigma == pytest.approx(wanted.sigma, abs=2e-6)
            assert label.present == (label.probability >= label.threshold)
            assert label.low < label.probability < label.high
            assert label.saliency is None
            decisions.add(label.present)
    assert decisions == {True, False}  # else the comparison would mean little


def test_probability_intervals_are_those_of_the_description(client: TestClient, predictor: Predictor):
    found = schemas.Predictions.model_validate_json(send(client, make_image(1)).content).images[0]
    intervals = ProbabilityIntervals.from_rows(predictor.rules.probability_intervals)
    values = {
        name: np.array([[getattr(label, name) for label in found.labels]])
        for name in ("score", "probability", "sigma")
    }
    low, high = intervals.interval(values["score"], values["probability"], values["sigma"])
    np.testing.assert_allclose(low[0], [label.low for label in found.labels], atol=1e-5)
    np.testing.assert_allclose(high[0], [label.high for label in found.labels], atol=1e-5)


def test_cooccurring_labels_go_with_present_labels(client: TestClient):
    contents = [make_image(seed) for seed in range(8)]
    found = schemas.Predictions.model_validate_json(send(client, *contents).content)
    ants = [image.labels[0] for image in found.images]
    for ant in ants:
        shares = [(one.label, one.share) for one in ant.cooccurring_labels]
        assert shares == ([("bee", 0.75), ("emu", 0.25)] if ant.present else [])
    labels = schemas.Labels.model_validate_json(client.get("/v1/labels").content)
    assert [label.label for label in labels.labels] == list(LABELS)
    assert [(one.label, one.share) for one in labels.labels[3].cooccurring_labels] == [("cat & dog", 0.3)]
    assert (labels.has_probability_intervals, labels.has_sigma, labels.has_saliency) == (True, True, True)
    assert (labels.image_size, labels.guarantee) == (32, None)
    # sigmoid(logit(0.4) / 0.5 - 1): the threshold of a score as one of a probability
    assert labels.labels[0].threshold == pytest.approx(1 / (1 + np.exp(-2 * np.log(2 / 3) + 1)), abs=1e-6)


def test_saliency_is_that_of_the_reports(client: TestClient, predictor: Predictor):
    content = make_image(3)
    answer = send(client, content, saliency_label=["emu", "bee"])
    labels = schemas.Predictions.model_validate_json(answer.content).images[0].labels
    assert [label.saliency is not None for label in labels] == [False, True, False, True]
    pixels = resize(np.array(Image.open(io.BytesIO(content)).convert("RGB")), 32, 32)
    heat = label_heat(predictor.classifier, pixels[None], [0, 0], [1, 3])
    assert heat.max() == 1
    for label, expected in ((labels[1], heat[0]), (labels[3], heat[1])):
        np.testing.assert_allclose(label.saliency.values, expected, atol=6e-4)
        assert (label.saliency.rows, label.saliency.columns) == expected.shape


def test_saliency_is_right_while_other_threads_explain_and_score(client_of, cores, predictor: Predictor):
    cores(4)
    client = client_of(max_requests=64)
    contents = {seed: make_image(seed, 32, 32) for seed in range(12)}
    expected = {}
    for seed, content in contents.items():
        pixels = np.array(Image.open(io.BytesIO(content)).convert("RGB"))[None]
        expected[seed] = label_heat(predictor.classifier, pixels, [0], [1])[0], predictor.score(pixels)

    def ask(number: int) -> tuple[int, schemas.Image]:
        seed, wanted = number % 12, {"saliency_label": ["bee"]} if number % 3 else {}
        answer = send(client, contents[seed], **wanted)
        return seed, schemas.Predictions.model_validate_json(answer.content).images[0]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(48)))
    assert sum(image.labels[1].saliency is not None for _, image in answers) == 32
    for seed, image in answers:
        heat, scores = expected[seed]
        assert [label.score for label in image.labels] == pytest.approx(scores.score[0], abs=2e-6)
        if image.labels[1].saliency is not None:
            np.testing.assert_allclose(image.labels[1].saliency.values, heat, atol=6e-4)


def test_saliency_of_the_present_labels(client: TestClient):
    images = schemas.Predictions.model_validate_json(
        send(client, *[make_image(seed) for seed in range(6)], saliency=True).content
    ).images
    for image in images:
        present = [label.present for label in image.labels]
        explained = [label.saliency is not None for label in image.labels]
        if any(present):
            assert explained == present
        else:
            margins = [label.probability - label.threshold for label in image.labels]
            assert explained.index(True) == int(np.argmax(margins))


def test_a_model_without_kernels_has_no_sigma(client_of):
    client = client_of(make_predictor("asl"))
    label = send(client, make_image(0)).json()["images"][0]["labels"][0]
    assert label["sigma"] is None
    assert label["low"] < label["probability"] < label["high"]
    assert client.get("/v1/labels").json()["has_sigma"] is False


def make_wary_predictor() -> Predictor:
    """A model with the post-hoc part, fitted to images such as `make_image` makes."""
    predictor = make_predictor()
    classifier = predictor.classifier
    part = Unfamiliarity(classifier.encoder, len(LABELS))
    contents = [make_image(seed, 32, 32) for seed in range(80)]
    pixels = np.stack([np.array(Image.open(io.BytesIO(content)).convert("RGB")) for content in contents])
    with torch.no_grad():
        encoded = classifier.encode(torch.from_numpy(pixels).permute(0, 3, 1, 2))
        output = classifier.head(encoded)
        observations = part.observe(encoded, output)
        part.fit_images(observations[:40], torch.zeros(40, len(LABELS)))
        part.tune(observations[40:], output.logits[40:], lambda logits: 0.0)
    classifier.posthoc["unfamiliarity"] = part
    return predictor


def test_unfamiliar_images_are_marked_and_counted(client_of):
    wary = make_wary_predictor()
    client = client_of(wary)
    contents = [make_image(seed, 32, 32) for seed in range(40, 80)]
    answers = [send(client, *part).content for part in (contents[:20], contents[20:])]
    answer = [image for one in answers for image in schemas.Predictions.model_validate_json(one).images]
    expected = wary.predict([Image.open(io.BytesIO(content)) for content in contents])
    for image, one in zip(answer, expected, strict=True):
        assert image.unfamiliarity == pytest.approx(one.unfamiliarity, abs=1e-3)
        assert image.unfamiliar == (image.unfamiliarity >= 0.95)
    marked = [image.unfamiliar for image in answer]
    assert 1 <= sum(marked) <= 3  # of 40 images of val
    lines = client.get("/metrics").text.splitlines()
    assert f"kmcl_unfamiliar_images_total {sum(marked)}.0" in lines
    assert f"kmcl_unfamiliar_share {sum(marked) / 40}" in lines
    assert client.get("/v1/labels").json()["has_unfamiliarity"] is True


def test_a_model_without_the_part_says_nothing_about_unfamiliar_images(client: TestClient):
    image = send(client, make_image(0)).json()["images"][0]
    assert (image["unfamiliarity"], image["unfamiliar"]) == (None, None)
    assert client.get("/v1/labels").json()["has_unfamiliarity"] is False
    assert "unfamiliar" not in client.get("/metrics").text


def test_decisions_that_are_left_to_a_person_are_marked(client: TestClient, client_of, predictor: Predictor):
    """Those of `kmcl predict --abstain`; at a probability that occurs, so that "above" is told from "at"."""
    contents = [make_image(seed, 32, 32) for seed in range(5)]
    expected = predictor.predict([Image.open(io.BytesIO(content)) for content in contents])
    errors = np.sort([label.error_probability for one in expected for label in one.labels])
    cutoff = float(errors[10])
    cautious = client_of(cutoff=cutoff)
    found = schemas.Predictions.model_validate_json(send(cautious, *contents).content).images
    for image, one in zip(found, expected, strict=True):
        wanted = [label.unsure for label in one.leaving(cutoff).labels]
        assert [label.unsure for label in image.labels] == wanted
    assert sum(label.unsure for image in found for label in image.labels) == 9  # of 20
    assert cautious.get("/v1/labels").json()["unsure_above"] == cutoff
    plain = send(client, *contents).json()["images"]
    assert {label["unsure"] for image in plain for label in image["labels"]} == {None}
    assert client.get("/v1/labels").json()["unsure_above"] is None


def test_an_exported_model_answers_the_same_without_saliency(client: TestClient, client_of, exported: Path):
    other = client_of(OnnxPredictor(exported))
    content = make_image(2, 32, 32)  # of the model's own size: the two resize slightly differently
    ours, theirs = (send(one, content).json()["images"][0]["labels"] for one in (client, other))
    for a, b in zip(ours, theirs, strict=True):
        for name in ("probability", "score", "sigma", "low", "high", "threshold"):
            assert a[name] == pytest.approx(b[name], abs=1e-4), name
        assert a["cooccurring_labels"] == b["cooccurring_labels"]
    assert other.get("/v1/labels").json()["has_saliency"] is False
    refusal = send(other, content, saliency=True)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (422, "no_saliency")


def test_a_model_without_calibration_and_cooccurrence():
    context = LabelContext.of(LabelRules(LABELS, thresholds=(0.4, 0.5, 0.6, 0.55)))
    assert (context.intervals, context.cooccurrence) == (None, ((),) * 4)
    np.testing.assert_allclose(context.rules.probability_thresholds, (0.4, 0.5, 0.6, 0.55))


def test_the_guarantee_of_the_thresholds_is_described(client_of, exported: Path):
    plain = make_predictor()
    guarantee = Guarantee("recall", 0.9, num_images=80, needed=9, not_given=("emu",))
    rules = replace(plain.rules, guarantee=guarantee)
    client = client_of(Predictor(plain.classifier, replace(plain.description, rules=rules)))
    described = schemas.Labels.model_validate_json(client.get("/v1/labels").content).guarantee
    assert described is not None
    assert (described.kind, described.level, described.confidence) == ("recall", 0.9, None)
    assert described.not_given == ["emu"]
    assert described.sentence == guarantee.in_words(LABELS)
    metadata = ExportMetadata(rules, 32, (0.5,), (0.5,), "kmcl", "test_convnext")
    assert ExportMetadata.from_json(metadata.to_json(), "x").rules.guarantee == guarantee
    with pytest.raises(InputError, match=r"has no predictions of val .* or train or export with --guarantee"):
        load(exported, guarantee="recall=0.9")


def test_formats_orientations_and_modes_are_read_as_elsewhere(client: TestClient):
    """JPEG, WebP, grey, transparent: all that `kmcl predict` reads from files of those formats."""
    grey = np.linspace(0, 255, 64 * 48).reshape(48, 64).astype(np.uint8)
    pictures = []
    for mode, file_format in (("L", "JPEG"), ("RGB", "WEBP"), ("RGBA", "PNG"), ("P", "GIF"), ("RGB", "TIFF")):
        buffer = io.BytesIO()
        Image.fromarray(grey).convert(mode).save(buffer, file_format)
        pictures.append(buffer.getvalue())
    answer = send(client, *pictures)
    assert answer.status_code == 200, answer.text
    probabilities = [[label["probability"] for label in image["labels"]] for image in answer.json()["images"]]
    np.testing.assert_allclose(probabilities, [probabilities[2]] * 5, atol=0.02)
    assert torch.tensor(probabilities).std() > 0.05
