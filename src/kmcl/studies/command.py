"""The command that makes a study again, from its plan: complete, and without what is default anyway."""

from __future__ import annotations

import shlex
from typing import Any

from kmcl.studies.designs import OF_SIZES, sizes_of
from kmcl.studies.plan import OF_THE_MACHINE, StudyPlan
from kmcl.studies.variants import Variant, spell_value
from kmcl.training.settings import TrainingSettings


def command_of(plan: StudyPlan) -> str:
    """One line for a shell."""
    words = ["kmcl", *plan.kind.split(), plan.settings.data]
    if plan.kind == "compare":
        words += ["--methods", ",".join(spell(variant) for variant in plan.variants)]
    if plan.kind == OF_SIZES:
        sizes = sizes_of(plan.variants)
        words += ["--methods", ",".join(spell(variant) for variant in sizes.methods)]
        words += ["--fractions", ",".join(f"{fraction:g}" for fraction in sizes.fractions)]
        words += ["--same-steps"] if sizes.same_steps else []
    words += ["--seeds", ",".join(map(str, plan.seeds))]
    if plan.kind == "compare" and plan.reference != plan.variants[0].name:
        words += ["--reference", plan.reference]
    if plan.search is not None:
        words += ["--search", str(plan.search)]
    for name, value in plan.settings.data_options.items():
        words += ["--option", f"{name}={value}"]
    default = TrainingSettings(data=plan.settings.data)
    for name in TrainingSettings.model_fields:
        value = getattr(plan.settings, name)
        if name in ("data", "data_options", "method", "seed", *OF_THE_MACHINE):
            continue
        if value != getattr(default, name):
            words += _flag(name, value)
    return shlex.join(words)


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [
        f"--{flag}",
        f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value),
    ]


def spell(variant: Variant) -> str:
    """The word that `parse_variant` reads as this variant."""
    changes = ",".join(f"{name}={spell_value(value)}" for name, value in variant.changes.items())
    word = f"{variant.method}:{changes}" if changes else variant.method
    named = word.replace(":", " ").replace(",", " ")
    return word if variant.name == named else f"{variant.name}={word}"
