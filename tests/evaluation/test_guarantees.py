"""Guaranteed thresholds: brute force, simulated exchangeable data, and what cannot be given."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.by_rules import rates_by_rules, with_guarantee
from kmcl.evaluation.decisions import decide
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.guarantees import (
    GRID_LOGITS,
    START_LOGITS,
    _false_predictions,
    choose_guaranteed_thresholds,
    controlled_threshold,
    needed_units,
    positives_of_images,
    positives_of_label,
    refuse_small_val,
)
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.promised_rates import found_share, precisions, promised_rates, recalls

RECALL = GuaranteeWish("recall", 0.9)


def grouped(predictions, size: int = 3):
    """Images in groups of up to `size`, and some in none."""
    names = tuple("" if image % 7 == 0 else str(image // size) for image in range(len(predictions)))
    return replace(predictions, groups=names)


def losses_by_loops(predictions, threshold: float, label: int | None) -> list[float]:
    """Of each unit the mean over its images with the label (with any) of what is missed, by plain loops."""
    units: dict[str, list[float]] = {}
    for image in range(len(predictions)):
        labels = [k for k in range(predictions.num_labels) if label is None or k == label]
        there = [k for k in labels if predictions.positive[image, k]]
        if not there:
            continue
        missed = sum(predictions.scores[image, k] < threshold for k in there) / len(there)
        group = predictions.groups[image] if predictions.groups else ""
        units.setdefault(f"group {group}" if group else f"image {image}", []).append(missed)
    return [float(np.mean(losses)) for losses in units.values()]


def is_allowed(losses: list[float], wish: GuaranteeWish, is_binary: bool) -> bool:
    n, bound = len(losses), 1 - wish.level
    if wish.confidence is None:
        return (sum(losses) + 1) / (n + 1) <= bound + 1e-9
    if is_binary:
        return stats.binom.cdf(round(sum(losses)), n, bound) <= 1 - wish.confidence + 1e-9
    mean = min(sum(losses) / n, bound)
    divergence = (mean * np.log(mean / bound) if mean else 0) + (1 - mean) * np.log((1 - mean) / (1 - bound))
    bentkus = np.e * stats.binom.cdf(np.ceil(sum(losses) - 1e-9), n, bound)
    return min(np.exp(-n * divergence), bentkus) <= 1 - wish.confidence + 1e-9


@given(
    seed=st.integers(0, 1000),
    level=st.sampled_from([0.5, 0.8, 0.9]),
    confidence=st.sampled_from([None, 0.8]),
    has_groups=st.booleans(),
    of_label=st.booleans(),
)
@settings(max_examples=16, deadline=None)
def test_the_threshold_is_the_highest_that_is_allowed(seed, level, confidence, has_groups, of_label):
    predictions = with_gaps(make_predictions(40, 3, seed=seed, decimals=2))
    if has_groups:
        predictions = grouped(predictions)
    wish = GuaranteeWish("recall" if of_label else "found", level, confidence)
    positives = positives_of_label(predictions, 1) if of_label else positives_of_images(predictions)
    label = 1 if of_label else None
    allowed = [
        float(score)
        for score in np.unique(positives.scores)
        if is_allowed(losses_by_loops(predictions, score, label), wish, of_label and not has_groups)
    ]
    assert controlled_threshold(positives, wish) == (max(allowed) if allowed else None)


# best_predict_param of MAPIE 1.6.0's MultiLabelClassificationController(risk="recall", method="crc"), on the
# images of make_predictions(300, 6, seed) that have a label: seed, level, threshold on its grid of 0.01.
OF_MAPIE = [
    (0, 0.8, 0.66),
    (0, 0.9, 0.55),
    (0, 0.95, 0.44),
    (1, 0.8, 0.63),
    (1, 0.9, 0.51),
    (1, 0.95, 0.45),
    (2, 0.8, 0.66),
    (2, 0.9, 0.53),
    (2, 0.95, 0.4),
]


@pytest.mark.parametrize(("seed", "level", "expected"), OF_MAPIE)
def test_the_share_found_is_controlled_as_by_mapie(seed, level, expected):
    predictions = make_predictions(300, 6, seed=seed)
    found = controlled_threshold(positives_of_images(predictions), GuaranteeWish("found", level))
    assert found is not None
    assert expected <= found < expected + 0.01


def test_recall_by_hand():
    scores = np.linspace(0.05, 0.95, 19)[:, None]
    predictions = from_arrays(scores, np.ones((19, 1)))
    # 20 / 10 - 1 = 1 of the 19 may be missed: the threshold is between the first score and the second.
    values, guarantee = choose_guaranteed_thresholds(predictions, RECALL, np.array([0.5]))
    assert values[0] == pytest.approx(0.075)
    assert guarantee == Guarantee("recall", 0.9, None, num_images=19, needed=9)
    # Eight images cannot support 90 %, nine can by missing none.
    for count, expected in ((8, 0.5), (9, 0.025)):
        few = from_arrays(scores[:count], np.ones((count, 1)))
        values, guarantee = choose_guaranteed_thresholds(few, RECALL, np.array([0.5]))
        assert values[0] == pytest.approx(expected)
        assert guarantee.not_given == (("label0",) if count == 8 else ())


@pytest.mark.parametrize(
    "wish",
    [
        GuaranteeWish("recall", 0.9),
        GuaranteeWish("recall", 0.9, 0.9),
        GuaranteeWish("found", 0.8),
        GuaranteeWish("found", 0.8, 0.9),
    ],
)
@pytest.mark.parametrize("has_groups", [False, True])
def test_promises_hold_on_simulated_data(wish, has_groups):
    """The rate that is reached, over draws of val; the true rate is measured on many images."""
    large = make_predictions(5_000, 2, seed=10**6, prevalence=0.4)
    rates = []
    for seed in range(100):
        val = make_predictions(120, 2, seed=seed, prevalence=0.4)
        if has_groups:
            # Both images of a pair are the same, so that groups are what is drawn.
            names = tuple(str(image // 2) for image in range(120))
            rows = np.arange(120) // 2
            val = replace(val, scores=val.scores[rows], targets=val.targets[rows], groups=names)
        values = choose_guaranteed_thresholds(val, wish, np.full(2, 0.5)).values
        decisions = decide(large.scores, values)
        rates.append(recalls(large, decisions)[0] if wish.kind == "recall" else found_share(large, decisions))
    if wish.confidence is None:
        spread = np.std(rates) / np.sqrt(len(rates))
        assert np.mean(rates) >= wish.level - 3 * spread
        assert np.mean(rates) < wish.level + 0.05
    else:
        # 0.9 of 100 draws, and two standard deviations of that share.
        assert np.mean(np.array(rates) >= wish.level) >= 0.9 - 0.06
        assert np.mean(rates) < wish.level + 0.12


@pytest.mark.parametrize("has_groups", [False, True])
def test_precision_holds_as_often_as_promised(has_groups):
    wish = GuaranteeWish("precision", 0.8)
    large = make_predictions(20_000, 1, seed=10**6, prevalence=0.3, signal=1.0)
    held, num_given = 0, 0
    for seed in range(80):
        val = make_predictions(200, 1, seed=seed, prevalence=0.3, signal=1.0)
        if has_groups:
            val = grouped(val)
        values, guarantee = choose_guaranteed_thresholds(val, wish, np.full(1, np.nan))
        if not guarantee.not_given:
            num_given += 1
            held += precisions(large, decide(large.scores, values))[0] >= wish.level
    assert num_given >= (5 if has_groups else 20)  # the p-values of means are weaker than exact ones
    assert num_given - held <= 0.1 * 80  # wrong promises, over all draws of val


def test_precision_at_each_threshold_by_loops():
    """The lowest threshold of the grid that the tests reach, with one start that has all of the error."""
    predictions = with_gaps(make_predictions(300, 1, seed=3, prevalence=0.4))
    wish = GuaranteeWish("precision", 0.7)
    evaluated = predictions.evaluated[:, 0]
    scores, positive = predictions.scores[evaluated, 0], predictions.positive[evaluated, 0]
    budget, expected = 0.0, None
    for place in GRID_LOGITS:
        threshold = np.float32(1 / (1 + np.exp(-place)))
        budget += 0.1 / len(START_LOGITS) if place in START_LOGITS else 0
        predicted = scores >= threshold
        p_value = stats.binom.cdf((predicted & ~positive).sum(), predicted.sum(), 0.3)
        if budget and predicted.any() and p_value <= budget:
            expected = threshold
        else:
            budget = 0.0
    found = choose_guaranteed_thresholds(predictions, wish, np.array([0.5])).values[0]
    assert expected is not None
    assert found == pytest.approx(float(expected))


def test_false_predictions_of_groups_of_one_are_those_of_images():
    rng = np.random.default_rng(0)
    reached, wrong = rng.integers(0, len(GRID_LOGITS) + 1, 200), rng.random(200) < 0.3
    of_images = _false_predictions(reached, wrong, None)
    np.testing.assert_allclose(_false_predictions(reached, wrong, np.arange(200)), of_images)
    assert of_images[1][0] == (reached == 0).sum() > 0


def test_unknown_pairs_have_no_part():
    predictions = make_predictions(120, 3, seed=5, prevalence=0.5)
    targets = predictions.targets.copy()
    targets[::3] = -1
    gaps = replace(predictions, targets=targets)
    kept = np.arange(120) % 3 != 0
    left = from_arrays(predictions.scores[kept], targets[kept])
    for kind in ("recall", "found", "precision"):
        wish = GuaranteeWish(kind, 0.8)
        with_unknown = choose_guaranteed_thresholds(gaps, wish, np.full(3, 0.5)).values
        np.testing.assert_array_equal(
            with_unknown, choose_guaranteed_thresholds(left, wish, np.full(3, 0.5)).values
        )


def test_groups_of_one_are_images_and_a_group_counts_once():
    predictions = make_predictions(100, 2, seed=6, prevalence=0.5)
    alone = replace(predictions, groups=tuple(map(str, range(100))))
    wish = GuaranteeWish("recall", 0.9, 0.9)
    plain = choose_guaranteed_thresholds(predictions, wish, np.full(2, 0.5))
    same = choose_guaranteed_thresholds(alone, wish, np.full(2, 0.5))
    assert same.guarantee == plain.guarantee
    np.testing.assert_array_equal(same.values, plain.values)
    # Ten copies of each image in one group change neither the losses nor the number of units.
    rows = np.repeat(np.arange(100), 10)
    names = tuple(str(row) for row in rows)
    copies = replace(
        from_arrays(predictions.scores[rows], predictions.targets[rows]), groups=names, names=names
    )
    in_expectation = choose_guaranteed_thresholds(copies, RECALL, np.full(2, 0.5))
    assert in_expectation.guarantee.num_groups == 100
    np.testing.assert_array_equal(
        in_expectation.values, choose_guaranteed_thresholds(predictions, RECALL, np.full(2, 0.5)).values
    )


@pytest.mark.parametrize(
    ("wish", "needed"),
    [
        ("recall=0.9", 9),
        ("recall=0.95", 19),
        ("found=0.8", 4),
        ("recall=0.9,confidence=0.9", 22),
        ("found=0.9,confidence=0.95", 29),
        ("precision=0.8", 16),  # 0.8^16 <= 0.1 / 3 < 0.8^15
    ],
)
def test_needed_images(wish, needed):
    assert needed_units(GuaranteeWish.parse(wish)) == needed


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("recall=0.99", r"recall=0.99 cannot .* at least 99 images of val with the label; 'label1'.* has 12"),
        ("found=0.98", "takes at least 49 images of val that have a label; there are 20"),
        ("precision=0.99", "at least 339 images of val where a label is predicted; val has 20"),
    ],
)
def test_too_small_a_val_is_refused(wish, message):
    targets = np.zeros((20, 2))
    targets[:12, 1] = targets[8:, 0] = 1
    targets[8:10, 0] = 0
    predictions = from_arrays(np.full((20, 2), 0.5), targets)
    with pytest.raises(InputError, match=message):
        refuse_small_val(predictions, GuaranteeWish.parse(wish))


def test_refusals_count_groups():
    predictions = replace(
        from_arrays(np.full((20, 1), 0.5), np.ones((20, 1))),
        groups=tuple(str(image // 4) for image in range(20)),
    )
    refuse_small_val(predictions, GuaranteeWish("recall", 0.8))
    with pytest.raises(InputError, match=r"at least 9 groups of val with the label; 'label0'.* has 5"):
        refuse_small_val(predictions, RECALL)


def test_rules_with_a_guarantee_and_what_it_achieves():
    val, test = make_predictions(300, 3, seed=7), make_predictions(300, 3, seed=8)
    rules = LabelRules(val.labels, thresholds=(0.5, 0.6, 0.7))
    given = with_guarantee(rules, val, RECALL)
    assert given.guarantee is not None
    assert given.guarantee.num_images == 300
    achieved = rates_by_rules(test, given)
    expected = recalls(test, decide(test.scores, given.score_thresholds))
    np.testing.assert_array_equal(achieved.labels, expected)
    assert achieved.rate == pytest.approx(expected.mean())
    assert achieved.lowest == test.labels[int(expected.argmin())]
    assert rates_by_rules(test, rules) is None
    weak = make_predictions(300, 3, seed=9, signal=0.0)
    with pytest.raises(
        InputError, match=r"precision=0\.9,confidence=0\.9 cannot be guaranteed for any label"
    ):
        with_guarantee(rules, weak, GuaranteeWish("precision", 0.9))


def test_rates_of_nothing_are_undefined_and_nothing_is_warned_about():
    predictions = from_arrays([[0.4, 0.6]], [[0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(found_share(predictions, predictions.scores > 0.5))
        assert np.isnan(recalls(predictions, predictions.scores > 0.5)).all()


def test_rates_by_hand():
    scores = [[0.9, 0.9], [0.1, 0.9], [0.9, 0.1], [0.9, 0.9]]
    predictions = from_arrays(scores, [[1, 1], [1, 1], [0, -1], [0, 0]])
    decisions = decide(predictions.scores, 0.5)
    assert recalls(predictions, decisions).tolist() == [0.5, 1.0]
    assert precisions(predictions, decisions).tolist() == pytest.approx([1 / 3, 2 / 3])
    assert found_share(predictions, decisions) == pytest.approx(0.75)
    # The first two images as one group: its rate is a mean, and counts as one.
    pair = replace(predictions, groups=("a", "a", "b", "c"))
    assert precisions(pair, decisions).tolist() == pytest.approx([1 / 3, 1 / 2])
    guarantee = Guarantee("recall", 0.9, not_given=("label0",))
    rates = promised_rates(predictions, decisions, guarantee)
    assert np.isnan(rates.labels[0])
    assert rates.labels[1] == 1.0 == rates.rate
    assert (rates.lowest, rates.promised) == ("label1", 0.9)
    none = promised_rates(predictions, decisions, replace(guarantee, not_given=predictions.labels))
    assert np.isnan(none.rate)
    assert none.lowest is None
    found = promised_rates(predictions, decisions, Guarantee("found", 0.7))
    assert (found.rate, found.lowest) == (pytest.approx(0.75), None)


@pytest.mark.parametrize("kind", ["recall", "found", "precision"])
def test_no_images_and_no_labels_give_nothing(kind):
    wish = GuaranteeWish(kind, 0.8)
    for predictions in (make_predictions(0, 2), from_arrays(np.full((40, 2), 0.5), np.zeros((40, 2)))):
        values, guarantee = choose_guaranteed_thresholds(predictions, wish, np.array([0.4, 0.6]))
        assert values.tolist() == [0.4, 0.6]
        assert guarantee.not_given == predictions.labels


class CountedTargets(np.ndarray):
    """Targets that count how often they are compared."""

    comparisons = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if ufunc in (np.equal, np.not_equal):
            CountedTargets.comparisons += 1
        plain = [np.asarray(value) if isinstance(value, CountedTargets) else value for value in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


@pytest.mark.parametrize("wish", ["recall=0.9", "found=0.9", "precision=0.3"])
def test_which_pairs_count_and_what_is_drawn_are_determined_once(monkeypatch, wish: str) -> None:
    """For 40,000 images and 80 labels it took most of the time to determine them for each label."""
    predictions = grouped(make_predictions(400, 40))
    counted = replace(predictions, targets=predictions.targets.view(CountedTargets))
    monkeypatch.setattr(CountedTargets, "comparisons", 0)
    chosen = choose_guaranteed_thresholds(counted, GuaranteeWish.parse(wish), np.full(40, 0.5))
    assert CountedTargets.comparisons <= 3
    plain = choose_guaranteed_thresholds(predictions, GuaranteeWish.parse(wish), np.full(40, 0.5))
    np.testing.assert_array_equal(chosen.values, plain.values)
