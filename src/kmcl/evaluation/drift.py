"""Whether new predictions come from images like those of val: tests that together rarely give a false alarm.

Compared are the unfamiliarity of the images, a few numbers that summarise their features, and for each label
its probabilities and how often it is present. Nothing here needs targets. Images are taken to be independent
of each other: where several show one patient or scene, `one_of_each_group` leaves one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.groups import units_of_rows
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, rounded
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.unfamiliarity import is_unfamiliar

FALSE_ALARM_RATE = 0.01
"""The probability that any test rejects where nothing has changed."""


class PredictedImages(NamedTuple):
    """What a model says of N images: N x L probabilities and decisions, N numbers or None, N x K or None, and
    their names, where they are known.
    """

    probabilities: Values
    present: npt.NDArray[np.bool_]
    unfamiliarity: Values | None
    features: Values | None = None
    names: npt.NDArray[np.object_] | None = None

    def take(self, rows: npt.NDArray[np.intp]) -> PredictedImages:
        return PredictedImages(*(None if array is None else array[rows] for array in self))  # type: ignore[arg-type]


def predicted_images(predictions: Predictions, rules: LabelRules) -> PredictedImages:
    """A run's own predictions as `kmcl predict` shows them."""
    if predictions.labels != rules.labels:
        raise InputError("the run's predictions of val have other labels than its model")
    decided = rules.decide(predictions.scores)
    unfamiliarity, features = (
        None if array is None else rounded(array)
        for array in (predictions.unfamiliarity, predictions.feature_summary)
    )
    names = np.array(predictions.names, dtype=object)
    return PredictedImages(decided.probabilities, decided.present, unfamiliarity, features, names)


def one_of_each_group(images: PredictedImages, pattern: str) -> PredictedImages:
    """Of the images with the same group one, drawn at random; images whose group is blank are in none.

    pattern: a regular expression for the part of a file's name that is the group
    """
    assert images.names is not None
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InputError(f"group must be a regular expression; got {pattern!r}: {error}") from error
    groups = []
    for name in images.names:
        found = expression.search(PurePosixPath(str(name)).name)
        if found is None:
            raise InputError(f"group {pattern!r} is not found in the name of image {name!r}")
        groups.append(found[0])
    order = np.random.default_rng(0).permutation(len(groups))
    first = np.unique(units_of_rows(groups, len(groups))[order], return_index=True)[1]
    return images.take(np.sort(order[first]))


@dataclass(frozen=True)
class Check:
    """One comparison of val with the new images.

    what:           "unfamiliar share", "unfamiliarity", "mean of feature 1", ..., "label rate" or
                    "probabilities"
    label:          None for a comparison of whole images
    val, new:       the share, or the mean, in val and in the new images
    p_value:        of its test alone
    adjusted:       by Holm's method, for all checks together; drift where it is at most the false-alarm rate
    """

    what: str
    label: str | None
    val: float
    new: float
    p_value: float
    adjusted: float
    is_drift: bool


@dataclass(frozen=True)
class Drift:
    """All checks of a batch of new images.

    not_compared: "unfamiliarity" or "feature means", where val or the new images do not have these numbers
    notes:        what to know about the comparison
    """

    num_val: int
    num_new: int
    false_alarm_rate: float
    checks: tuple[Check, ...]
    not_compared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> tuple[Check, ...]:
        """The checks that show drift, the clearest first."""
        return tuple(sorted((check for check in self.checks if check.is_drift), key=lambda one: one.p_value))


