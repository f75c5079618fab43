from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation import bootstrap as resampling
from kmcl.evaluation.bootstrap import bootstrap_map, compare_map, compare_mean_map
from kmcl.evaluation.predictions import Predictions, sampling_units
from kmcl.evaluation.ranking import mean_average_precision


def resampled_maps(predictions: Predictions, seed: int, num_resamples: int) -> np.ndarray:
    """The same resamples the plain way: copy the drawn images and ask scikit-learn, label by label."""
    generator = np.random.default_rng(seed)
    groups = predictions.groups or tuple(map(str, range(len(predictions))))
    names = list(dict.fromkeys(groups))
    members = [np.flatnonzero(np.array(groups) == name) for name in names]
    maps = []
    for _ in range(num_resamples):
        drawn = np.concatenate([members[unit] for unit in generator.integers(len(names), size=len(names))])
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
    units = predictions.units
    (found,) = resampling.resample((predictions,), ((1.0,),), units, np.random.default_rng(7), 150)
    expected = resampled_maps(predictions, 7, 150)
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found.means, expected, atol=1e-12)


def test_a_labels_variance_is_over_the_resamples_that_have_it() -> None:
    """Rare labels are absent from some resamples, so that the labels' numbers differ."""
    targets = np.zeros((12, 4), np.int8)
    targets[:6, 0], targets[2:4, 1], targets[5, 2:] = 1, 1, 1
    predictions = from_arrays(np.random.default_rng(2).random((12, 4)), targets)
    units = sampling_units(None, 12)
    for num_resamples in (1, 2, 9):
        (found,) = resampling.resample(
            (predictions,), ((1.0,),), units, np.random.default_rng(1), num_resamples
        )
        for label, variance in enumerate(found.variances):
            alone = from_arrays(predictions.scores[:, [label]], targets[:, [label]])
            values = resampled_maps(alone, 1, num_resamples)
            values = values[~np.isnan(values)]
            assert variance == pytest.approx(values.var(ddof=1) if len(values) > 1 else 0)


def test_whole_groups_are_drawn() -> None:
    predictions = make_predictions(60, 3, seed=3, prevalence=0.15)
    groups = tuple(f"patient{index // 4}" for index in range(60))
    grouped = replace(predictions, groups=groups)
    found = bootstrap_map(grouped, np.random.default_rng(5), num_resamples=80)
    samples = resampled_maps(grouped, 5, 80)
    assert found.num_groups == 15
    assert found.bias == pytest.approx(np.nanmean(samples) - found.estimate)
    assert bootstrap_map(predictions, np.random.default_rng(5), num_resamples=80).num_groups is None


def test_an_image_without_a_group_is_drawn_by_itself() -> None:
    units = sampling_units(("a", "", "b", "a", ""), 5)
    assert units.num_units == 4
    assert units.of_image.tolist() == [0, 1, 2, 0, 3]
    predictions = make_predictions(40, 3)
    alone = replace(predictions, groups=("",) * 40)
    found, plain = (bootstrap_map(each, np.random.default_rng(0), 50) for each in (alone, predictions))
    assert replace(found, num_groups=None) == plain


def test_copies_of_images_in_a_group_do_not_shorten_the_interval() -> None:
    once = make_predictions(80, 3)
    groups = once.names
    parts = {name: np.repeat(getattr(once, name), 5, axis=0) for name in ("scores", "targets", "sigma")}
    names = tuple(f"{name}-{copy}" for name in once.names for copy in range(5))
    copied = replace(once, names=names, **parts)
    intervals = [
        bootstrap_map(each, np.random.default_rng(0), 300)
        for each in (once, copied, replace(copied, groups=tuple(name for name in groups for _ in range(5))))
    ]
    widths = [each.high - each.low for each in intervals]
    assert widths[1] < 0.6 * widths[0]
    # The same units are drawn; average precision differs slightly because the copies are ties.
    assert widths[2] == pytest.approx(widths[0], rel=0.15)


