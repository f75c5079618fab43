"""The plan of a study: its trainings, stored in its folder so that the study can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kmcl.data.spec import short_name
from kmcl.errors import InputError, suggest
from kmcl.options import METHOD_OPTIONS, methods_with, read_parts
from kmcl.runs.dataset import absolute_paths, open_whole, take_part
from kmcl.runs.folder import TABLE_FILE, RunFolder
from kmcl.runs.planning_facts import DATA_RULES, Facts
from kmcl.runs.recipes import choose_settings, parts_for
from kmcl.runs.resolution import (
    FLAT_NAMES,
    Given,
    flat_values,
    setting_names,
    settings_from_values,
    spell_parts,
    with_changes,
)
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import write_text
from kmcl.storage.locks import locked
from kmcl.studies.designs import OF_SIZES, method_name, size_name
from kmcl.studies.equal_search import EqualSearch, parse_search, trials_of
from kmcl.studies.variants import Variant, check_distinct
from kmcl.training.plan import TimmEncoders

OF_THE_MACHINE = ("workers", "cache", "cache_dir", "accelerator")
"""Settings that do not affect the results of a training: a study may be resumed with other values."""


@dataclass(frozen=True)
class Member:
    """One training of a study."""

    variant: str
    seed: int
    settings: TrainingSettings
    run: RunFolder

    @property
    def name(self) -> str:
        return self.run.path.name

    @property
    def is_finished(self) -> bool:
        """`cost.json` is the last file that a member writes."""
        return self.cost_file.is_file() and self.run.metrics_file.is_file()

    @property
    def cost_file(self) -> Path:
        return self.run.path / "cost.json"

    def _beside(self, folder: str, suffix: str) -> Path:
        return self.run.path.parents[1] / folder / f"{self.name}{suffix}"

    @property
    def lock_file(self) -> Path:
        return self._beside("locks", ".lock")

    @property
    def log_file(self) -> Path:
        return self._beside("logs", ".txt")

    @property
    def failure_file(self) -> Path:
        return self._beside("failures", ".txt")


@dataclass(frozen=True)
class StudyPlan:
    """Variants times seeds, with common settings.

    kind:      `compare`, or the study's name.
    values:    settings common to all, by flat names; options of a method apply to the variants that have
    them.
    reference: name of the variant the others are compared with; in a study of data sizes, of the method.
    search:    a setting that is chosen on val for each variant first.
    grey:      whether the images have no colour: methods may have other post-hoc parts for these.
    """

    kind: str
    values: Mapping[str, Any]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    reference: str
    search: EqualSearch | None = None
    grey: bool = False

    @property
    def settings(self) -> TrainingSettings:
        """The settings that are no options of a method."""
        return settings_from_values(_of_no_method(self.values))

    def reference_of(self, variant: Variant) -> str:
        """The name of the variant that this one is compared with."""
        if self.kind == OF_SIZES:
            return size_name(self.reference, variant.changes["train_fraction"])
        return self.reference

    def members(self, folder: Path) -> list[Member]:
        """In the order in which they are run: all variants with the first seed, then the next."""
        return [self.member(folder, variant, seed) for seed in self.seeds for variant in self.variants]

    def member(self, folder: Path, variant: Variant, seed: int) -> Member:
        run = RunFolder(folder / "members" / f"{variant.slug}-seed{seed}")
        return Member(variant.name, seed, self.member_settings(variant, seed), run)

    def member_settings(self, variant: Variant, seed: int) -> TrainingSettings:
        values = self._values_for(variant.method) | dict(variant.changes)
        values |= {"method": variant.method, "seed": seed, "devices": 1}
        if self.grey and "posthoc" not in values and values["recipe"] == "cached":
            values |= parts_for(values, DATA_RULES["grey"], TimmEncoders())
        return settings_from_values(values, f"variant {variant.name!r}")

    def _values_for(self, method: str) -> dict[str, Any]:
        return _of_methods(self.values, [method])


def make_plan(
    kind: str,
    values: Mapping[str, Any],
    variants: Iterable[Variant],
    seeds: Iterable[int],
    reference: str | None = None,
    search: EqualSearch | None = None,
) -> StudyPlan:
    """Check that the trainings are distinct and comparable. `values` are settings by flat names."""
    variants, seeds = tuple(variants), tuple(seeds)
    check_distinct(variants)
    names = [method_name(v.name, v.changes) if kind == OF_SIZES else v.name for v in variants]
    if reference is None:
        reference = names[0] if names else ""
    if names and reference not in names:
        raise InputError(f"reference must be one of {', '.join(names)}; got {reference!r}")
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds must be different numbers; got {','.join(map(str, seeds)) or 'none'}")
    common = Given(_of_no_method(values)).checked
    dataset = open_whole(with_changes(common, absolute_paths(common)))
    facts = Facts(take_part(common, dataset), TimmEncoders())
    # Parts are each variant's own.
    choice = choose_settings({"posthoc": None, **values}, facts)
    values = _completed({n: value for n, value in choice.values.items() if (n, value) != ("posthoc", None)})
    if (values["devices"] or 1) * values["nodes"] > 1:
        raise InputError(
            "a member of a study is trained by one process; "
            "for several at a time use --jobs, or start the command several times"
        )
    plan = StudyPlan(kind, values, variants, seeds, reference, search, facts.are_grey)
    for variant in variants:
        if search is not None and search.setting in variant.changes:
            raise InputError(f"variant {variant.name!r}: {search.setting} is what --search chooses")
    for one in (plan, trials_of(plan, search)) if search is not None else (plan,):
        for variant in one.variants:
            one.member_settings(variant, seeds[0])
    return plan


def default_folder(plan: StudyPlan) -> Path:
    """The same name for the same data and settings, so that the same command resumes its study."""
    values = {name: value for name, value in _plain(plan.values).items() if name not in OF_THE_MACHINE}
    if plan.search is not None:
        values["search"] = str(plan.search)
    digest = hashlib.sha256(yaml.safe_dump(values).encode()).hexdigest()[:8]
    data = short_name(str(plan.values["data"]))
    return Path("runs") / f"{plan.kind.replace(' ', '-')}-{data}-{digest}"


def enter_plan(folder: Path, plan: StudyPlan) -> StudyPlan:
    """Write the plan to the study's folder; if there is one already, merge the two.

    Variants and seeds may be added to a study. Its settings stay: other settings, or another variant under an
    existing name, raise InputError.
    """
    file = folder / "study.yaml"
    if (
        folder.exists()
        and not file.exists()
        and any(path.name not in ("locks", TABLE_FILE) for path in folder.iterdir())
    ):
        raise InputError(f"{folder}: exists, is not empty and holds no study; choose another --output")
    try:
        with locked(folder / "locks" / "study.lock"):
            if file.is_file():
                plan = _join(read_plan(folder), plan, folder)
            write_text(file, _to_yaml(plan))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    return plan


def read_plan(folder: Path) -> StudyPlan:
    """The plan of a study that was started."""
    file = folder / "study.yaml"
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        variants = tuple(
            Variant(name, made["method"], made["changes"]) for name, made in found["variants"].items()
        )
        values = _completed(found["settings"], str(file))
        search = parse_search(found["search"]) if found.get("search") else None
        seeds, grey = tuple(found["seeds"]), bool(found.get("grey"))
        return StudyPlan(found["kind"], values, variants, seeds, found["reference"], search, grey)
    except FileNotFoundError:
        raise InputError(f"{folder}: holds no study: it has no {file.name}") from None
    except InputError:
        raise
    except (
        *(OSError, ValueError, yaml.YAMLError, RecursionError),
        *(KeyError, TypeError, AttributeError),  # YAML, but of something else
    ) as error:
        raise InputError(f"{file}: is not the plan of a study: {error}") from error


def _join(old: StudyPlan, new: StudyPlan, folder: Path) -> StudyPlan:
    advice = "use another --output, or the settings it was started with"
    if old.kind != new.kind:
        raise InputError(f"{folder}: holds a study of kind {old.kind!r}, not {new.kind!r}; {advice}")
    what = f"{folder}: the study"
    before, now = ({"search": plan.search and str(plan.search)} for plan in (old, new))
    _refuse_difference(before, now, what, advice)
    methods = {variant.method for variant in (*old.variants, *new.variants)}
    before, now = (_plain(_of_methods(plan.values, methods)) for plan in (old, new))
    _refuse_difference(before, now, what, advice)
    known = {variant.slug: variant for variant in old.variants}
    for variant in new.variants:
        first = known.setdefault(variant.slug, variant)
        what = f"{folder}: {variant.name!r}"
        _refuse_difference({"method": first.method}, {"method": variant.method}, what, advice)
        _refuse_difference(first.changes, variant.changes, what, advice)
    seeds = dict.fromkeys((*old.seeds, *new.seeds))
    return replace(old, variants=tuple(known.values()), seeds=tuple(seeds), reference=new.reference)


def _refuse_difference(old: Mapping[str, Any], new: Mapping[str, Any], what: str, advice: str) -> None:
    ignored = (*OF_THE_MACHINE, "seed") if "data" in old else ()
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name) and name not in ignored:
            raise InputError(
                f"{what} was started with {name} {old.get(name)!r}, now it is {new.get(name)!r}; {advice}"
            )


def _to_yaml(plan: StudyPlan) -> str:
    return yaml.safe_dump(
        {
            "kind": plan.kind,
            "reference": plan.reference,
            "seeds": list(plan.seeds),
            **({} if plan.search is None else {"search": str(plan.search)}),
            "variants": {
                variant.name: {"method": variant.method, "changes": dict(variant.changes)}
                for variant in plan.variants
            },
            **({"grey": True} if plan.grey else {}),
            "settings": _plain(plan.values),
        },
        sort_keys=False,
        allow_unicode=True,
    )


def check_options_are_used(options: Collection[str], variants: Iterable[Variant]) -> None:
    """Raise InputError for an option that none of the compared methods has."""
    methods = list(dict.fromkeys(variant.method for variant in variants))
    used = _of_methods(dict.fromkeys(options), methods)
    for name in options:
        others = methods_with(name)
        if others and name not in used:
            raise InputError(
                f"{name} is an option of {', '.join(others)}; none of these is compared: {', '.join(methods)}"
            )


def used_values(plan: StudyPlan) -> dict[str, Any]:
    """The common values without options that none of its methods has."""
    return _of_methods(plan.values, {variant.method for variant in plan.variants})


def _of_no_method(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in FLAT_NAMES}


def _of_methods(values: Mapping[str, Any], methods: Iterable[str]) -> dict[str, Any]:
    options = {name for method in methods for name in METHOD_OPTIONS.find(method).option_names()}
    return {
        name: value
        for name, value in values.items()
        if name in options or name in FLAT_NAMES or name == "posthoc"
    }


def _completed(values: Mapping[str, Any], source: str = "settings") -> dict[str, Any]:
    """The values with every common setting filled in, unaffected by later changes of defaults."""
    for name in values:
        if name not in setting_names():
            raise InputError(f"{source}: unknown setting {name!r}{suggest(name, setting_names())}")
    complete = flat_values(settings_from_values(_of_no_method(values), source))
    given = {name: value for name, value in values.items() if name not in FLAT_NAMES and name != "method"}
    if isinstance(given.get("posthoc"), list | tuple):
        given["posthoc"] = spell_parts(read_parts(given["posthoc"]))
    return {name: complete[name] for name in FLAT_NAMES} | given


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as YAML can store them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
