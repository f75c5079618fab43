"""An interval around each calibrated probability: how well the validation split determines it.

The calibrated logit is linear in the logit, z = x·θ with x = (logit, 1, s) and θ = (1/T, c, 0). s is log σ of
the label's kernel, standardised within the label over val (0 without kernels). By Laplace's approximation θ
is normal around its fit with the covariance

    Σ = ( H / d + P )⁻¹,    H = Σ_n p_n (1 - p_n) x_n x_nᵀ        over the val images n whose label is known

so z has the standard deviation √(xᵀ Σ x), and the interval is sigmoid(z ± 1.645 √(xᵀ Σ x)): with 90 %
probability it contains the frequency of the label among images like this one (same logit, same sigma). It is
wide for a label that is rare in val, and for an image whose sigma is unlike those of val, to the extent that
val cannot rule out an effect of sigma. P is a weak prior for labels that do not occur in val at all: standard
deviations of 1 for the bias, 1/2 for the slope and for the weight of sigma.

Images of one patient tell less than as many of several. d is the design effect: how much larger the variance
of the likelihood's gradient is than for independent images,

    d = tr(H⁻¹ M) / 2,    M = Σ_g s_g s_gᵀ,    s_g = Σ_(n in g) (y_n - p_n) x_n        over the groups g

with x = (logit, 1), the part that is fitted. A label's own d is uncertain, so it is shrunk towards the mean
of all labels, and it is at least 1; without groups it is 1.

The interval says how well the probability is known, not how often the decision is right: a coin tossed often
has a probability of 0.5 with a narrow interval.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kmcl.data.groups import has_groups
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import NUMBERS_PER_INTERVAL, IntervalRows, calibrate, logit, sigmoid
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values

STANDARD_DEVIATIONS = 1.6449
"""To either side: 90 % of a normal distribution."""

_PRIOR_PRECISION = np.diag([4.0, 1.0, 4.0])
_PRIOR_GROUPS = 10.0
"""Groups with the label at which its own design effect and the mean of all labels have equal weight."""
_MIN_SIGMA_DEVIATION = 0.01
_MAX_STANDARDISED_SIGMA = 10.0


Reals = npt.NDArray[np.floating]


class Interval(NamedTuple):
    """Lower and upper bounds, in the shape of the probabilities they belong to."""

    low: Values
    high: Values


class ProbabilityIntervals(NamedTuple):
    """How well val determines the calibration of each of L labels.

    covariances:  L x 3 x 3, Σ
    sigma_means, sigma_deviations: L, of log σ over val; 0 and 1 without kernels
    """

    covariances: Values
    sigma_means: Values
    sigma_deviations: Values

    def interval(self, scores: Reals, probabilities: Reals, sigma: Reals | None) -> Interval:
        """The intervals of B x L calibrated probabilities, from the scores and sigmas they come from."""
        centre = logit(probabilities)
        design = _design(scores, sigma, self.sigma_means, self.sigma_deviations)
        variances = np.einsum("bli,lij,blj->bl", design, self.covariances, design)
        half_width = STANDARD_DEVIATIONS * np.sqrt(np.maximum(variances, 0))
        return Interval(sigmoid(centre - half_width), sigmoid(centre + half_width))

    def to_rows(self) -> IntervalRows:
        """Eight numbers per label: the lower triangle of Σ, mean and deviation of log σ."""
        lower = self.covariances[:, *np.tril_indices(3)]
        rows = np.column_stack([lower, self.sigma_means, self.sigma_deviations])
        return tuple(tuple(float(f"{value:.6g}") for value in row) for row in rows)

    @classmethod
    def from_rows(cls, rows: IntervalRows) -> Self:
        values = np.array(rows, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != NUMBERS_PER_INTERVAL:
            raise InputError(
                f"probability intervals must be {NUMBERS_PER_INTERVAL} numbers per label; got {values.shape}"
            )
        covariances = np.zeros((len(values), 3, 3))
        below, across = np.tril_indices(3)
        covariances[:, below, across] = covariances[:, across, below] = values[:, :6]
        return cls(covariances, values[:, 6], values[:, 7])


def fit_probability_intervals(
    predictions: Predictions, temperatures: Values, biases: Values
) -> ProbabilityIntervals:
    """The intervals of sigmoid(logit / temperature + bias), which was fitted on these predictions."""
    num_labels = predictions.num_labels
    means, deviations = np.zeros(num_labels), np.ones(num_labels)
    if predictions.sigma is not None and len(predictions):
        log_sigma = np.log(predictions.sigma.astype(np.float64))
        means = log_sigma.mean(axis=0)
        deviations = np.maximum(log_sigma.std(axis=0), _MIN_SIGMA_DEVIATION)
    design = _design(predictions.scores, predictions.sigma, means, deviations)
    probabilities = calibrate(logit(predictions.scores), temperatures, biases)
    weights = probabilities * (1 - probabilities) * predictions.evaluated
    information = np.einsum("bl,bli,blj->lij", weights, design, design)
    if has_groups(predictions.groups):
        information /= design_effects(predictions, probabilities, design[..., :2])[:, None, None]
    return ProbabilityIntervals(np.linalg.inv(information + _PRIOR_PRECISION), means, deviations)


def design_effects(predictions: Predictions, probabilities: Values, design: Values) -> Values:
    """d of each label, shrunk and at least 1.

    probabilities: N x L, fitted on these predictions
    design:        N x L x 2, what they were fitted with
    """
    units = predictions.units
    weights = probabilities * (1 - probabilities) * predictions.evaluated
    information = np.einsum("bl,bli,blj->lij", weights, design, design)
    residuals = np.where(predictions.evaluated, predictions.positive - probabilities, 0.0)
    gradients = np.zeros((units.num_units, *design.shape[1:]))
    np.add.at(gradients, units.of_image, residuals[..., None] * design)
    variance = np.einsum("gli,glj->lij", gradients, gradients)
    own = np.trace(np.linalg.solve(information + 1e-9 * np.eye(2), variance), axis1=1, axis2=2) / 2
    numbers = np.zeros((units.num_units, predictions.num_labels))
    np.add.at(numbers, units.of_image, predictions.positive)
    having = (numbers > 0).sum(axis=0)
    mean = (having @ own) / max(having.sum(), 1)
    shrunk: Values = (having * own + _PRIOR_GROUPS * mean) / (having + _PRIOR_GROUPS)
    return np.maximum(1.0, shrunk)


def _design(scores: Reals, sigma: Reals | None, means: Values, deviations: Values) -> Values:
    """B x L x 3: logit, 1, log σ standardised by its means and deviations."""
    logits = logit(scores)
    standardised = np.zeros_like(logits)
    if sigma is not None:
        standardised = (np.log(sigma.astype(np.float64)) - means) / deviations
    standardised = np.clip(standardised, -_MAX_STANDARDISED_SIGMA, _MAX_STANDARDISED_SIGMA)
    return np.stack([logits, np.ones_like(logits), standardised], axis=-1)