def test_the_interval_of_one_label_by_hand() -> None:
    predictions = make_predictions(100, 1)
    found = bootstrap_map(predictions, np.random.default_rng(3), num_resamples=200, level=0.9)
    samples = resampled_maps(predictions, 3, 200)
    positives = predictions.positive.sum()
    bias = samples.mean() - mean_average_precision(predictions)
    assert found.estimate == mean_average_precision(predictions)
    assert found.bias == pytest.approx(bias)
    assert found.degrees_of_freedom == pytest.approx(positives - 1)
    error = samples.std(ddof=1) * np.sqrt(positives / (positives - 1))
    assert found.standard_error == pytest.approx(error)
    centre = found.estimate - bias
    reach = stats.t.ppf(0.95, positives - 1) * error / (centre * (1 - centre))
    limits = [1 / (1 + np.exp(-np.log(centre / (1 - centre)) - sign * reach)) for sign in (-1, 1)]
    assert (found.low, found.high) == pytest.approx(limits)
    assert found.low < found.estimate < found.high


def test_freedom_of_several_labels_is_that_of_welch_and_satterthwaite() -> None:
    predictions = make_predictions(100, 3)
    found = bootstrap_map(predictions, np.random.default_rng(3), num_resamples=40)
    variances = np.array(
        [
            resampled_maps(from_arrays(scores[:, None], targets[:, None]), 3, 40).var(ddof=1)
            for scores, targets in zip(predictions.scores.T, predictions.targets.T, strict=True)
        ]
    )
    positives = predictions.positive.sum(axis=0)
    expected = variances.sum() ** 2 / (variances**2 / (positives - 1)).sum()
    assert found.degrees_of_freedom == pytest.approx(expected)
    factor = np.sqrt((variances * positives / (positives - 1)).sum() / variances.sum())
    assert found.standard_error == pytest.approx(factor * resampled_maps(predictions, 3, 40).std(ddof=1))


def test_no_interval_passes_0_or_1_and_each_contains_its_estimate() -> None:
    for seed in range(60):
        small = make_predictions(25, 3, seed=seed, prevalence=0.15, signal=seed % 3)
        found = bootstrap_map(small, np.random.default_rng(seed), num_resamples=60)
        if np.isnan(found.estimate):
            continue
        assert 0 <= found.low <= found.estimate <= found.high <= 1
        assert found.high - found.low > 0.01


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = mean_average_precision(make_predictions(60_000, 3, prevalence=0.3, seed=99))
    covered = 0
    for seed in range(100):
        predictions = make_predictions(150, 3, prevalence=0.3, seed=seed)
        found = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples=200, level=0.8)
        covered += found.low <= truth <= found.high
    # Eighty expected; four standard deviations of a binomial are sixteen.
    assert 64 <= covered <= 96


def test_intervals_of_rare_labels_are_long_enough() -> None:
    truth = mean_average_precision(make_predictions(60_000, 3, prevalence=0.05, signal=0.8, seed=99))
    covered = 0
    for seed in range(150):
        predictions = make_predictions(150, 3, prevalence=0.05, signal=0.8, seed=seed)
        found = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples=100)
        covered += found.low <= truth <= found.high
    # 142 expected; percentiles shifted to the estimate covered 127.
    assert covered >= 137


def test_the_same_seed_gives_the_same_interval_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = make_predictions(100, 4)
    first = bootstrap_map(predictions, np.random.default_rng(0), 100)
    monkeypatch.setattr(resampling, "_RESAMPLES_AT_ONCE", 7)
    second = bootstrap_map(predictions, np.random.default_rng(0), 100)
    # Sums over blocks round differently.
    for name, value in asdict(replace(first, num_groups=0)).items():
        assert asdict(replace(second, num_groups=0))[name] == pytest.approx(value, rel=1e-9)
    assert bootstrap_map(predictions, np.random.default_rng(1), 100).low != pytest.approx(first.low, rel=1e-6)


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
    error, freedom = found.difference.standard_error, found.difference.degrees_of_freedom
    factor = error / differences.std(ddof=1)
    assert 1 < factor < 1.2
    centre = 2 * found.difference.estimate - differences.mean()
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(centre) / error, freedom))
    reach = stats.t.ppf(0.975, freedom) * error
    assert (found.difference.low, found.difference.high) == pytest.approx((centre - reach, centre + reach))


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
    assert found.high == found.estimate == 1
    # One of one: Clopper and Pearson's lower limit.
    assert found.low == pytest.approx(0.025)
    nothing = bootstrap_map(from_arrays([[0.5]], [[0]]), np.random.default_rng(0), 10)
    assert np.isnan(nothing.low)
    assert json.loads(json.dumps(nothing.to_json(), allow_nan=False))["low"] is None


