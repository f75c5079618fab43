"""The plan of a study: which trainings there are, kept in its folder so that it can be gone on with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kmcl.errors import InputError
from kmcl.studies.designs import OF_SIZES, method_name, size_name
from kmcl.studies.equal_search import EqualSearch, parse_search, trials_of
from kmcl.studies.locks import held
from kmcl.studies.variants import Variant, check_distinct
from kmcl.training.run_folder import RunFolder, write_text
from kmcl.training.settings import TrainingSettings, validate_settings

OF_THE_MACHINE = ("workers", "cache", "cache_dir", "accelerator")
"""Settings that say how a training is done, not what comes out: a study may be gone on with under others."""


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
        """`cost.json` is the last thing that is written of a member."""
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
    settings:  common to all; method and seed in it mean nothing.
    reference: name of the variant the others are compared with; in a study of sizes of the method.
    search:    a setting that is chosen on val for each variant first.
    """

    kind: str
    settings: TrainingSettings
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    reference: str
    search: EqualSearch | None = None

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
        values = self.settings.model_dump() | dict(variant.changes)
        return validate_settings(
            values | {"method": variant.method, "seed": seed, "devices": 1}, f"variant {variant.name!r}"
        )


def make_plan(
    kind: str,
    settings: TrainingSettings,
    variants: Iterable[Variant],
    seeds: Iterable[int],
    reference: str | None = None,
    search: EqualSearch | None = None,
) -> StudyPlan:
    """Check that the trainings can be told apart and compared."""
    variants, seeds = tuple(variants), tuple(seeds)
    check_distinct(variants)
    names = [method_name(v.name, v.changes) if kind == OF_SIZES else v.name for v in variants]
    if reference is None:
        reference = names[0] if names else ""
    if names and reference not in names:
        raise InputError(f"reference must be one of {', '.join(names)}; got {reference!r}")
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds must be different numbers; got {','.join(map(str, seeds)) or 'none'}")
    if (settings.devices or 1) * settings.nodes > 1:
        raise InputError(
            "a member of a study is trained by one process; "
            "for several at a time use --jobs, or start the command several times"
        )
    plan = StudyPlan(kind, settings, variants, seeds, reference, search)
    for variant in variants:
        if search is not None and search.setting in variant.changes:
            raise InputError(f"variant {variant.name!r}: {search.setting} is what --search chooses")
    for one in (plan, trials_of(plan, search)) if search is not None else (plan,):
        for variant in one.variants:
            one.member_settings(variant, seeds[0])
    return plan


def default_folder(plan: StudyPlan) -> Path:
    """The same for the same data and settings, so that the same command finds what it has begun."""
    values = {k: v for k, v in plan.settings.model_dump(mode="json").items() if k not in OF_THE_MACHINE}
    if plan.search is not None:
        values["search"] = str(plan.search)
    digest = hashlib.sha256(yaml.safe_dump(values).encode()).hexdigest()[:8]
    data = Path(plan.settings.data.split(":", 1)[-1]).stem or plan.settings.data
    return Path("runs") / f"{plan.kind.replace(' ', '-')}-{data}-{digest}"


def enter_plan(folder: Path, plan: StudyPlan) -> StudyPlan:
    """Write the plan to the study's folder; where there is one already, join the two.

    Variants and seeds may be added to a study. What it began with stays: other settings, or another variant
    under a name that is taken, are refused.
    """
    file = folder / "study.yaml"
    if folder.exists() and not file.exists() and any(path.name != "locks" for path in folder.iterdir()):
        raise InputError(f"{folder}: exists, is not empty and holds no study; choose another --output")
    try:
        with held(folder / "locks" / "study.lock"):
            if file.is_file():
                plan = _join(read_plan(folder), plan, folder)
            write_text(file, _to_yaml(plan))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    return plan


def read_plan(folder: Path) -> StudyPlan:
    """The plan of a study that was begun."""
    file = folder / "study.yaml"
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        variants = tuple(
            Variant(name, made["method"], made["changes"]) for name, made in found["variants"].items()
        )
        settings = validate_settings(found["settings"], str(file))
        search = parse_search(found["search"]) if found.get("search") else None
        return StudyPlan(found["kind"], settings, variants, tuple(found["seeds"]), found["reference"], search)
    except FileNotFoundError:
        raise InputError(f"{folder}: holds no study: it has no {file.name}") from None
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: is not the plan of a study: {error}") from error


def _join(old: StudyPlan, new: StudyPlan, folder: Path) -> StudyPlan:
    advice = "use another --output, or the settings it was started with"
    if old.kind != new.kind:
        raise InputError(f"{folder}: holds a study of kind {old.kind!r}, not {new.kind!r}; {advice}")
    what = f"{folder}: the study"
    before, now = ({"search": plan.search and str(plan.search)} for plan in (old, new))
    _refuse_difference(before, now, what, advice)
    _refuse_difference(old.settings.model_dump(), new.settings.model_dump(), what, advice)
    known = {variant.slug: variant for variant in old.variants}
    for variant in new.variants:
        first = known.setdefault(variant.slug, variant)
        what = f"{folder}: {variant.name!r}"
        _refuse_difference({"method": first.method}, {"method": variant.method}, what, advice)
        _refuse_difference(first.changes, variant.changes, what, advice)
    seeds = dict.fromkeys((*old.seeds, *new.seeds))
    return replace(new, settings=old.settings, variants=tuple(known.values()), seeds=tuple(seeds))


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
            "settings": plan.settings.model_dump(mode="json"),
        },
        sort_keys=False,
        allow_unicode=True,
    )
