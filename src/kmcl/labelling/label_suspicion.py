"""How probable it is that a label is wrong, from the image and from what the image's other labels say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.splitting import stratify
from kmcl.evaluation.ranking import Values
from kmcl.labelling.label_noise import (
    NoiseRates,
    NoisyLogistic,
    Targets,
    fit_noisy_logistic,
    probability_of_error,
)

NUM_FOLDS = 5
PENALTY = 3.0


@dataclass(frozen=True)
class Suspicion:
    """Of N images and L labels.

    from_image: N x L, the probability that the label is true, from the other images' labels
    from_both:  N x L, the same with what the image's other labels say
    is_wrong:   N x L, how probable it is that the given label is wrong; 0 where it is unknown
    rates:      the shares of wrong labels that were estimated
    evidence:   N x 2L, what each label of an image says about the others
    models, model_of_row: those of the folds, and which of them judged an image
    """

    from_image: Values
    from_both: Values
    is_wrong: Values
    rates: NoiseRates
    evidence: Values
    models: tuple[NoisyLogistic, ...]
    model_of_row: npt.NDArray[np.int64]

    def pushes(self, row: int, label: int) -> Values:
        """By how much each of the other labels of an image raises the logit of a label: L numbers."""
        weights = self.models[self.model_of_row[row]].weights[:, label]
        pushes: Values = (self.evidence[row] * weights).reshape(-1, self.from_both.shape[1]).sum(axis=0)
        return pushes


def suspect_labels(
    scores: Values, targets: Targets, groups: npt.NDArray[np.str_] | None = None, seed: int = 0
) -> Suspicion:
    """Compare the given labels with what the images and their other labels suggest.

    First a logistic regression per label turns left-out scores into probabilities (`label_noise`). Then a
    second one per label, in which all others take part: with their probabilities p_j, and with what the given
    values say beyond these, b_j - p_j, where b_j is the probability of label j once its given value is known.
    It is fitted in folds, so that no image judges itself; a group stays in one fold.

    scores:  N x L of `left_out_scores`
    targets: N x L; 1, 0, or -1 for unknown
    """
    nothing = np.zeros((len(scores), 0))
    no_weights = np.zeros((0, scores.shape[1]), dtype=bool)
    first = fit_noisy_logistic(scores, nothing, no_weights, targets)
    from_image = first.probabilities(scores, nothing)
    evidence = _evidence(from_image, targets, first.rates)
    allowed = _of_other_labels(scores.shape[1], evidence.shape[1])
    fold_of_row = stratify(targets, [1 / NUM_FOLDS] * NUM_FOLDS, seed, groups)
    from_both = np.zeros_like(from_image)
    models: list[NoisyLogistic] = []
    for fold in range(NUM_FOLDS):
        inside, outside = fold_of_row == fold, fold_of_row != fold
        model = fit_noisy_logistic(
            scores[outside], evidence[outside], allowed, targets[outside], penalty=PENALTY
        )
        from_both[inside] = model.probabilities(scores[inside], evidence[inside])
        models.append(model)
    rates = NoiseRates(*(float(value) for value in np.mean([model.rates for model in models], axis=0)))
    is_wrong = probability_of_error(from_both, targets, rates)
    return Suspicion(from_image, from_both, is_wrong, rates, evidence, tuple(models), fold_of_row)


def _evidence(probabilities: Values, targets: Targets, rates: NoiseRates) -> Values:
    """N x 2L: of each label its probability, and what its given value says beyond it; around 0."""
    is_wrong = probability_of_error(probabilities, targets, rates)
    believed = np.where(targets == 1, 1 - is_wrong, is_wrong)
    believed = np.where(targets < 0, probabilities, believed)
    return np.concatenate([probabilities - probabilities.mean(axis=0), believed - probabilities], axis=1)


def _of_other_labels(num_labels: int, num_evidence: int) -> npt.NDArray[np.bool_]:
    """F x L: False where the evidence is the label's own."""
    return np.tile(~np.eye(num_labels, dtype=bool), (num_evidence // num_labels, 1))
