"""The interface of a method: the class of its options, its head and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

from torch import Tensor, nn

from kmcl.encoders import Encoder
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import MethodOptions


class LossTerms(NamedTuple):
    """What is minimised, and its unweighted terms by name, for the logs."""

    total: Tensor
    named: Mapping[str, Tensor]


@dataclass(frozen=True)
class Method:
    """One method of multi-label classification.

    options:      the class of its options, whose attributes say which post-hoc parts it has by default
    build_head:   the class of its head, or what builds one: `(encoder, num_labels, options) -> nn.Module`
    compute_loss: `(HeadOutput, targets, options) -> LossTerms`
    """

    options: type[MethodOptions]
    build_head: Callable[[Encoder, int, Any], nn.Module]
    compute_loss: Callable[[HeadOutput, Any, Any], LossTerms]

    def __new__(cls, *values: object, **named: object) -> Self:
        names = [field.name for field in fields(cls)]
        given = dict(zip(names, values, strict=False)) | named
        if (
            len(values) > len(names)
            or given.keys() - names
            or any(isinstance(value, str) for value in given.values())
        ):  # for an earlier version
            raise TypeError(
                "a Method has options=, build_head= and compute_loss=, each an object and no text; posthoc, "
                "posthoc_without_frozen_stages and needs_feature_map are attributes of the class of options"
            )
        return super().__new__(cls)
