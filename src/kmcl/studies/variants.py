"""What a study compares: methods with settings of their own, written as arguments, and the paper's designs.

asl                                   the method
kmcl:kernel=anisotropic,temperature=1 the method with two settings changed
wide=kmcl:kernel=anisotropic          the same under a name of your choice
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import yaml

from kmcl.errors import InputError, suggest
from kmcl.options import METHOD_OPTIONS, methods_with
from kmcl.options.methods import read_options
from kmcl.runs.resolution import FLAT_NAMES, setting_names
from kmcl.runs.settings import OptimisationSettings

FIXED_SETTINGS = ("data", "data_options", "method", "seed", "devices", "nodes", "threshold", "measure_test")
"""Settings that no variant may change: data, seeds and evaluation must be the same for all."""


@dataclass(frozen=True)
class Variant:
    """name: in tables and figures. method: a registered one. changes: settings of its own."""

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name as a part of a file name."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.") or "variant"


def parse_variants(texts: Iterable[str]) -> tuple[Variant, ...]:
    """Read variants from arguments, each of which may hold several separated by commas.

    An item that changes a setting (`kernel=gaussian`) belongs to the variant before it.
    """
    known = setting_names()
    spelled: list[str] = []
    for text in texts:
        for part in (part.strip() for part in text.split(",")):
            if not part:
                continue
            is_change = part.partition("=")[0] in known and ":" not in part
            if is_change and spelled and ":" in spelled[-1]:
                spelled[-1] += f",{part}"
            else:
                spelled.append(part)
    variants = tuple(parse_variant(text) for text in spelled)
    if not variants:
        raise InputError("methods must name at least one method, as in asl,kmcl")
    check_distinct(variants)
    return variants


def parse_variant(text: str) -> Variant:
    """Read one variant: `[NAME=]METHOD[:SETTING=VALUE,...]`."""
    head, _, tail = text.partition(":")
    name, equals, method = head.rpartition("=")
    if equals and not name:
        raise InputError(f"variant {text!r} has no name before its =, as in wide=kmcl:kernel=anisotropic")
    if name in setting_names():
        raise InputError(
            f"variant {text!r}: {name} is a setting; give settings after a colon, as in kmcl:{name}=..."
        )
    changes: dict[str, Any] = {}
    for part in filter(None, tail.split(",")):
        setting, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"variant {text!r}: {part!r} is not SETTING=VALUE")
        changes[variable_setting(setting, f"variant {text!r}")] = setting_value(value)
    return Variant(name or text.replace(":", " ").replace(",", " "), method, changes)


def variable_setting(name: str, where: str) -> str:
    """Check that this is a setting in which variants may differ."""
    setting = name.strip().replace("-", "_")
    if setting in FIXED_SETTINGS:
        raise InputError(f"{where}: {setting} is the same for all that is compared")
    if setting not in setting_names():
        hint = suggest(setting, setting_names())
        raise InputError(f"{where}: unknown setting {setting!r}{hint}")
    return setting


def spell_value(value: Any) -> str:
    """The text that `setting_value` reads as this value."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def setting_value(text: str) -> Any:
    """Numbers, true, false and null as in a settings file (where 1e-3 would be text); text otherwise."""
    try:
        return float(text) if re.fullmatch(r"[+-]?[\d.]+[eE][+-]?\d+", text) else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        return text


def check_distinct(variants: Iterable[Variant]) -> None:
    """Raise InputError if two variants have the same name; their results could not be distinguished."""
    seen: dict[str, Variant] = {}
    for variant in variants:
        other = seen.setdefault(variant.slug, variant)
        if other is not variant:
            raise InputError(
                f"two variants are called {variant.name!r} and {other.name!r}; "
                f"name them apart, as in mine={variant.method}:..."
            )


def options_of(methods: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that are options of one of the methods."""
    known = {name for method in methods for name in METHOD_OPTIONS.find(method).option_names()}
    return {name: value for name, value in values.items() if name in known and name not in FLAT_NAMES}


def check_options_are_used(options: Iterable[str], variants: Iterable[Variant]) -> None:
    """Raise InputError for an option that none of the compared methods has."""
    methods = list(dict.fromkeys(variant.method for variant in variants))
    used = options_of(methods, dict.fromkeys(options))
    for name in options:
        others = methods_with(name)
        if others and name not in used:
            raise InputError(
                f"{name} is an option of {', '.join(others)}; none of these is compared: {', '.join(methods)}"
            )


# A setting that is searched for each of them


@dataclass(frozen=True)
class EqualSearch:
    """The values of one setting that every variant is tried with."""

    setting: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.setting}={','.join(map(spell_value, self.values))}"

    def trial(self, variant: Variant, value: Any) -> Variant:
        """The variant with one of the values."""
        name = f"{variant.name} {self.setting}={spell_value(value)}"
        return Variant(name, variant.method, {**variant.changes, self.setting: value})


def parse_search(text: str) -> EqualSearch:
    """Read `learning_rate=3e-4,1e-3,3e-3`."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise InputError(
            f"search must be SETTING=VALUE,VALUE,... as in learning_rate=3e-4,1e-3; got {text!r}"
        )
    setting = variable_setting(name, f"search {text!r}")
    values = tuple(setting_value(part.strip()) for part in rest.split(",") if part.strip())
    if len(values) < 2 or len(set(values)) != len(values):
        raise InputError(f"search {text!r} must have at least two different values")
    return EqualSearch(setting, values)


