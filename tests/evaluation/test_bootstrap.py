from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation import bootstrap
from kmcl.evaluation.bootstrap import bootstrap_map, compare_map, compare_mean_map
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision


def resampled_maps(predictions: Predictions, seed: int, num_resamples: int) -> np.ndarray:
    """The same resamples the plain way: copy the drawn images and ask scikit-learn, label by label."""
    generator = np.random.default_rng(seed)
    maps = []
    for _ in range(num_resamples):
        drawn = generator.integers(len(predictions), size=len(predictions))
        values = []
        for label in range(predictions.num_labels):
            there = drawn[predictions.evaluated[drawn, label]]
            truth = predictions.targets[there, label]
            if truth.any():
                values.append(average_precision_score(truth, predictions.scores[there, label]))
        maps.append(np.mean(values) if values else np.nan)
    return np.array(maps)


@pytest.mark.parametrize("decimals", [None, 1])
def test_weights_give_what_copied_images_give(decimals: int | None) -> None:
    # Few positives: labels fall out of resamples, sometimes all of them. Ties are many with one decimal.
    predictions = with_gaps(make_predictions(14, 3, seed=3, prevalence=0.1, signal=0.3, decimals=decimals))
    (samples,) = bootstrap._resample_map((predictions,), np.random.default_rng(7), 150)
    expected = resampled_maps(predictions, 7, 150)
    assert np.isnan(expected).any()
    np.testing.assert_allclose(samples, expected, atol=1e-12)


def test_the_interval_is_the_percentiles_moved_to_the_estimate() -> None:
    predictions = make_predictions(100, 4)
    found = bootstrap_map(predictions, np.random.default_rng(3), num_resamples=200, level=0.9)
    samples = resampled_maps(predictions, 3, 200)
    bias = samples.mean() - mean_average_precision(predictions)
    assert found.estimate == mean_average_precision(predictions)
    assert found.bias == pytest.approx(bias)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(samples, (0.05, 0.95)) - bias))
    assert found.standard_error == pytest.approx(samples.std(ddof=1))
    assert found.low < found.estimate < found.high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = mean_average_precision(make_predictions(60_000, 3, prevalence=0.3, seed=99))
    covered = 0
    for seed in range(100):
        predictions = make_predictions(150, 3, prevalence=0.3, seed=seed)
        found = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples=200, level=0.8)
        covered += found.low <= truth <= found.high
    # Eighty expected; four standard deviations of a binomial are sixteen.
    assert 64 <= covered <= 96


def test_the_same_seed_gives_the_same_interval_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = make_predictions(100, 4)
    first = bootstrap_map(predictions, np.random.default_rng(0), 100)
    monkeypatch.setattr(bootstrap, "_RESAMPLES_AT_ONCE", 7)
    second = bootstrap_map(predictions, np.random.default_rng(0), 100)
    assert first == second
    assert bootstrap_map(predictions, np.random.default_rng(1), 100) != first


def test_pairing_makes_a_small_steady_difference_visible() -> None:
    better = make_predictions(400, 4, seed=0)
    noise = np.random.default_rng(1).normal(size=better.scores.shape) * 0.05
    worse = replace(better, scores=np.clip(better.scores + noise, 0, 1).astype(np.float32))
    found = compare_map(better, worse, np.random.default_rng(2), num_resamples=300)
    assert found.difference.estimate == pytest.approx(found.first.estimate - found.second.estimate)
    assert found.difference.low > 0
    assert found.p_value < 0.02
    unpaired = np.hypot(found.first.standard_error, found.second.standard_error)
    assert found.difference.standard_error < 0.7 * unpaired
    opposite = compare_map(worse, better, np.random.default_rng(2), num_resamples=300)
    assert opposite.difference.estimate == -found.difference.estimate
    assert opposite.difference.low == pytest.approx(-found.difference.high)
    assert opposite.p_value == pytest.approx(found.p_value)


def test_both_models_see_the_same_images() -> None:
    first = make_predictions(60, 3, signal=0.6)
    noise = np.random.default_rng(1).normal(size=first.scores.shape) * 0.2
    second = replace(first, scores=np.clip(first.scores + noise, 0, 1).astype(np.float32))
    found = compare_map(first, second, np.random.default_rng(5), num_resamples=60)
    differences = resampled_maps(first, 5, 60) - resampled_maps(second, 5, 60)
    assert found.difference.standard_error == pytest.approx(differences.std(ddof=1))
    moved = differences - differences.mean() + found.difference.estimate
    on_the_other_side = min((moved < 0).sum(), (moved > 0).sum())
    assert on_the_other_side != min((differences < 0).sum(), (differences > 0).sum())
    assert 0 < on_the_other_side < 25
    assert found.p_value == pytest.approx(2 * (on_the_other_side + 1) / 61)


