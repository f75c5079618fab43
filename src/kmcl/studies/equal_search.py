"""The same search for every method before they are compared: equally many trials, judged on val alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmcl.errors import InputError
from kmcl.studies.pipe_table import pipe_table
from kmcl.studies.variants import Variant, setting_value, spell_value, variable_setting

if TYPE_CHECKING:
    from kmcl.studies.plan import StudyPlan

FOLDER = "search"


@dataclass(frozen=True)
class EqualSearch:
    """The values of one setting that every variant is tried with."""

    setting: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.setting}={','.join(map(spell_value, self.values))}"


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


def trials_of(plan: StudyPlan, search: EqualSearch) -> StudyPlan:
    """Every variant with every value, with the first seed and without evaluating test."""
    variants = [_with_value(variant, search, value) for variant in plan.variants for value in search.values]
    return replace(
        plan,
        values={**plan.values, "measure_test": False},
        variants=tuple(variants),
        seeds=plan.seeds[:1],
        reference=variants[0].name,
        search=None,
    )


def _with_value(variant: Variant, search: EqualSearch, value: Any) -> Variant:
    name = f"{variant.name} {search.setting}={spell_value(value)}"
    return Variant(name, variant.method, {**variant.changes, search.setting: value})


@dataclass(frozen=True)
class Found:
    """val mAP of each value by the variant's name, as fractions; values whose training failed have none."""

    search: EqualSearch
    val_map: Mapping[str, Mapping[Any, float]]

    def best(self, variant: str) -> Any:
        """The first of the values with the highest val mAP."""
        return max(self.val_map[variant], key=lambda value: self.val_map[variant][value])

    def chosen(self, plan: StudyPlan) -> StudyPlan:
        """The plan with each variant's own best value, without the variants that have none."""
        variants = [
            replace(variant, changes={**variant.changes, self.search.setting: self.best(variant.name)})
            for variant in plan.variants
            if self.val_map[variant.name]
        ]
        return replace(plan, variants=tuple(variants))

    def section(self, seed: int) -> str:
        """The trials as a table."""
        number = len(self.search.values)
        text = (
            f"Each method was trained {number} times with seed {seed} to choose its {self.search.setting} by "
            "val mAP (in percent; the chosen one in bold). Test was not measured there."
        )
        rows = []
        for variant, found in self.val_map.items():
            best = self.best(variant) if found else None
            cells = [f"{100 * found[value]:.2f}" if value in found else "-" for value in self.search.values]
            bold = [
                f"**{cell}**" if value == best else cell
                for value, cell in zip(self.search.values, cells, strict=True)
            ]
            rows.append([variant, *bold])
        header = [f"{self.search.setting}:", *map(spell_value, self.search.values)]
        return f"{text}\n\n{pipe_table(header, rows)}"


def read_found(plan: StudyPlan, search: EqualSearch, folder: Path) -> Found:
    """The results of the trials in the study's folder. Raises InputError if none has a val mAP."""
    trials = trials_of(plan, search)
    members = {member.variant: member for member in trials.members(folder / FOLDER)}
    val_map: dict[str, dict[Any, float]] = {}
    for variant in plan.variants:
        found = val_map.setdefault(variant.name, {})
        for value in search.values:
            member = members[_with_value(variant, search, value).name]
            measured = member.run.read_metrics().get("val") if member.is_finished else None
            if measured is not None and measured["evaluation"]["mean_average_precision"] is not None:
                found[value] = measured["evaluation"]["mean_average_precision"]
    if not any(val_map.values()):
        raise InputError(f"{folder / FOLDER}: no trial has a val mAP to choose by")
    return Found(search, val_map)
