"""The command that repeats a study, from its plan: complete, with default values omitted."""

from __future__ import annotations

import shlex
from typing import Any

from kmcl.runs.resolution import FLAT_NAMES, flat_values, settings_from_values
from kmcl.studies.designs import OF_SIZES, sizes_of
from kmcl.studies.plan import OF_THE_MACHINE, StudyPlan, used_values
from kmcl.studies.variants import Variant, spell_value


def command_of(plan: StudyPlan) -> str:
    """One line for a shell."""
    arguments = ["kmcl", *plan.kind.split(), str(plan.values["data"])]
    if plan.kind == "compare":
        arguments += ["--methods", ",".join(spell(variant) for variant in plan.variants)]
    if plan.kind == OF_SIZES:
        sizes = sizes_of(plan.variants)
        arguments += ["--methods", ",".join(spell(variant) for variant in sizes.methods)]
        arguments += ["--fractions", ",".join(f"{fraction:g}" for fraction in sizes.fractions)]
        arguments += ["--same-steps"] if sizes.same_steps else []
    arguments += ["--seeds", ",".join(map(str, plan.seeds))]
    if plan.kind == "compare" and plan.reference != plan.variants[0].name:
        arguments += ["--reference", plan.reference]
    if plan.search is not None:
        arguments += ["--search", str(plan.search)]
    for name, value in plan.values["data_options"].items():
        arguments += ["--option", f"{name}={value}"]
    default = flat_values(settings_from_values({"data": plan.values["data"]}))
    for name, value in used_values(plan).items():
        if name in ("data", "data_options", "seed", *OF_THE_MACHINE):
            continue
        # Methods have different defaults for an option of the same name, so that each option is given.
        if name not in FLAT_NAMES or value != default[name]:
            arguments += _flag(name, value)
    return shlex.join(arguments)


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [
        f"--{flag}",
        f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value),
    ]


def spell(variant: Variant) -> str:
    """The text that `parse_variant` reads as this variant."""
    changes = ",".join(f"{name}={spell_value(value)}" for name, value in variant.changes.items())
    text = f"{variant.method}:{changes}" if changes else variant.method
    named = text.replace(":", " ").replace(",", " ")
    return text if variant.name == named else f"{variant.name}={text}"
