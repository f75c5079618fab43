"""Predictions made up for the tests: scores that know something of the targets."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from kmcl.evaluation.predictions import Predictions


def assert_equal_fields(found: Any, expected: Any) -> None:
    """Two dataclasses of one type have equal values, arrays among them."""
    assert type(found) is type(expected)
    for field in fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)


def make_predictions(
    num_images: int = 200,
    num_labels: int = 6,
    seed: int = 0,
    prevalence: float = 0.2,
    signal: float = 1.5,
    decimals: int | None = None,
) -> Predictions:
    """Random targets, and scores higher where the label is present. `decimals` rounds scores: ties."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((num_images, num_labels)) < prevalence).astype(np.int8)
    logits = generator.normal(size=targets.shape) + signal * (2 * targets - 1)
    scores = 1 / (1 + np.exp(-logits))
    if decimals is not None:
        scores = scores.round(decimals)
    sigma = generator.uniform(1, 2, size=targets.shape).astype(np.float32)
    return from_arrays(scores, targets, sigma=sigma)


def from_arrays(scores, targets, ignored=None, sigma=None) -> Predictions:
    scores = np.asarray(scores, dtype=np.float32)
    return Predictions(
        labels=tuple(f"label{index}" for index in range(scores.shape[1])),
        names=tuple(f"image{index}.jpg" for index in range(scores.shape[0])),
        scores=scores,
        targets=np.asarray(targets, dtype=np.int8),
        ignored=None if ignored is None else np.asarray(ignored, dtype=np.bool_),
        sigma=sigma,
    )


def with_gaps(predictions: Predictions, seed: int = 1) -> Predictions:
    """The same with one pair in seven unknown and one in seven ignored."""
    generator = np.random.default_rng(seed)
    draw = generator.integers(7, size=predictions.targets.shape)
    targets = np.where(draw == 0, -1, predictions.targets).astype(np.int8)
    return replace(predictions, targets=targets, ignored=draw == 1)
