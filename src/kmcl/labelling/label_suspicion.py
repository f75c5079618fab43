"""How probable it is that a label is wrong: from the image, its other labels, and the images of its group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.groups import has_groups, units_of_rows
from kmcl.data.splitting import stratify
from kmcl.evaluation.ranking import Values
from kmcl.labelling.label_regression import (
    AS_EVIDENCE,
    FOR_RANKING,
    LabelRegression,
    Targets,
    believed,
    fit_label_regression,
    shares_of_mistakes,
)

NUM_FOLDS = 5
PENALTY = 3.0
GROUP_PRIOR = 1.0
"""Images: what the others of a group say counts by n / (n + 1)."""


@dataclass(frozen=True)
class Suspicion:
    """Of N images and L labels.

    from_image: N x L, the probability that the label is true, from the other images' labels
    from_all:   N x L, the same with what the image's other labels and the images of its group say
    is_wrong:   N x L, the probability that the given value is wrong, by which labels are ranked; 0 where it
                is unknown
    evidence:   N x F, what each label of an image says about the others, then what its group says
    models, model_of_row: those of the folds, and which of them judged an image
    """

    from_image: Values
    from_all: Values
    is_wrong: Values
    evidence: Values
    models: tuple[LabelRegression, ...]
    model_of_row: npt.NDArray[np.int64]

    def pushes(self, row: int, label: int) -> tuple[Values, float]:
        """By how much each of the other labels of an image raises the logit of a label, L; and its group."""
        num_labels = self.from_all.shape[1]
        weights = self.models[self.model_of_row[row]].weights[:, label]
        each = self.evidence[row] * weights
        of_labels: Values = each[: 2 * num_labels].reshape(2, num_labels).sum(axis=0)
        return of_labels, float(each[2 * num_labels :].sum())


def suspect_labels(
    scores: Values, targets: Targets, groups: npt.NDArray[np.str_] | None = None, seed: int = 0
) -> Suspicion:
    """Compare the given labels with what the images, their other labels and their groups suggest.

    First a logistic regression per label turns left-out scores into probabilities. Then a second one per
    label, in which all others take part: with their probabilities p_j, and with what the given values say
    beyond these, b_j - p_j, where b_j is the probability of label j once its value is known (`believed`).
    With groups, the mean of b_j - p_j over the other images of the group takes part too, that of the label
    itself included: a patient often has a finding in several images. It is fitted in folds, so that no image
    judges itself; a group stays in one fold.

    scores:  N x L of `left_out_scores`
    targets: N x L; 1, 0, or -1 for unknown
    """
    num_labels = scores.shape[1]
    nothing = np.zeros((len(scores), 0))
    first = fit_label_regression(scores, nothing, np.zeros((0, num_labels), dtype=bool), targets)
    from_image = first.probabilities(scores, nothing)
    beyond = believed(from_image, targets, shares_of_mistakes(targets, AS_EVIDENCE)) - from_image
    parts = [from_image - from_image.mean(axis=0), beyond]
    of_others = ~np.eye(num_labels, dtype=bool)
    allowed = [of_others, of_others]
    if groups is not None and has_groups(groups):
        parts.append(_of_group(beyond, groups))
        allowed.append(np.ones((num_labels, num_labels), dtype=bool))
    evidence = np.concatenate(parts, axis=1)
    fold_of_row = stratify(targets, [1 / NUM_FOLDS] * NUM_FOLDS, seed, groups)
    from_all = np.zeros_like(from_image)
    models: list[LabelRegression] = []
    for fold in range(NUM_FOLDS):
        inside, outside = fold_of_row == fold, fold_of_row != fold
        model = fit_label_regression(
            scores[outside], evidence[outside], np.concatenate(allowed), targets[outside], penalty=PENALTY
        )
        from_all[inside] = model.probabilities(scores[inside], evidence[inside])
        models.append(model)
    return Suspicion(
        from_image,
        from_all,
        probability_of_error(from_all, targets),
        evidence,
        tuple(models),
        fold_of_row,
    )


def probability_of_error(probabilities: Values, targets: Targets) -> Values:
    """The probability that the given value is wrong, N x L; 0 where it is unknown."""
    after = believed(probabilities, targets, shares_of_mistakes(targets, FOR_RANKING))
    return np.where(targets == 1, 1 - after, np.where(targets == 0, after, 0.0))


def _of_group(values: Values, groups: npt.NDArray[np.str_]) -> Values:
    """The mean over the other images of the group, shrunk towards 0 where these are few; 0 in no group."""
    group_of_row = units_of_rows(groups, len(values))
    sums = np.zeros((int(group_of_row.max()) + 1, values.shape[1]))
    np.add.at(sums, group_of_row, values)
    others = np.bincount(group_of_row)[group_of_row] - 1
    found: Values = (sums[group_of_row] - values) / (others + GROUP_PRIOR)[:, None]
    return found
