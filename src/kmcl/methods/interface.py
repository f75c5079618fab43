"""What a method is: a head, a loss, and the options it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from kmcl.losses import ObjectiveSettings
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder


@dataclass(frozen=True)
class MethodOptions:
    """What a method may be told: the same for all, each reads those it has a use for.

    kernel, head_init, normalise_dimension: of the kernel mixture, see `KernelMixtureHead`
    objective: weights of the terms and the hyper-parameters inside them
    """

    kernel: str = "isotropic"
    head_init: str = "paper"
    normalise_dimension: bool = False
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)


class LossTerms(NamedTuple):
    """What is minimised, and its unweighted terms by name, for the logs."""

    total: Tensor
    named: Mapping[str, Tensor]


@dataclass(frozen=True)
class Method:
    """summary: one line for the help. The head is built for an encoder and a number of labels."""

    summary: str
    build_head: Callable[[Encoder, int, MethodOptions], nn.Module]
    loss: Callable[[HeadOutput, Tensor, MethodOptions], LossTerms]
