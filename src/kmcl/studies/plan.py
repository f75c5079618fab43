"""The plan of a study: its trainings, stored in its folder so that the study can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from kmcl.data.spec import short_name
from kmcl.errors import InputError, suggest
from kmcl.runs.dataset import absolute_paths, open_whole
from kmcl.runs.folder import TABLE_FILE, RunFolder
from kmcl.runs.resolution import (
    FLAT_NAMES,
    Given,
    flat_values,
    setting_names,
    settings_from_values,
    with_changes,
)
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import write_text
from kmcl.storage.locks import locked
from kmcl.studies.variants import (
    OF_SIZES,
    EqualSearch,
    Variant,
    check_distinct,
    method_name,
    options_of,
    parse_search,
    size_name,
)
from kmcl.training.plan import make_plan as plan_training

FILE_NAME = "study.yaml"
ADVICE = "use another --output, or the settings it was started with"

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
    base:      what was given for all, by flat names; options of a method are for the variants that have them.
    reference: name of the variant the others are compared with; in a study of data sizes, of the method.
    settings:  of each variant by its name, made once; with a search of each of its trials.
    search:    a setting that is chosen on val for each variant first.
    arguments: of a study's own, of which its variants were made.
    """

    kind: str
    base: Mapping[str, Any]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    reference: str
    settings: Mapping[str, TrainingSettings]
    search: EqualSearch | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> str:
        """The dataset spec, as it was given."""
        return str(self.base["data"])

    @property
    def trained(self) -> tuple[Variant, ...]:
        """Those that have settings."""
        return _trained(self.variants, self.search)

    @property
    def trials(self) -> StudyPlan:
        """Every variant with every value of the search, with the first seed and without evaluating test."""
        settings = {name: with_changes(one, {"measure_test": False}) for name, one in self.settings.items()}
        variants = self.trained
        return replace(
            self,
            settings=settings,
            variants=variants,
            seeds=self.seeds[:1],
            reference=variants[0].name,
            search=None,
        )

    def reference_of(self, variant: Variant) -> str:
        """The name of the variant that this one is compared with."""
        if self.kind == OF_SIZES:
            return size_name(self.reference, variant.changes["train_fraction"])
        return self.reference

    def members(self, folder: Path) -> list[Member]:
        """In the order in which they are run: all variants with the first seed, then the next."""
        return [
            Member(
                variant.name,
                seed,
                with_changes(self.settings[variant.name], {"seed": seed}),
                RunFolder(folder / "members" / f"{variant.slug}-seed{seed}"),
            )
            for seed in self.seeds
            for variant in self.variants
        ]


def make_plan(
    kind: str,
    base: Mapping[str, Any],
    variants: Iterable[Variant],
    seeds: Iterable[int],
    reference: str | None = None,
    search: EqualSearch | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    known: StudyPlan | None = None,
) -> StudyPlan:
    """Check that the trainings are distinct and comparable, and make the settings of each variant.

    base:      settings by flat names
    arguments: see `StudyPlan`
    known:     a plan whose variants keep their settings, where the base is the same
    """
    base, variants, seeds = _plain(base), tuple(variants), tuple(seeds)
    check_distinct(variants)
    names = [method_name(v.name, v.changes) if kind == OF_SIZES else v.name for v in variants]
    if reference is None:
        reference = names[0] if names else ""
    if names and reference not in names:
        raise InputError(f"reference must be one of {', '.join(names)}; got {reference!r}")
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds must be different numbers; got {','.join(map(str, seeds)) or 'none'}")
    if "data" not in base:
        raise InputError("settings: data must be given")
    for name in base:
        if name not in setting_names():
            raise InputError(f"settings: unknown setting {name!r}{suggest(name, setting_names())}")
    if any((base.get(name) or 1) != 1 for name in ("devices", "nodes")):
        raise InputError(
            "a member of a study is trained by one process; "
            "for several at a time use --jobs, or start the command several times"
        )
    for variant in variants:
        if search is not None and search.setting in variant.changes:
            raise InputError(f"variant {variant.name!r}: {search.setting} is what --search chooses")
    trained = _trained(variants, search)
    kept = {v.name: v for v in known.trained} if known is not None and known.base == base else {}
    settings = _make_settings(base, [v for v in trained if kept.get(v.name) != v], seeds[0])
    settings |= {
        v.name: known.settings[v.name] for v in trained if known is not None and v.name not in settings
    }
    return StudyPlan(kind, base, variants, seeds, reference, settings, search, _plain(arguments or {}))


def _trained(variants: tuple[Variant, ...], search: EqualSearch | None) -> tuple[Variant, ...]:
    if search is None:
        return variants
    return tuple(search.trial(variant, value) for variant in variants for value in search.values)


def _make_settings(
    base: Mapping[str, Any], variants: Iterable[Variant], seed: int
) -> dict[str, TrainingSettings]:
    """What a run with the settings of each variant would be trained with."""
    common = {name: value for name, value in base.items() if name in (*FLAT_NAMES, "posthoc")}
    givens = {}
    for variant in variants:
        values = common | dict(variant.changes) | {"method": variant.method, "seed": seed, "devices": 1}
        source = f"variant {variant.name!r}" if variant.changes else "settings"
        givens[variant.name] = Given(values, options_of([variant.method], base), source)
    if not givens:
        return {}
    first, *_ = [given.checked for given in givens.values()]
    dataset = open_whole(with_changes(first, absolute_paths(first)))
    return {name: plan_training(given, dataset=dataset).settings for name, given in givens.items()}


