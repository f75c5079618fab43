"""What each study compares: the paper's ablation of kernels, the terms of the loss, sizes of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from kmcl.errors import InputError
from kmcl.runs.resolution import settings_from_values
from kmcl.studies.variants import Variant

KERNELS = ("anisotropic", "isotropic", "mahalanobis", "gaussian")
"""In the order of the paper's ablation table."""

DEFAULT_KERNEL = "isotropic"
"""Of the studies of the loss, which needs a kernel."""

TERMS = ("reconstruction", "classification", "contrastive")
"""Eq. 5, 6 and 7; the weight of each is the setting NAME_weight."""

ALL_TERMS = " + ".join(TERMS)

OF_TERMS = "study terms"
"""The kind of the study of terms."""

WITHOUT_PARTS = (
    "Trained without post-hoc parts (`--posthoc none`): fitted on the encoder's features, they predict well "
    "whatever the loss is, and would hide what its terms do."
)

FRACTIONS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

OF_SIZES = "study data-size"
"""The kind of the study of sizes."""


def kernel_variants() -> tuple[Variant, ...]:
    """KMCL with each kernel and its similarity."""
    return tuple(Variant(kernel, "kmcl", {"kernel": kernel}) for kernel in KERNELS)


def term_variants(values: Mapping[str, Any]) -> tuple[Variant, ...]:
    """KMCL with each term of the loss alone and in combination; each term used has its weight in `values`.

    All without post-hoc parts, see WITHOUT_PARTS.

    Without the classification term, only the reconstruction term trains the mixture weights, which are the
    prediction; with the contrastive term alone nothing does.
    """
    kernel = {} if "kernel" in values else {"kernel": DEFAULT_KERNEL}
    options = settings_from_values({**values, **kernel, "method": "kmcl"}).method
    for term in TERMS:
        if getattr(options, f"{term}_weight") == 0:
            raise InputError(
                f"{term}_weight is 0: a study of the terms needs a weight above 0 for each, "
                f"as in --{term}-weight 0.1"
            )
    variants = []
    for count in (1, 2, 3):
        for present in combinations(TERMS, count):
            without = {f"{term}_weight": 0.0 for term in TERMS if term not in present}
            variants.append(Variant(" + ".join(present), "kmcl", {**kernel, **without, "posthoc": "none"}))
    return tuple(variants)


def size_variants(
    methods: Iterable[Variant], fractions: Sequence[float], epochs: int, *, same_steps: bool
) -> tuple[Variant, ...]:
    """Every method with every fraction of the training images.

    epochs:     with all images.
    same_steps: with a fraction of the images, train for more epochs, so that the number of steps is about the
    same.
    """
    if not fractions or len(set(fractions)) != len(fractions):
        raise InputError(f"fractions must be different numbers; got {', '.join(map(str, fractions))}")
    for fraction in fractions:
        if not 0 < fraction <= 1:
            raise InputError(f"fractions must be above 0 and at most 1; got {fraction:g}")
    variants = []
    for fraction in sorted(fractions):
        for method in methods:
            changes = dict(method.changes)
            if "train_fraction" in changes or (same_steps and "epochs" in changes):
                raise InputError(f"method {method.name!r}: the study itself sets the fraction and its epochs")
            changes["train_fraction"] = fraction
            if same_steps:
                changes["epochs"] = round(epochs / fraction)
            variants.append(Variant(f"{method.name} {fraction:g}", method.method, changes))
    return tuple(variants)


class Sizes(NamedTuple):
    """The arguments of `size_variants`."""

    methods: tuple[Variant, ...]
    fractions: tuple[float, ...]
    same_steps: bool


def sizes_of(variants: Sequence[Variant]) -> Sizes:
    """The methods and fractions of a study of sizes, from its variants."""
    fractions = tuple(sorted({variant.changes["train_fraction"] for variant in variants}))
    epochs: dict[str, set[Any]] = {}
    for variant in variants:
        of_method = epochs.setdefault(method_name(variant.name, variant.changes), set())
        of_method.add(variant.changes.get("epochs"))
    same_steps = any(len(found) > 1 for found in epochs.values())
    set_here = ("train_fraction", "epochs") if same_steps else ("train_fraction",)
    methods = {}
    for variant in variants:
        name = method_name(variant.name, variant.changes)
        changes = {key: value for key, value in variant.changes.items() if key not in set_here}
        methods[name] = Variant(name, variant.method, changes)
    return Sizes(tuple(methods.values()), fractions, same_steps)


def method_name(variant: str, changes: Mapping[str, Any]) -> str:
    """The name of the method that a variant of a study of sizes is of."""
    return variant.removesuffix(f" {changes['train_fraction']:g}")


def size_name(method: str, fraction: float) -> str:
    return f"{method} {fraction:g}"