def find_drift(
    labels: Sequence[str],
    val: PredictedImages,
    new: PredictedImages,
    false_alarm_rate: float = FALSE_ALARM_RATE,
) -> Drift:
    """Compare new predictions with those of val.

    If the new images are drawn as those of val were, the probability that any check shows drift is at most
    `false_alarm_rate`: each check is an exact or asymptotic test, and Holm's method adjusts for their number.
    """
    if not 0 < false_alarm_rate < 1:
        raise InputError(f"false_alarm_rate must be above 0 and below 1; got {false_alarm_rate}")
    for name, images in (("val", val), ("new", new)):
        if not len(images.probabilities):
            raise InputError(f"{name} must have at least one image; got 0")
        if images.probabilities.shape[1] != len(labels):
            got = images.probabilities.shape[1]
            raise InputError(f"{name} must have {len(labels)} labels; got {got}")
    if (
        val.features is not None
        and new.features is not None
        and val.features.shape[1:] != new.features.shape[1:]
    ):
        raise InputError(
            f"new must have {val.features.shape[1]} features, as val; got {new.features.shape[1]}: the "
            "predictions are those of another model"
        )
    unfamiliarity, features = _compare_unfamiliarity(val, new), _compare_features(val, new)
    compared = [*unfamiliarity, *features, *_compare_labels(labels, val, new)]
    adjusted = holm([one.p_value for one in compared])
    checks = tuple(
        Check(*one, adjusted=float(value), is_drift=bool(value <= false_alarm_rate))
        for one, value in zip(compared, adjusted, strict=True)
    )
    missing = [*["unfamiliarity"] * (not unfamiliarity), *["feature means"] * (not features)]
    return Drift(len(val.probabilities), len(new.probabilities), false_alarm_rate, checks, tuple(missing))


def holm(p_values: Sequence[float]) -> Values:
    """Holm's adjusted p-values: reject where they are at most the rate that bounds any false rejection.

    For the sorted p-values p_(1) <= ... <= p_(n) these are max over j <= i of min(1, (n - j + 1) p_(j)).
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    factors = len(values) - np.arange(len(values))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return adjusted


class _Compared(NamedTuple):
    what: str
    label: str | None
    val: float
    new: float
    p_value: float


def _compare_unfamiliarity(val: PredictedImages, new: PredictedImages) -> list[_Compared]:
    if val.unfamiliarity is None or new.unfamiliarity is None:
        return []
    flags = is_unfamiliar(val.unfamiliarity), is_unfamiliar(new.unfamiliarity)
    return [
        _compare_shares("unfamiliar share", None, *flags, alternative="less"),
        _compare_distributions("unfamiliarity", None, val.unfamiliarity, new.unfamiliarity),
    ]


def _compare_features(val: PredictedImages, new: PredictedImages) -> list[_Compared]:
    if val.features is None or new.features is None:
        return []
    pairs = zip(val.features.T, new.features.T, strict=True)
    return [_compare_means(f"mean of feature {number}", *pair) for number, pair in enumerate(pairs, 1)]


def _compare_labels(labels: Sequence[str], val: PredictedImages, new: PredictedImages) -> list[_Compared]:
    compared = []
    for k, label in enumerate(labels):
        compared.append(_compare_shares("label rate", label, val.present[:, k], new.present[:, k]))
        compared.append(
            _compare_distributions("probabilities", label, val.probabilities[:, k], new.probabilities[:, k])
        )
    return compared


def _compare_shares(
    what: str,
    label: str | None,
    val: npt.NDArray[np.bool_],
    new: npt.NDArray[np.bool_],
    alternative: str = "two-sided",
) -> _Compared:
    """Fisher's exact test; "less": the share of val is the smaller one."""
    from scipy.stats import fisher_exact

    table = [[int(flags.sum()), int((~flags).sum())] for flags in (val, new)]
    p_value = float(fisher_exact(table, alternative=alternative).pvalue)
    return _Compared(what, label, float(val.mean()), float(new.mean()), min(1.0, p_value))


def _compare_distributions(what: str, label: str | None, val: Values, new: Values) -> _Compared:
    """The test of Kolmogorov and Smirnov for two samples."""
    from scipy.stats import ks_2samp

    p_value = float(ks_2samp(val, new).pvalue)
    return _Compared(what, label, float(val.mean()), float(new.mean()), p_value)


def _compare_means(what: str, val: Values, new: Values) -> _Compared:
    """Wilcoxon's rank-sum test: outliers cannot decide it, and for few images it errs on the safe side.

    With U the number of pairs in which the new image has the larger number, half of it where they are equal,
    n and m images and t equal numbers in each tie, N = n + m,

        z = (|U - nm/2| - 1/2) / √(nm/12 (N + 1 - Σ (t³ - t) / (N (N - 1))))

    is compared with a normal distribution, whose tails are heavier than those of a sum of ranks.
    """
    from scipy.stats import mannwhitneyu

    p_value = float(mannwhitneyu(val, new, method="asymptotic").pvalue)
    return _Compared(what, None, float(val.mean()), float(new.mean()), p_value)
