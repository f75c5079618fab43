"""Variants to compare: a method with some of its settings changed, written as one argument.

asl                                   the method
kmcl:kernel=anisotropic,temperature=1 the method with two settings changed
wide=kmcl:kernel=anisotropic          the same under a name of your choice
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kmcl.errors import InputError, suggest
from kmcl.runs.resolution import setting_names

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
