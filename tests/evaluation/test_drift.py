"""Drift: Holm's method by its definition, false alarms by simulation, and shifts that are found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import fisher_exact, ks_2samp, norm, rankdata

from kmcl.errors import InputError
from kmcl.evaluation.drift import PredictedImages, _compare_means, find_drift, holm

LABELS = ("cat", "dog", "bus")


def draw(
    rng: np.random.Generator, number: int, shift: float = 0.0, unfamiliar: float = 0.0, moved: float = 0.0
):
    """Images with three labels and two features, of which the second has outliers.

    `shift` moves the logits of the last label, `unfamiliar` a share of images, `moved` the second feature.
    """
    logits = rng.normal(size=(number, 3)) - 1
    logits[:, 2] += shift
    probabilities = 1 / (1 + np.exp(-logits))
    unfamiliarity = rng.random(number)
    unfamiliarity[rng.random(number) < unfamiliar] = 0.999
    features = np.stack([rng.normal(size=number), moved + rng.standard_t(1, number)], axis=1)
    return PredictedImages(probabilities, probabilities >= 0.5, unfamiliarity, features)


def test_holm_rejects_what_the_step_down_procedure_rejects():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = rng.random(6) ** 4
        adjusted = holm(p_values)
        for rate in (0.01, 0.05, 0.3):
            rejected = np.zeros(6, dtype=bool)
            for step, place in enumerate(np.argsort(p_values)):
                if p_values[place] > rate / (6 - step):
                    break
                rejected[place] = True
            np.testing.assert_array_equal(adjusted <= rate, rejected)
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_each_check_has_the_p_value_of_its_test():
    rng = np.random.default_rng(1)
    val, new = draw(rng, 80), draw(rng, 50, shift=1.0)
    drift = find_drift(LABELS, val, new)
    assert (drift.num_val, drift.num_new, len(drift.checks)) == (80, 50, 10)
    by_name = {(check.what, check.label): check for check in drift.checks}
    bus = by_name["label rate", "bus"]
    counts = [int(images.present[:, 2].sum()) for images in (val, new)]
    table = [[counts[0], 80 - counts[0]], [counts[1], 50 - counts[1]]]
    assert bus.p_value == pytest.approx(fisher_exact(table)[1])
    assert (bus.val, bus.new) == pytest.approx((counts[0] / 80, counts[1] / 50))
    scores = by_name["probabilities", "bus"]
    expected = ks_2samp(val.probabilities[:, 2], new.probabilities[:, 2]).pvalue
    assert scores.p_value == pytest.approx(expected)
    np.testing.assert_allclose(
        [check.adjusted for check in drift.checks], holm([check.p_value for check in drift.checks])
    )
    flags = [int((images.unfamiliarity >= 0.95).sum()) for images in (val, new)]
    one_sided = fisher_exact([[flags[0], 80 - flags[0]], [flags[1], 50 - flags[1]]], "less")[1]
    assert by_name["unfamiliar share", None].p_value == pytest.approx(one_sided)
    second = by_name["mean of feature 2", None]
    ranks = rankdata(np.concatenate([val.features[:, 1], new.features[:, 1]]))[80:]
    z = (abs(ranks.sum() - 50 * 131 / 2) - 0.5) / np.sqrt(80 * 50 * 131 / 12)
    assert second.p_value == pytest.approx(2 * norm.sf(z))
    means = val.features[:, 1].mean(), new.features[:, 1].mean()
    assert (second.val, second.new) == pytest.approx(means)


def test_false_alarms_are_rarer_than_the_bound():
    rng = np.random.default_rng(2)
    alarms = [bool(find_drift(LABELS, draw(rng, 60), draw(rng, 60), 0.1).found) for _ in range(150)]
    assert np.mean(alarms) < 0.1 + 2 * np.sqrt(0.1 * 0.9 / 150)


def test_shifts_are_found_and_named():
    rng = np.random.default_rng(3)
    val = draw(rng, 400)
    moved = find_drift(LABELS, val, draw(rng, 300, shift=1.5))
    assert {check.label for check in moved.found} == {"bus"}
    strange = find_drift(LABELS, val, draw(rng, 300, unfamiliar=0.3))
    assert {check.what for check in strange.found} == {"unfamiliar share", "unfamiliarity"}
    assert strange.found[0].p_value == min(check.p_value for check in strange.checks)
    assert strange.not_compared == ()
    blurred = find_drift(LABELS, val, draw(rng, 300, moved=1.0))
    assert [check.what for check in blurred.found] == ["mean of feature 2"]
    fewer = find_drift(LABELS, val, draw(rng, 300)._replace(unfamiliarity=None, features=None))
    assert not fewer.found
    assert {check.what for check in fewer.checks} == {"label rate", "probabilities"}
    assert fewer.not_compared == ("unfamiliarity", "feature means")


@pytest.mark.parametrize("number", [1, 3, 20, 200])
def test_means_of_few_images_with_outliers_give_no_false_alarms(number: int):
    """The p-value of the rank-sum test is at most r with a probability of at most r, also far out."""
    rng = np.random.default_rng(number)
    pairs = [(rng.standard_t(1, 60), rng.standard_t(1, number)) for _ in range(1000)]
    p_values = np.array([_compare_means("", *pair).p_value for pair in pairs])
    for rate in (0.1, 0.01):
        assert (p_values <= rate).mean() <= rate + 3 * np.sqrt(rate / 1000)
    assert (p_values <= 0.1).mean() > 0.05 or number == 1
    assert _compare_means("", np.ones(60), np.ones(number)).p_value == 1


def test_bad_arguments_are_refused():
    rng = np.random.default_rng(4)
    images = draw(rng, 5)
    with pytest.raises(InputError, match="false_alarm_rate must be above 0 and below 1; got 1"):
        find_drift(LABELS, images, images, 1)
    with pytest.raises(InputError, match="new must have at least one image; got 0"):
        find_drift(LABELS, images, draw(rng, 0))
    with pytest.raises(InputError, match="val must have 2 labels; got 3"):
        find_drift(LABELS[:2], images, images)
    with pytest.raises(InputError, match=r"new must have 2 features, as val; got 1: .* of another model"):
        find_drift(LABELS, images, images._replace(features=images.features[:, :1]))
