"""The interface of a method: its options, head, loss, and default post-hoc parts.

Nothing here needs torch: the command line reads every method's options to build its flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from kmcl.registry import load_object

if TYPE_CHECKING:
    from torch import Tensor, nn

    from kmcl.encoders import Encoder
    from kmcl.methods.output import HeadOutput


class MethodOptions(BaseModel):
    """Options of a method. Each method has a subclass that declares its `name` as a literal.

    Every field but `name` becomes a flag of `kmcl train`, and is saved with the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str

    def resolved(self, *, pretrained: bool, labels: tuple[str, ...]) -> Self:
        """The options with those resolved that depend on the data or the encoder's initial weights."""
        return self

    def for_model(self) -> Self:
        """The options saved with a model, without paths that only training reads."""
        return self


class LossTerms(NamedTuple):
    """What is minimised, and its unweighted terms by name, for the logs."""

    total: Tensor
    named: Mapping[str, Tensor]


@dataclass(frozen=True)
class Method:
    """One method of multi-label classification.

    summary: one line for the help
    options: the class of its options
    head:    builds the head, `(encoder, num_labels, options) -> nn.Module`
    loss:    `(HeadOutput, targets, options) -> LossTerms`
    posthoc: names of its default post-hoc parts, in order
    posthoc_without_frozen_stages: the same for an encoder without frozen stages; None: those of `posthoc`
             that need none
    needs_feature_map: whether its head has nothing to do without the positions of a feature map

    `head` and `loss` are given as they are or as "module:attribute", which is imported when it is used.
    """

    summary: str
    options: type[MethodOptions]
    head: str | Callable[..., Any]
    loss: str | Callable[..., Any]
    posthoc: tuple[str, ...] = ()
    posthoc_without_frozen_stages: tuple[str, ...] | None = None
    needs_feature_map: bool = False

    @property
    def name(self) -> str:
        name: str = self.options.model_fields["name"].default
        return name

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.options.model_fields if name != "name")

    @cached_property
    def build_head(self) -> Callable[[Encoder, int, Any], nn.Module]:
        build: Callable[[Encoder, int, Any], nn.Module] = load_object(self.head)
        return build

    @cached_property
    def compute_loss(self) -> Callable[[HeadOutput, Tensor, Any], LossTerms]:
        compute: Callable[[HeadOutput, Tensor, Any], LossTerms] = load_object(self.loss)
        return compute