def test_a_perfect_ranking_has_the_lower_limit_of_its_positives() -> None:
    perfect = from_arrays([[0.9]] * 10 + [[0.1]] * 90, [[1]] * 10 + [[0]] * 90)
    found = bootstrap_map(perfect, np.random.default_rng(0), num_resamples=50)
    assert (found.low, found.high) == (pytest.approx(stats.beta.ppf(0.025, 10, 1)), 1)


def test_the_lower_limit_of_several_perfect_labels_is_that_of_their_harmonic_mean() -> None:
    scores = np.where(np.arange(40) < 4, 0.9, 0.1)
    other = np.where(np.arange(40) < 20, 0.8, 0.2)
    perfect = from_arrays(np.stack([scores, other], axis=1), np.stack([scores > 0.5, other > 0.5], axis=1))
    found = bootstrap_map(perfect, np.random.default_rng(0), num_resamples=50, level=0.9)
    assert found.low == pytest.approx(0.05 ** ((1 / 4 + 1 / 20) / 2))
    assert (found.estimate, found.high, found.standard_error) == (1, 1, 0)
    assert np.isnan(found.degrees_of_freedom)


def test_a_p_value_is_not_below_what_the_resamples_can_tell() -> None:
    good = make_predictions(200, 2, signal=3)
    bad = replace(good, scores=1 - good.scores)
    found = compare_map(good, bad, np.random.default_rng(0), num_resamples=39)
    assert found.p_value == pytest.approx(2 / 40)
    assert 0.3 < found.difference.low < found.difference.estimate < found.difference.high <= 1
    json.dumps(found.to_json(), allow_nan=False)


def test_a_thousand_resamples_and_95_percent_unless_given() -> None:
    small = make_predictions(30, 1)
    compared = compare_map(small, small, np.random.default_rng(0))
    several = compare_mean_map([small], [small], np.random.default_rng(0))
    for found in (bootstrap_map(small, np.random.default_rng(0)), compared.first, several.difference):
        assert (found.num_resamples, found.level) == (1000, 0.95)


