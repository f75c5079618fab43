"""Adam with a one-cycle schedule, and which weights decay."""

from __future__ import annotations

from typing import Any

from torch import optim

from kmcl.models.classifier import Classifier
from kmcl.training.settings import OptimisationSettings


def parameter_groups(classifier: Classifier, settings: OptimisationSettings) -> list[dict[str, Any]]:
    """Separate groups for encoder and head; no weight decay on biases and norms (vectors)."""
    groups = []
    for module, rate in (
        (classifier.encoder, settings.learning_rate),
        (classifier.head, settings.learning_rate * settings.head_learning_rate_factor),
    ):
        for is_vector, decay in ((False, settings.weight_decay), (True, 0.0)):
            parameters = [p for p in module.parameters() if p.requires_grad and (p.ndim <= 1) == is_vector]
            if parameters:
                groups.append({"params": parameters, "weight_decay": decay, "lr": rate})
    return groups


def make_optimiser(
    classifier: Classifier, settings: OptimisationSettings, num_steps: int
) -> tuple[optim.Optimizer, optim.lr_scheduler.LRScheduler]:
    """The paper's optimiser: Adam, its weight decay added to the gradient, and OneCycleLR over
    `num_steps`.
    """
    groups = parameter_groups(classifier, settings)
    optimiser = optim.Adam(groups, lr=settings.learning_rate, foreach=True)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[group["lr"] for group in groups],
        total_steps=max(num_steps, 2),
        pct_start=settings.warmup_fraction,
    )
    return optimiser, schedule
