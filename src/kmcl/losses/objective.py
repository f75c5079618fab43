"""Eq. 8: the weighted sum of the three losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor

from kmcl.errors import InputError
from kmcl.kernels import KernelMixture
from kmcl.kernels.targets import Targets
from kmcl.losses.arguments import check_between, check_inputs, check_same_shape
from kmcl.losses.asymmetric import asymmetric_loss
from kmcl.losses.contrastive import contrastive_loss
from kmcl.losses.distributed import gather_candidates, images_per_process, is_distributed
from kmcl.losses.reconstruction import reconstruction_loss
from kmcl.shapes import Bool, Float, Num


@dataclass(frozen=True)
class ObjectiveSettings:
    """Weights of the three terms and the hyper-parameters inside them; the defaults are the paper's.

    detach_focus, jaccard_in_log: as the released code, see `asymmetric_loss` and `contrastive_loss`
    `OBJECTIVES` has those of the command line too.

    The paper's text and its table swap the names of the two weights, not their values: classification 0.1,
    contrastive 0.3.
    """

    reconstruction_weight: float = 1.0
    classification_weight: float = 0.1
    contrastive_weight: float = 0.3
    temperature: float = 0.2
    positive_focus: float = 0.0
    negative_focus: float = 4.0
    probability_margin: float = 0.05
    detach_focus: bool = False
    jaccard_in_log: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            high = 0.999 if field.name == "probability_margin" else math.inf
            check_between(
                field.name, getattr(self, field.name), 0, high, open_low=field.name == "temperature"
            )


OBJECTIVES = {
    # For a head with normalised dimensions: the preset of that name, which a test compares.
    "kernels": ObjectiveSettings(
        reconstruction_weight=0.1, classification_weight=1.0, contrastive_weight=0.1, temperature=0.2
    ),
    "paper": ObjectiveSettings(),
    # The authors' code adds the terms unweighted but sums the classification term over a batch of 64;
    # in the units of Eq. 5 to 7 that is 1/64 : 1 : 1/64.
    "released": ObjectiveSettings(
        reconstruction_weight=1 / 64,
        classification_weight=1.0,
        contrastive_weight=1 / 64,
        temperature=0.17,
        detach_focus=True,
        jaccard_in_log=True,
    ),
}


class ObjectiveTerms(NamedTuple):
    """The three terms, unweighted, and their weighted sum."""

    reconstruction: Float[Tensor, ""]
    classification: Float[Tensor, ""]
    contrastive: Float[Tensor, ""]
    total: Float[Tensor, ""]


def kmcl_objective(
    features: Float[Tensor, "B D"],
    mixture: KernelMixture,
    targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"] | Targets,
    settings: ObjectiveSettings = OBJECTIVES["paper"],
    branches: Sequence[Float[Tensor, "B L"]] = (),
) -> ObjectiveTerms:
    """L = λ_REC L_REC + λ_ASL L_ASL + λ_KMCL L_KMCL (Eq. 8, where λ_REC = 1).

    `branches` are logits to which the classification term is applied separately, and then averaged, in place
    of the mixture's own.

    If several processes train together (torch.distributed), each returns its share: the mean over
    processes is the objective of the global batch, exactly.
    """
    check_same_shape("targets", targets, "the mixture's logits", mixture.logits)
    checked = check_inputs(
        targets,
        {
            "features": features,
            "mixture.logits": mixture.logits,
            "mixture.means": mixture.means,
            "mixture.variances": mixture.variances,
            **{f"branches[{index}]": logits for index, logits in enumerate(branches)},
        },
        above_zero=("mixture.variances",),
    )
    candidates = gather_candidates(mixture, checked) if is_distributed() else None
    num_images = images_per_process(checked)
    reconstruction = reconstruction_loss(features, mixture, checked, num_images=num_images)
    classification = classification_loss(branches or (mixture.logits,), checked, settings)
    contrastive = contrastive_loss(
        mixture,
        checked,
        temperature=settings.temperature,
        jaccard_in_log=settings.jaccard_in_log,
        candidates=candidates,
        num_images=num_images,
    )
    total = (
        settings.reconstruction_weight * reconstruction
        + settings.classification_weight * classification
        + settings.contrastive_weight * contrastive
    )
    return ObjectiveTerms(reconstruction, classification, contrastive, total)


def classification_loss(
    branches: Sequence[Float[Tensor, "B L"]], targets: Targets, settings: ObjectiveSettings
) -> Float[Tensor, ""]:
    """The mean over branches of their asymmetric losses (Eq. 6); inputs that a caller has checked."""
    losses = [
        asymmetric_loss(
            logits,
            targets,
            positive_focus=settings.positive_focus,
            negative_focus=settings.negative_focus,
            probability_margin=settings.probability_margin,
            detach_focus=settings.detach_focus,
            num_images=images_per_process(targets),
        )
        for logits in branches
    ]
    return torch.stack(losses).mean()


class KMCLObjective(torch.nn.Module):
    """`kmcl_objective` with its settings: those of the paper, unless given or taken from a preset.

    >>> KMCLObjective.from_preset("kernels").settings.reconstruction_weight
    0.1
    """

    def __init__(self, settings: ObjectiveSettings = OBJECTIVES["paper"]) -> None:
        super().__init__()
        self.settings = settings

    @classmethod
    def from_preset(cls, preset: str = "kernels") -> Self:
        """The objective of `kernels`, weights that work well; `paper`, as printed; or `released`."""
        if preset not in OBJECTIVES:
            raise InputError(f"preset must be one of {', '.join(OBJECTIVES)}; got {preset!r}")
        return cls(OBJECTIVES[preset])

    def forward(self, features: Tensor, mixture: KernelMixture, targets: Tensor) -> ObjectiveTerms:
        return kmcl_objective(features, mixture, targets, self.settings)
