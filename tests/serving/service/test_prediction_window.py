"""The sliding window against counting its last images, and its gauges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from starlette.testclient import TestClient

from kmcl.serving.service import metrics
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.prediction_window import PredictionWindow

from .conftest import LABELS, make_image
from .talking import send


def test_rates_are_those_of_the_last_images():
    rng = np.random.default_rng(0)
    present, unfamiliar = rng.random((57, 3)) < 0.4, rng.random(57) < 0.3
    window = PredictionWindow(3, num_images=20)
    assert math.isnan(window.unfamiliar_share)
    assert math.isnan(window.label_rate(0))
    first = 0
    for size in (1, 7, 30, 19):
        rows = slice(first, first + size)
        window.add(present[rows], unfamiliar[rows])
        first += size
        last = slice(max(0, first - 20), first)
        assert window.num_images == min(first, 20)
        assert window.unfamiliar_share == pytest.approx(unfamiliar[last].mean())
        rates = [window.label_rate(label) for label in range(3)]
        assert rates == pytest.approx(present[last].mean(axis=0))


def test_a_window_without_images_is_refused():
    with pytest.raises(ValueError, match="num_images must be at least 1; got 0"):
        PredictionWindow(3, num_images=0)


def test_gauges_show_the_window(monkeypatch):
    window = PredictionWindow(2)
    window.add(np.array([[True, False]] * 3 + [[True, True]]), np.array([False, False, True, False]))
    service = ServiceMetrics(lambda: 0)
    service.watch(window, ("cat", 'a "b"'), has_unfamiliarity=True)
    service.count_unfamiliar(3)
    text = service.text().decode()
    for line in (
        "kmcl_window_images 4.0",
        "kmcl_unfamiliar_share 0.25",
        'kmcl_label_rate{label="cat"} 1.0',
        'kmcl_label_rate{label="a \\"b\\""} 0.25',
        "kmcl_unfamiliar_images_total 3.0",
    ):
        assert line in text.splitlines()
    monkeypatch.setattr(metrics, "MOST_LABEL_SERIES", 1)
    many = ServiceMetrics(lambda: 0)
    many.watch(window, ("cat", "dog"), has_unfamiliarity=False)
    many.count_unfamiliar(1)
    assert "kmcl_label_rate" not in many.text().decode()
    assert "unfamiliar" not in many.text().decode()


def test_answered_images_are_counted(client: TestClient):
    answers = [send(client, make_image(seed), make_image(seed + 1)).json()["images"] for seed in range(3)]
    present = [[label["present"] for label in image["labels"]] for answer in answers for image in answer]
    lines = client.get("/metrics").text.splitlines()
    assert "kmcl_window_images 6.0" in lines
    for label, rate in zip(LABELS, np.mean(present, axis=0), strict=True):
        (line,) = [line for line in lines if line.startswith(f'kmcl_label_rate{{label="{label}"}}')]
        assert float(line.split()[-1]) == pytest.approx(rate)