@pytest.mark.parametrize(("positives", "freedom"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_freedom_and_error_of_few_positives(positives: int, freedom: int) -> None:
    targets = np.zeros((40, 1), np.int8)
    targets[::9][:positives] = 1
    predictions = from_arrays(np.random.default_rng(1).random((40, 1)), targets)
    found = bootstrap_map(predictions, np.random.default_rng(0), num_resamples=60)
    samples = resampled_maps(predictions, 0, 60)
    assert found.degrees_of_freedom == pytest.approx(freedom)
    assert found.num_undefined == np.isnan(samples).sum()
    error = np.nanstd(samples, ddof=1) * np.sqrt(positives / freedom)
    assert found.standard_error == pytest.approx(error)


def test_two_resamples_have_a_spread() -> None:
    predictions = make_predictions(100, 1)
    found = bootstrap_map(predictions, np.random.default_rng(3), num_resamples=2)
    positives = predictions.positive.sum()
    error = resampled_maps(predictions, 3, 2).std(ddof=1) * np.sqrt(positives / (positives - 1))
    assert found.standard_error == pytest.approx(error)


def test_an_estimate_whose_bias_leads_beyond_1_has_an_interval_inside() -> None:
    """Both resamples are worse by more than what the estimate lacks."""
    predictions = make_predictions(60, 1, signal=1.8)
    estimate = mean_average_precision(predictions)
    seed = next(
        seed for seed in range(500) if 2 * estimate - resampled_maps(predictions, seed, 2).mean() > 1.001
    )
    found = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples=2)
    assert found.standard_error > 1e-4
    assert (found.low, found.high) == pytest.approx((0, 1))


def test_without_a_defined_resample_there_is_no_bias() -> None:
    predictions = from_arrays([[0.9], [0.95], [0.1]], [[1], [0], [0]])
    seed = next(seed for seed in range(20) if np.isnan(resampled_maps(predictions, seed, 1)[0]))
    found = bootstrap_map(predictions, np.random.default_rng(seed), num_resamples=1)
    assert (found.num_undefined, found.estimate, found.bias, found.standard_error) == (1, 0.5, 0, 0)
    assert (found.low, found.high) == pytest.approx((0.5 * 0.025, 1 - 0.5 * 0.025))


def test_one_resample_has_no_spread() -> None:
    found = bootstrap_map(make_predictions(30, 2), np.random.default_rng(0), num_resamples=1)
    assert found.standard_error == 0
    assert found.bias != 0
    assert found.low < found.estimate < found.high


def test_a_single_group_determines_nothing() -> None:
    first, second = (replace(make_predictions(30, 3, seed=seed), groups=("a",) * 30) for seed in (0, 1))
    second = replace(second, targets=first.targets)
    found = compare_map(first, second, np.random.default_rng(0), 20)
    assert (found.difference.low, found.difference.high, found.p_value) == (-1, 1, 1)
    assert found.first.low < 0.1
    assert found.first.high > 0.9


def test_groups_of_either_model_are_used_and_may_not_differ() -> None:
    plain = make_predictions(20, 3)
    grouped = replace(plain, groups=tuple("abcde" * 4))
    found = compare_map(plain, grouped, np.random.default_rng(0), 20)
    assert found.difference.num_groups == found.first.num_groups == 5
    with pytest.raises(InputError, match="groups differ: number 0 is 'a' in the first and 'z' in the second"):
        compare_map(grouped, replace(plain, groups=("z", *grouped.groups[1:])), np.random.default_rng(0), 20)


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


def retargeted_twice(predictions: Predictions) -> Predictions:
    targets = predictions.targets.copy()
    targets[[7, 4], [0, 1]] = 1 - targets[[7, 4], [0, 1]]
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
        (retargeted_twice, r"targets differ in 2 pairs, first for image 'image4\.jpg' and label 'label1'"),
        (ignoring, r"targets differ in 1 pairs, first for image 'image4\.jpg' and label 'label1'"),
    ],
)
def test_models_judged_on_different_things_are_not_compared(change, message: str) -> None:
    predictions = make_predictions(20, 3)
    with pytest.raises(InputError, match=message):
        compare_map(predictions, change(predictions), np.random.default_rng(0), 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_resamples": 0}, "num_resamples.*got 0"),
        ({"level": 1.0}, r"level must be in \(0, 1\), got 1"),
        ({"level": 0.0}, r"level must be in \(0, 1\), got 0"),
        ({"predictions": make_predictions(0, 3)}, "a bootstrap needs at least one image, got none"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bootstrap_map(
            **{"predictions": make_predictions(20, 3), "generator": np.random.default_rng(0)} | arguments
        )


def test_a_comparison_with_no_image_is_refused() -> None:
    with pytest.raises(InputError, match="a bootstrap needs at least one image, got none"):
        compare_map(make_predictions(0, 3), make_predictions(20, 3), np.random.default_rng(0), 10)


def test_means_over_seeds_are_compared_on_the_same_resamples() -> None:
    models = [make_predictions(60, 3, signal=signal) for signal in (1.0, 0.6, 0.2, 0.3, 0.4)]
    first, second = models[:2], models[2:]
    found = compare_mean_map(first, second, np.random.default_rng(4), 40)
    drawn = [resampled_maps(model, 4, 40) for model in models]
    samples = np.mean(drawn[:2], axis=0) - np.mean(drawn[2:], axis=0)
    estimates = [mean_average_precision(model) for model in models]
    estimate = np.mean(estimates[:2]) - np.mean(estimates[2:])
    assert found.difference.estimate == pytest.approx(estimate)
    assert found.difference.bias == pytest.approx(samples.mean() - estimate)
    assert found.difference.standard_error == pytest.approx(samples.std(ddof=1), rel=0.1)
    alone = compare_mean_map(first[:1], second[:1], np.random.default_rng(0), 100)
    assert alone == compare_map(first[0], second[0], np.random.default_rng(0), 100)
    with pytest.raises(InputError, match="at least one model on each side"):
        compare_mean_map(first, [], np.random.default_rng(0))
    with pytest.raises(InputError, match="at least one model on each side"):
        compare_mean_map([], second, np.random.default_rng(0))