# The studies

COMPARISON, OF_KERNELS, OF_TERMS = "compare", "study kernels", "study terms"
OF_SIZES, OF_WEIGHTS = "study data-size", "study weights"
"""The kinds of studies, as they are called."""

DEFAULTS: dict[str, dict[str, Any]] = {
    COMPARISON: {"methods": ("asl,kmcl",), "reference": None, "search": None},
    OF_KERNELS: {},
    OF_TERMS: {},
    OF_SIZES: {"methods": ("asl,kmcl",), "fractions": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0), "same_steps": False},
    OF_WEIGHTS: {"points": 15, "low": 0.01, "high": 1.0, "sampler": "random"},
}
"""The arguments of each kind's own, besides those of every study. Of weights, low and high are the range of
each: the paper gives (0, 1] for two of them and keeps the third at 1; here all three are drawn.
"""

KERNELS = ("anisotropic", "isotropic", "mahalanobis", "gaussian")
"""In the order of the paper's ablation table."""

DEFAULT_KERNEL = "isotropic"
"""Of the studies of the loss, which needs a kernel."""

TERMS = ("reconstruction", "classification", "contrastive")
"""Eq. 5, 6 and 7; the weight of each is the setting NAME_weight."""

ALL_TERMS = " + ".join(TERMS)

REFERENCES = {OF_KERNELS: "isotropic", OF_TERMS: ALL_TERMS}
"""The variant that the others are compared with, where it is not the first."""

WITHOUT_PARTS = (
    "Trained without post-hoc parts (`--posthoc none`): fitted on the encoder's features, they predict well "
    "whatever the loss is, and would hide what its terms do."
)


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
    options = read_options({"name": "kmcl", **options_of(["kmcl"], values), **kernel})
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


def method_name(variant: str, changes: Mapping[str, Any]) -> str:
    """The name of the method that a variant of a study of sizes is of."""
    return variant.removesuffix(f" {changes['train_fraction']:g}")


def size_name(method: str, fraction: float) -> str:
    return f"{method} {fraction:g}"


SET_BY_STUDY = {
    OF_KERNELS: {"kernel": "this study trains with every kernel"},
    OF_TERMS: {"posthoc": "this study compares terms of the loss, without post-hoc parts"},
    OF_SIZES: {"train_fraction": "this study has --fractions"},
    OF_WEIGHTS: {f"{term}_weight": "this study draws the weights" for term in TERMS},
}
"""Settings that each of the studies has to itself."""


def check_given(kind: str, given: Mapping[str, Any], variants: Iterable[Variant]) -> None:
    """Refuse a setting that the study itself sets, or that none of its variants has."""
    for name, why in SET_BY_STUDY.get(kind, {}).items():
        if name in given and (name, given[name]) != ("posthoc", "none"):
            raise InputError(f"--{name.replace('_', '-')}: {why}")
    check_options_are_used(given, variants)


def design_variants(
    kind: str, arguments: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """What a study compares; a search of weights draws its points itself.

    arguments: of the kind's own, all of them
    values:    settings common to all, by flat names
    """
    if kind == OF_KERNELS:
        return kernel_variants()
    if kind == OF_TERMS:
        return term_variants(values)
    if kind == OF_WEIGHTS:
        points, low, high, sampler = (arguments[name] for name in DEFAULTS[OF_WEIGHTS])
        if points < 1:
            raise InputError(f"points must be at least 1; got {points}")
        if not 0 < low < high:
            raise InputError(f"low must be above 0 and below high; got {low:g} and {high:g}")
        if sampler not in ("random", "tpe"):
            raise InputError(f"sampler must be random or tpe; got {sampler!r}")
        return ()
    methods = parse_variants(arguments["methods"])
    if kind == COMPARISON:
        return methods
    epochs = values.get("epochs", OptimisationSettings().epochs)
    return size_variants(methods, arguments["fractions"], epochs, same_steps=arguments["same_steps"])