def default_folder(plan: StudyPlan) -> Path:
    """The same name for the same data and settings, so that the same command resumes its study."""
    values = {name: value for name, value in plan.base.items() if name not in OF_THE_MACHINE}
    if plan.search is not None:
        values["search"] = str(plan.search)
    digest = hashlib.sha256(yaml.safe_dump(values).encode()).hexdigest()[:8]
    data = short_name(plan.data)
    return Path("runs") / f"{plan.kind.replace(' ', '-')}-{data}-{digest}"


def enter_plan(folder: Path, plan: StudyPlan) -> StudyPlan:
    """Write the plan to the study's folder; if there is one already, merge the two.

    Variants and seeds may be added to a study. Its settings stay: other settings, or another variant under an
    existing name, raise InputError.
    """
    file = folder / FILE_NAME
    if (
        folder.exists()
        and not file.exists()
        and any(path.name not in ("locks", TABLE_FILE) for path in folder.iterdir())
    ):
        raise InputError(f"{folder}: exists, is not empty and holds no study; choose another --output")
    try:
        with locked(folder / "locks" / "study.lock"):
            if file.is_file():
                plan = _join(read_plan(file), plan, folder)
            write_text(file, _to_yaml(plan))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    return plan


def is_plan(file: Path) -> bool:
    """Whether a file of settings is the description of a study."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return False  # told by what reads it as settings
    return isinstance(found, dict) and {"kind", "variants"} <= found.keys()


def read_plan(file: Path) -> StudyPlan:
    """The plan of a study from its study.yaml, or from the one in a study's folder."""
    if file.is_dir():
        file = file / FILE_NAME
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        variants = tuple(
            Variant(name, made["method"], made["changes"]) for name, made in found["variants"].items()
        )
        search = parse_search(found["search"]) if found.get("search") else None
        kind, seeds, reference = found["kind"], tuple(found["seeds"]), found["reference"]
        if "given" not in found:  # of version 0.1: all common settings, and none of a variant
            return make_plan(kind, found["settings"], variants, seeds, reference or None, search)
        settings = {
            name: settings_from_values(found["settings"] | own, f"{file}: {name}")
            for name, own in found["own_settings"].items()
        }
        arguments = found.get("arguments", {})
        plan = StudyPlan(kind, found["given"], variants, seeds, reference, settings, search, arguments)
        if missing := {variant.name for variant in plan.trained} - settings.keys():
            raise InputError(f"{file}: is not the plan of a study: no settings of {', '.join(missing)}")
        return plan
    except FileNotFoundError:
        raise InputError(f"{file.parent}: holds no study: it has no {file.name}") from None
    except InputError:
        raise
    except (
        *(OSError, ValueError, yaml.YAMLError, RecursionError),
        *(KeyError, TypeError, AttributeError),  # YAML, but of something else
    ) as error:
        raise InputError(f"{file}: is not the plan of a study: {error}") from error


def _join(old: StudyPlan, new: StudyPlan, folder: Path) -> StudyPlan:
    if old.kind != new.kind:
        raise InputError(f"{folder}: holds a study of kind {old.kind!r}, not {new.kind!r}; {ADVICE}")
    what = f"{folder}: the study"
    _refuse_difference(
        {"search": old.search and str(old.search)}, {"search": new.search and str(new.search)}, what
    )
    known = {variant.slug: variant for variant in old.variants}
    for variant in new.variants:
        first = known.setdefault(variant.slug, variant)
        name = f"{folder}: {variant.name!r}"
        _refuse_difference({"method": first.method}, {"method": variant.method}, name)
        _refuse_difference(first.changes, variant.changes, name)
    if old.base != new.base or len(known) > len(old.variants):
        shared = [name for name in old.settings if name in new.settings]
        again = new.settings
        if not shared and old.settings:
            shared = list(old.settings)[:1]
            again = _make_settings(new.base, old.trained[:1], new.seeds[0])
        for name in shared:
            _refuse_difference(flat_values(old.settings[name]), flat_values(again[name]), what)
    return replace(
        old,
        variants=tuple(known.values()),
        seeds=tuple(dict.fromkeys((*old.seeds, *new.seeds))),
        reference=new.reference,
        settings={**new.settings, **old.settings},
        arguments={
            name: list(dict.fromkeys([*old.arguments.get(name, []), *value]))
            if isinstance(value, list)
            else value
            for name, value in new.arguments.items()
        },
    )


def _refuse_difference(old: Mapping[str, Any], new: Mapping[str, Any], what: str) -> None:
    ignored = (*OF_THE_MACHINE, "seed") if "data" in old else ()
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name) and name not in ignored:
            raise InputError(
                f"{what} was started with {name} {old.get(name)!r}, now it is {new.get(name)!r}; {ADVICE}"
            )


def _to_yaml(plan: StudyPlan) -> str:
    """With settings that all variants have in one place, and each variant's own by its name."""
    own = {name: _plain(flat_values(one)) for name, one in plan.settings.items()}
    common = {
        name: value
        for name, value in next(iter(own.values()), {}).items()
        if all(name in other and other[name] == value for other in own.values())
    }
    described = {
        "kind": plan.kind,
        "reference": plan.reference,
        "seeds": list(plan.seeds),
        **({} if plan.search is None else {"search": str(plan.search)}),
        **({"arguments": dict(plan.arguments)} if plan.arguments else {}),
        "given": plan.base,
        "variants": {v.name: {"method": v.method, "changes": dict(v.changes)} for v in plan.variants},
        "settings": common,
        "own_settings": {
            name: {key: value for key, value in values.items() if key not in common}
            for name, values in own.items()
        },
    }
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    """As YAML can store it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value
