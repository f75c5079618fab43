"""Does sigma help to detect errors, beyond what the probability alone does?

Every (image, label) pair is a decision, right or wrong. Each uncertainty below gives every decision a number,
and is judged by how well it ranks the wrong ones last. All are reported, helpful or not.

- probability:   1 - |2p - 1|, available for any classifier: the baseline.
- entropy:       -p log p - (1-p) log(1-p). For binary decisions the same order as `probability`, hence the
same figures; listed because it is commonly reported. - threshold:     -|logit p - logit t|, nearness to the
label's threshold t; the same order as `probability`
                 where t = 0.5, and the fair baseline elsewhere.
- variance:      sigma^2 of the label's kernel.
- rank_mean:     mean of the ranks of `threshold` and `variance`: a combination without parameters.
- fitted:        logistic regression of the error on the logit's distance to the threshold and on log sigma
                 (standardised within its label), fitted on other predictions. It finds sigma's sign and
                 weight by itself: where it is no better than `threshold`, sigma adds nothing.
- error_probability: 1 - p where the label is predicted, else p, with p calibrated on other predictions: how
                 probable an error is. Unlike distances it is comparable between labels;
                 `kmcl.evaluation.abstention` uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.decisions import Thresholds, check_thresholds, rules_at
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, area_under_roc, mean_of_defined, operating_points
from kmcl.evaluation.temperature import fit_temperatures

COVERAGES = np.linspace(0.05, 1.0, 20)

# Three parameters need no more; beyond this every second, third, ... pair is taken.
_MOST_PAIRS_FITTED = 200_000


@dataclass(frozen=True)
class UncertaintyReport:
    """One uncertainty judged.

    pooled:              over all pairs together.
    pooled_gain:         normalised gain over a random order (0) towards the best (1), pooled.
    mean_label_auroc:    mean of the labels' own AUROC, over labels with right and wrong decisions.
    mean_label_aurc:     mean of the labels' own areas under the risk-coverage curve.
    risks:               error rate among the most certain share of pairs, at `UncertaintyReports.coverages`.
    label_aurocs:        one value per label, NaN where undefined.
    """

    name: str
    pooled: ErrorDetection
    pooled_gain: float
    mean_label_auroc: float
    mean_label_aurc: float
    risks: Values
    label_aurocs: Values


@dataclass(frozen=True)
class UncertaintyReports:
    """All uncertainties of one set of predictions."""

    num_pairs: int
    num_wrong: int
    coverages: Values
    reports: tuple[UncertaintyReport, ...]

    def __getitem__(self, name: str) -> UncertaintyReport:
        return next(report for report in self.reports if report.name == name)

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def compare_uncertainties(
    predictions: Predictions,
    thresholds: Thresholds | LabelRules = 0.5,
    fitted_on: Predictions | None = None,
) -> UncertaintyReports:
    """Judge every uncertainty on the evaluated pairs.

    thresholds: of the scores; or the rules that decide, whose calibration was fitted on `fitted_on`; if they
                have none it is fitted here

    Those that need sigma are left out when `predictions` has none; `fitted` and `error_probability` also need
    `fitted_on`, the validation split's predictions of the same model.
    """
    evaluated = predictions.evaluated
    rules = rules_at(predictions.labels, thresholds)
    decisions = rules.present(predictions.scores)
    wrong = decisions != predictions.positive
    uncertainties = uncertainty_scores(predictions, rules.score_thresholds)
    if fitted_on is not None and predictions.sigma is not None:
        uncertainties["fitted"] = fit_error_model(fitted_on, rules).predict(predictions)
    if fitted_on is not None:
        fitted = rules if rules.is_calibrated else fit_temperatures(fitted_on, with_bias=True)
        probabilities = fitted.apply(predictions.scores).astype(np.float64)
        uncertainties["error_probability"] = np.where(decisions, 1 - probabilities, probabilities)
    return UncertaintyReports(
        num_pairs=int(evaluated.sum()),
        num_wrong=int(wrong[evaluated].sum()),
        coverages=COVERAGES,
        reports=tuple(_judge(name, values, wrong, evaluated) for name, values in uncertainties.items()),
    )


def uncertainty_scores(predictions: Predictions, thresholds: Thresholds = 0.5) -> dict[str, Values]:
    """N x L for each uncertainty by name, higher is less certain; without `fitted`."""
    scores = predictions.scores.astype(np.float64)
    logits = logit(predictions.scores)
    softplus = np.logaddexp(0, logits)
    found = {
        "probability": 1 - np.abs(2 * scores - 1),
        "entropy": softplus - scores * logits,
        "threshold": -_distances(predictions, thresholds),
    }
    if predictions.sigma is not None:
        found["variance"] = predictions.sigma.astype(np.float64) ** 2
        ranks = [_ranks(found[name], predictions.evaluated) for name in ("threshold", "variance")]
        found["rank_mean"] = (ranks[0] + ranks[1]) / 2
    return found


class ErrorModel(NamedTuple):
    """Logistic regression of the error: intercept + distance_weight * distance + sigma_weight * z(log sigma).

    A positive `sigma_weight` means that wide kernels go with errors at equal distance to the threshold.
    """

    thresholds: Thresholds
    log_sigma_means: Values
    log_sigma_deviations: Values
    intercept: float
    distance_weight: float
    sigma_weight: float

    def predict(self, predictions: Predictions) -> Values:
        """N x L estimated log-odds that the decision is wrong."""
        standardised = (_log_sigma(predictions) - self.log_sigma_means) / self.log_sigma_deviations
        distances = _distances(predictions, self.thresholds)
        return self.intercept + self.distance_weight * distances + self.sigma_weight * standardised


def fit_error_model(predictions: Predictions, thresholds: Thresholds | LabelRules = 0.5) -> ErrorModel:
    """Fit on these predictions, which must not be those the uncertainty is then judged on."""
    # Here, because it takes a second to import and the other uncertainties do not need it.
    from sklearn.linear_model import LogisticRegression

    if not len(predictions):
        raise InputError("an error model needs at least one image to be fitted on, got none")
    evaluated = predictions.evaluated
    rules = rules_at(predictions.labels, thresholds)
    values = rules.score_thresholds
    wrong = (rules.present(predictions.scores) != predictions.positive)[evaluated]
    log_sigma = _log_sigma(predictions)
    means = log_sigma.mean(axis=0)
    # A label whose sigma is constant carries no information: its standardised value is 0, not 0 / 0.
    deviations = np.maximum(log_sigma.std(axis=0), 1e-6)
    if not wrong.any() or wrong.all():
        return ErrorModel(values, means, deviations, 0.0, -1.0, 0.0)
    standardised = ((log_sigma - means) / deviations)[evaluated]
    distances = _distances(predictions, values)[evaluated]
    stride = -(-len(wrong) // _MOST_PAIRS_FITTED)
    evidence = np.stack([distances, standardised], axis=1)[::stride]
    fitted = LogisticRegression().fit(evidence, wrong[::stride])
    intercept, distance_weight, sigma_weight = (float(fitted.intercept_[0]), *map(float, fitted.coef_[0]))
    return ErrorModel(values, means, deviations, intercept, distance_weight, sigma_weight)


def _judge(name: str, uncertainty: Values, wrong: Mask, evaluated: Mask) -> UncertaintyReport:
    points = certainty_points(uncertainty[evaluated], wrong[evaluated])
    pooled = detect_errors(points)
    of_labels = [
        detect_errors(certainty_points(uncertainty[there, label], wrong[there, label]))
        for label, there in enumerate(evaluated.T)
    ]
    label_aurocs = np.array([of_label.auroc for of_label in of_labels])
    return UncertaintyReport(
        name=name,
        pooled=pooled,
        pooled_gain=pooled.gain,
        mean_label_auroc=mean_of_defined(label_aurocs),
        mean_label_aurc=mean_of_defined(np.array([of_label.aurc for of_label in of_labels])),
        risks=risk_at_coverage(points, COVERAGES),
        label_aurocs=label_aurocs,
    )


def _distances(predictions: Predictions, thresholds: Thresholds) -> Values:
    values = check_thresholds(thresholds, predictions.num_labels)
    return np.abs(logit(predictions.scores) - logit(values))


def _log_sigma(predictions: Predictions) -> Values:
    if predictions.sigma is None:
        raise InputError("these predictions have no sigma: their model has no kernels")
    return np.log(predictions.sigma.astype(np.float64))


def _ranks(values: Values, evaluated: Mask) -> Values:
    """Ranks in (0, 1) among the evaluated pairs, equal values sharing their mean rank; 0 elsewhere."""
    flat = values[evaluated]
    ranks = np.zeros_like(values)
    if len(flat):
        order = np.argsort(flat)
        ranked = flat[order]
        begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        ends = np.append(begins[1:], len(ranked))
        mean_ranks = np.empty_like(flat)
        mean_ranks[order] = np.repeat((begins + ends) / (2 * len(flat)), ends - begins)
        ranks[evaluated] = mean_ranks
    return ranks


class ErrorDetection(NamedTuple):
    """How well one uncertainty predicts the errors.

    auroc:      probability that a wrong decision is more uncertain than a right one; 0.5 is chance, below 0.5
    is worse than chance. NaN when all decisions are right, or all wrong.
    aurc:       area under the risk-coverage curve: the error rate among the n most certain decisions, mean
                over all n. Lower is better; a random order gives the error rate itself.
    best_aurc:  the area for an order with all errors last.
    error_rate: share of wrong decisions.
    """

    auroc: float
    aurc: float
    best_aurc: float
    error_rate: float

    @property
    def gain(self) -> float:
        """Normalised gain over a random order: 1 best, 0 chance, negative worse than chance."""
        distance = self.error_rate - self.best_aurc
        return (self.error_rate - self.aurc) / distance if distance > 0 else float("nan")


def certainty_points(uncertainty: Values, wrong: Mask) -> OperatingPoints:
    """Decisions from the most certain on: how many are accepted at each uncertainty, and how many are wrong.

    Equal uncertainties are one point and count as in random order, in expectation, so that no result depends
    on how they are sorted.
    """
    return operating_points(-uncertainty, wrong)


def detect_errors(points: OperatingPoints) -> ErrorDetection:
    """Judge the order of decisions; all NaN when there is none."""
    if not len(points.scores):
        return ErrorDetection(*[float("nan")] * 4)
    num_decisions, num_wrong = int(points.predicted[-1]), int(points.true_positives[-1])
    return ErrorDetection(
        auroc=1 - area_under_roc(points),
        aurc=_area_under_risk(points),
        best_aurc=_best_area(num_decisions, num_wrong),
        error_rate=num_wrong / num_decisions,
    )


def risk_at_coverage(points: OperatingPoints, coverages: Values) -> Values:
    """Error rate among the most certain share of decisions, for each coverage in (0, 1]."""
    if not len(points.scores):
        return np.full(len(coverages), np.nan)
    accepted = coverages * points.predicted[-1]
    errors = np.interp(accepted, np.append(0, points.predicted), np.append(0, points.true_positives))
    return np.asarray(errors / accepted)


def _area_under_risk(points: OperatingPoints) -> float:
    """Mean over i = 1..n of E[errors among the i most certain] / i.

    Inside a group of equal uncertainties that begins after c decisions with e errors, and has m decisions
    with w errors, the expectation at i is e + w (i - c) / m. Its sum of ratios over the group is

        (e - w c / m) (H(c + m) - H(c)) + w,      H(i) = 1 + 1/2 + ... + 1/i
    """
    harmonic = _harmonic_numbers(int(points.predicted[-1]))
    ends = points.predicted.astype(np.int64)
    begins = np.append(0, ends[:-1])
    errors_before = np.append(0, points.true_positives[:-1])
    errors_here = points.true_positives - errors_before
    at_zero = errors_before - errors_here * begins / (ends - begins)
    sums = at_zero * (harmonic[ends] - harmonic[begins]) + errors_here
    return float(sums.sum() / ends[-1])


def _best_area(num_decisions: int, num_wrong: int) -> float:
    """The area when all errors come last: sum over i > n - w of (i - (n - w)) / i, over n."""
    harmonic = _harmonic_numbers(num_decisions)
    num_right = num_decisions - num_wrong
    return float((num_wrong - num_right * (harmonic[num_decisions] - harmonic[num_right])) / num_decisions)


def _harmonic_numbers(last: int) -> Values:
    """H(0), H(1), ..., H(last)."""
    return np.append(0.0, np.cumsum(1 / np.arange(1, last + 1)))
