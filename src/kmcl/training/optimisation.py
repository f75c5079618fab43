"""Adam with a one-cycle schedule, and which weights decay."""

from __future__ import annotations

from typing import Any

from torch import nn, optim

from kmcl.encoders import Encoder
from kmcl.encoders.stages import Stages, find_stages
from kmcl.errors import InputError
from kmcl.models.classifier import Classifier
from kmcl.runs.settings import OptimisationSettings


def parameter_groups(classifier: Classifier, settings: OptimisationSettings) -> list[dict[str, Any]]:
    """Separate groups for the encoder's stages and the head; no weight decay on biases and norms (vectors).

    With a layer decay d, the rate of the encoder's last part is that of the settings; each stage before it
    has d times the rate of the one after it.
    """
    head_rate = settings.learning_rate * settings.head_learning_rate_factor
    parts = _encoder_parts(classifier.encoder, settings)
    parts.append((list(classifier.head.parameters()), head_rate))
    groups = []
    for parameters, rate in parts:
        for is_vector, decay in ((False, settings.weight_decay), (True, 0.0)):
            chosen = [p for p in parameters if p.requires_grad and (p.ndim <= 1) == is_vector]
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups


def _encoder_parts(
    encoder: Encoder, settings: OptimisationSettings
) -> list[tuple[list[nn.Parameter], float]]:
    """The encoder's parameters in parts, each with its learning rate."""
    if settings.layer_decay == 1:
        return [(list(encoder.parameters()), settings.learning_rate)]
    try:
        stages = find_stages(encoder.backbone, encoder.name)
    except InputError:  # one part: nothing is known of its order
        return [(list(encoder.parameters()), settings.learning_rate * settings.layer_decay)]
    num_stages = len(stages.stages)
    parts: dict[int, list[nn.Parameter]] = {depth: [] for depth in range(num_stages + 1)}
    for name, parameter in encoder.backbone.named_parameters():
        parts[_depth(name, stages)].append(parameter)
    return [
        (parameters, settings.learning_rate * settings.layer_decay ** (num_stages - depth))
        for depth, parameters in parts.items()
    ]


def _depth(name: str, stages: Stages) -> int:
    """The number of the stage that a parameter belongs to; the stem goes with the first, the rest is last."""
    for depth, stage in enumerate(stages.stages):
        if name.startswith(f"{stage}."):
            return depth
    in_stem = name in stages.parameters or any(name.startswith(f"{part}.") for part in stages.stem)
    return 0 if in_stem else len(stages.stages)


def make_optimiser(
    classifier: Classifier, settings: OptimisationSettings, num_steps: int
) -> tuple[optim.Optimizer, optim.lr_scheduler.LRScheduler]:
    """The paper's optimiser: Adam, its weight decay added to the gradient, and OneCycleLR over
    `num_steps`.
    """
    groups = parameter_groups(classifier, settings)
    optimiser = optim.Adam(groups, lr=settings.learning_rate, foreach=True)
    rise = settings.warmup_fraction
    if rise * max(num_steps, 2) == 1:
        rise *= 1 + 1e-9  # torch divides by the number of steps after the first in which the rate rises
    schedule = optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[group["lr"] for group in groups],
        total_steps=max(num_steps, 2),
        pct_start=rise,
    )
    return optimiser, schedule