def test_a_model_does_not_differ_from_itself() -> None:
    predictions = make_predictions(50, 3)
    found = compare_map(predictions, predictions, np.random.default_rng(0), num_resamples=50)
    assert (found.difference.low, found.difference.high) == (0, 0)
    assert found.p_value == 1


def test_two_models_equally_good_rarely_differ() -> None:
    small = 0
    for seed in range(40):
        truth = make_predictions(150, 3, seed=seed)
        generator = np.random.default_rng(1000 + seed)
        one, other = (
            replace(
                truth,
                scores=(0.5 * truth.scores + 0.5 * generator.random(truth.scores.shape)).astype(np.float32),
            )
            for _ in range(2)
        )
        small += compare_map(one, other, generator, num_resamples=100).p_value < 0.1
    assert small <= 11


def test_resamples_that_define_nothing_are_left_out() -> None:
    predictions = from_arrays([[0.9], [0.5], [0.1]], [[1], [0], [0]])
    found = bootstrap_map(predictions, np.random.default_rng(0), num_resamples=200)
    assert 30 < found.num_undefined < 90
    assert found.low == found.high == found.estimate == 1
    nothing = bootstrap_map(from_arrays([[0.5]], [[0]]), np.random.default_rng(0), 10)
    assert np.isnan(nothing.low)
    assert json.loads(json.dumps(nothing.to_json(), allow_nan=False))["low"] is None


def relabelled(predictions: Predictions) -> Predictions:
    return replace(predictions, labels=("label0", "other", "label2"))


def renamed(predictions: Predictions) -> Predictions:
    return replace(predictions, names=(*predictions.names[:-1], "elsewhere.jpg"))


def shortened(predictions: Predictions) -> Predictions:
    parts = {name: getattr(predictions, name)[:-1] for name in ("names", "scores", "targets", "sigma")}
    return replace(predictions, **parts)


def retargeted(predictions: Predictions) -> Predictions:
    targets = predictions.targets.copy()
    targets[4, 1] = 1 - targets[4, 1]
    return replace(predictions, targets=targets)


def ignoring(predictions: Predictions) -> Predictions:
    ignored = np.zeros(predictions.targets.shape, np.bool_)
    ignored[4, 1] = True
    return replace(predictions, ignored=ignored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (relabelled, "labels differ: number 1 is 'label1' in the first and 'other' in the second"),
        (renamed, r"images differ: number 19 is 'image19\.jpg'.*'elsewhere\.jpg'"),
        (shortened, "images differ: 20 in the first and 19 in the second"),
        (retargeted, r"targets differ in 1 pairs, first for image 'image4\.jpg' and label 'label1'"),
        (ignoring, r"targets differ in 1 pairs, first for image 'image4\.jpg' and label 'label1'"),
    ],
)
def test_models_judged_on_different_things_are_not_compared(change, message: str) -> None:
    predictions = make_predictions(20, 3)
    with pytest.raises(InputError, match=message):
        compare_map(predictions, change(predictions), np.random.default_rng(0), 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"num_resamples": 0}, "num_resamples.*got 0"), ({"level": 1.0}, r"level must be in \(0, 1\), got 1")],
)
def test_impossible_arguments_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bootstrap_map(make_predictions(20, 3), np.random.default_rng(0), **arguments)


def test_means_over_seeds_are_compared_on_the_same_resamples() -> None:
    models = [make_predictions(60, 3, signal=signal) for signal in (1.0, 0.6, 0.2, 0.3, 0.4)]
    first, second = models[:2], models[2:]
    found = compare_mean_map(first, second, np.random.default_rng(4), 150)
    drawn = [resampled_maps(model, 4, 150) for model in models]
    samples = np.mean(drawn[:2], axis=0) - np.mean(drawn[2:], axis=0)
    estimates = [mean_average_precision(model) for model in models]
    estimate = np.mean(estimates[:2]) - np.mean(estimates[2:])
    bias = samples.mean() - estimate
    assert found.difference.estimate == pytest.approx(estimate)
    assert (found.difference.low, found.difference.high) == pytest.approx(
        tuple(np.quantile(samples, (0.025, 0.975)) - bias)
    )
    alone = compare_mean_map(first[:1], second[:1], np.random.default_rng(0), 100)
    assert alone == compare_map(first[0], second[0], np.random.default_rng(0), 100)
    with pytest.raises(InputError, match="at least one model on each side"):
        compare_mean_map(first, [], np.random.default_rng(0))
