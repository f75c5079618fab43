"""How a run treats labels that are not annotated, with the loss of any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kmcl.data.dataset import UNKNOWN
from kmcl.data.target_pairs import count_images, has_any
from kmcl.losses.unknown_labels import UnknownTreatment, complete_targets, weak_negative_weight
from kmcl.methods import LossTerms
from kmcl.methods.output import HeadOutput
from kmcl.runs.settings import DataSettings

WITHOUT_NEGATIVES: UnknownTreatment = "weak_negative"
"""What `auto` is where no label is known to be absent: a loss that ignores the rest is smallest for a model
that finds every label in every image. It was the best of the treatments on val of COCO with one known label
per image.
"""

Loss = Callable[[HeadOutput, Tensor, Any], LossTerms]


@dataclass(frozen=True)
class UnknownLabels:
    """A treatment of unknown labels.

    large_loss_share: of the unknown labels of a batch, those with large losses in the last epoch; the share
                      rises to it from 0 in the first
    """

    treatment: UnknownTreatment = "ignore"
    large_loss_share: float = 0.0

    @classmethod
    def of_run(cls, settings: DataSettings, train_targets: npt.NDArray[np.int8]) -> UnknownLabels:
        """As the settings say; `auto` depends on whether any label is known to be absent."""
        treatment = settings.unknown
        if treatment == "auto":
            treatment = "ignore" if has_any(train_targets, 0) else WITHOUT_NEGATIVES
        return cls(treatment, settings.large_loss_share)

    def notice(self, train_targets: npt.NDArray[np.int8]) -> str | None:
        """A sentence for users; None where nothing is unknown."""
        share = count_images(train_targets, UNKNOWN).sum() / max(train_targets.size, 1)
        if not share:
            return None
        text = f"{100 * share:.0f} % of the labels of train are unknown: --unknown {self.treatment}"
        if not has_any(train_targets, 0):
            text += "; no label is known to be absent"
        return text

    def loss(
        self, compute: Loss, output: HeadOutput, targets: Tensor, options: Any, progress: float = 0.0
    ) -> LossTerms:
        """The loss of a method with unknown labels treated.

        A weight w of what is assumed absent needs no loss that knows weights: the mean of the loss with all
        of it, weighed w, and of the loss without it, weighed 1 - w.

        progress: of the training, from 0 in its first epoch to 1 in its last
        """
        completed = self._completed(output.logits, targets, progress)
        terms = compute(output, completed, options)
        if self.treatment != "weak_negative":
            return terms
        weight = weak_negative_weight(targets.shape[1])
        known = compute(output, targets, options)
        return LossTerms(
            torch.lerp(known.total, terms.total, weight),
            {name: torch.lerp(known.named[name], value, weight) for name, value in terms.named.items()},
        )

    def for_fitting(self, targets: Tensor, logits: Tensor | None = None) -> Tensor:
        """Targets of training images for post-hoc parts.

        logits: of the trained head, which say which losses are large; without them none is
        """
        if logits is None:
            return self._completed(targets.float(), targets, 0.0)
        return self._completed(logits, targets, 1.0)

    def _completed(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return complete_targets(logits, targets, self.treatment, progress * self.large_loss_share)


IGNORED = UnknownLabels()
