"""The sliding window against counting its last images, and its gauges."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from starlette.testclient import TestClient

from kmcl.evaluation.drift import PredictedImages, find_drift
from kmcl.serving.service import metrics
from kmcl.serving.service.application import create_application
from kmcl.serving.service.drift_watch import SECONDS, DriftWatch
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.prediction_window import PredictionWindow

from .conftest import LABELS, make_image
from .talking import send


def test_rates_are_those_of_the_last_images():
    rng = np.random.default_rng(0)
    present, unfamiliar = rng.random((57, 3)) < 0.4, rng.random(57) < 0.3
    probabilities, values = rng.random((57, 3)), np.where(unfamiliar, 0.96, 0.5)
    features = rng.normal(size=(57, 2))
    window = PredictionWindow(3, num_images=20)
    assert math.isnan(window.unfamiliar_share)
    assert math.isnan(window.label_rate(0))
    assert math.isnan(window.feature_mean(0))
    first = 0
    for size in (1, 7, 30, 19):
        rows = slice(first, first + size)
        window.add(PredictedImages(probabilities[rows], present[rows], values[rows], features[rows]))
        first += size
        last = slice(max(0, first - 20), first)
        assert window.num_images == min(first, 20)
        assert window.unfamiliar_share == pytest.approx(unfamiliar[last].mean())
        rates = [window.label_rate(label) for label in range(3)]
        assert rates == pytest.approx(present[last].mean(axis=0))
        held = window.images()
        np.testing.assert_array_equal(held.probabilities, probabilities[last])
        np.testing.assert_array_equal(held.present, present[last])
        np.testing.assert_array_equal(held.unfamiliarity, values[last])
        np.testing.assert_array_equal(held.features, features[last])
        assert window.feature_mean(1) == pytest.approx(features[last, 1].mean())


def test_a_window_without_images_is_refused():
    with pytest.raises(ValueError, match="num_images must be at least 1; got 0"):
        PredictionWindow(3, num_images=0)


def test_gauges_show_the_window(monkeypatch):
    window = PredictionWindow(2)
    present = np.array([[True, False]] * 3 + [[True, True]])
    features = np.array([[1.0, 0.5], [2.0, 0.5], [3.0, 0.5], [4.0, 0.5]])
    window.add(PredictedImages(0.7 * present, present, np.array([0.1, 0.2, 0.97, 0.3]), features))
    service = ServiceMetrics(lambda: 0)
    service.watch(window, ("cat", 'a "b"'), has_unfamiliarity=True, num_features=2)
    service.count_unfamiliar(3)
    text = service.text().decode()
    for line in (
        "kmcl_window_images 4.0",
        "kmcl_unfamiliar_share 0.25",
        'kmcl_label_rate{label="cat"} 1.0',
        'kmcl_label_rate{label="a \\"b\\""} 0.25',
        "kmcl_unfamiliar_images_total 3.0",
        'kmcl_feature_mean{feature="1"} 2.5',
        'kmcl_feature_mean{feature="2"} 0.5',
    ):
        assert line in text.splitlines()
    monkeypatch.setattr(metrics, "MOST_LABEL_SERIES", 1)
    many = ServiceMetrics(lambda: 0)
    many.watch(window, ("cat", "dog"), has_unfamiliarity=False)
    many.count_unfamiliar(1)
    assert "kmcl_label_rate" not in many.text().decode()
    assert "unfamiliar" not in many.text().decode()
    assert "feature" not in many.text().decode()


def test_answered_images_are_counted(client: TestClient):
    answers = [send(client, make_image(seed), make_image(seed + 1)).json()["images"] for seed in range(3)]
    present = [[label["present"] for label in image["labels"]] for answer in answers for image in answer]
    lines = client.get("/metrics").text.splitlines()
    assert "kmcl_window_images 6.0" in lines
    for label, rate in zip(LABELS, np.mean(present, axis=0), strict=True):
        (line,) = [line for line in lines if line.startswith(f'kmcl_label_rate{{label="{label}"}}')]
        assert float(line.split()[-1]) == pytest.approx(rate)


def drawn(number: int, shift: float, seed: int, *, with_unfamiliarity: bool = True) -> PredictedImages:
    """Images of two labels, the first of which becomes more probable with `shift`."""
    rng = np.random.default_rng(seed)
    probabilities = rng.random((number, 2)) * 0.8
    probabilities[:, 0] += shift
    values = rng.random(number) ** (1 - shift) if with_unfamiliarity else None
    features = rng.normal(size=(number, 2)) + 5 * shift if with_unfamiliarity else None
    return PredictedImages(probabilities, probabilities > 0.5, values, features)


@pytest.mark.parametrize(("shift", "with_unfamiliarity"), [(0.0, True), (0.2, True), (0.2, False)])
def test_drift_gauges_are_the_checks_of_the_window(shift, with_unfamiliarity):
    val = drawn(300, 0.0, 0, with_unfamiliarity=with_unfamiliarity)
    new = drawn(400, shift, 1, with_unfamiliarity=with_unfamiliarity)
    window = PredictionWindow(2)
    window.add(new)
    labels = ("cat", "dog")
    watch, service = DriftWatch(labels, val, window), ServiceMetrics(lambda: 0)
    service.watch_drift(labels, val)
    assert "kmcl_drift_findings NaN" in service.text().decode().splitlines()
    found = asyncio.run(watch.update())
    expected = find_drift(labels, val, new)
    assert found == expected
    assert bool(expected.found) == (shift > 0)
    service.show_drift(found)
    lines = service.text().decode().splitlines()
    assert f"kmcl_drift_findings {len(expected.found):.1f}" in lines
    shown = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}
    for check in expected.checks:
        name = f'kmcl_drift_p_value{{check="{check.what}",label="{check.label or ""}"}}'
        assert shown[name] == pytest.approx(check.adjusted)
    assert shown['kmcl_val_label_rate{label="dog"}'] == pytest.approx(val.present[:, 1].mean())
    assert ("kmcl_val_unfamiliar_share" in shown) == with_unfamiliarity
    assert ('kmcl_drift_p_value{check="mean of feature 2",label=""}' in shown) == with_unfamiliarity
    if with_unfamiliarity:
        assert shown['kmcl_val_feature_mean{feature="2"}'] == pytest.approx(val.features[:, 1].mean())


def test_drift_is_compared_anew_only_for_new_images_and_now_and_then():
    times = iter((0.0, 1.0, SECONDS + 1, 3 * SECONDS))
    window = PredictionWindow(2)
    watch = DriftWatch(("cat", "dog"), drawn(300, 0.0, 0), window, lambda: next(times))
    window.add(drawn(20, 0.0, 1))
    first = asyncio.run(watch.update())
    window.add(drawn(400, 0.2, 2))
    assert asyncio.run(watch.update()) is first
    second = asyncio.run(watch.update())
    assert (first.num_new, second.num_new) == (20, 420)
    assert second.found
    assert asyncio.run(watch.update()) is second  # no new images


def test_the_service_shows_drift_from_val(predictor):
    val = PredictedImages(np.full((50, 4), 0.01), np.zeros((50, 4), dtype=bool), None)
    with TestClient(create_application(predictor, val=val)) as client:
        assert "kmcl_drift_findings NaN" in client.get("/metrics").text.splitlines()
        for seed in range(8):
            send(client, make_image(seed), make_image(seed + 1))
        lines = client.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("kmcl_drift_findings")]
    assert float(line.split()[-1]) >= len(LABELS)  # no image of val had any of these probabilities
