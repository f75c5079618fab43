"""A study from what was given to its tables: plan, run the missing members, evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from kmcl.errors import InputError
from kmcl.runs.dataset import open_whole
from kmcl.studies.plan import StudyPlan, enter_plan, is_plan, make_plan, read_plan
from kmcl.studies.published_tables import OwnRow, among_published, published_table
from kmcl.studies.results import (
    Measured,
    StudyResult,
    as_csv,
    collect,
    difference_between,
    difference_text,
    markdown,
    measured,
    pipe_table,
    write_tables,
)
from kmcl.studies.running import train_members
from kmcl.studies.variants import (
    COMPARISON,
    DEFAULT_KERNEL,
    DEFAULTS,
    OF_KERNELS,
    OF_SIZES,
    OF_TERMS,
    OF_WEIGHTS,
    REFERENCES,
    WITHOUT_PARTS,
    EqualSearch,
    Variant,
    check_given,
    design_variants,
    parse_search,
    size_name,
    spell_value,
)
from kmcl.training.plan import check_machine

SEARCH_FOLDER = "search"


def resumed_plan(kind: str, folder: Path) -> StudyPlan:
    """The plan of the study in a folder; an error in its data ends here, not in every training."""
    plan = _read_of_kind(kind, folder)
    for settings in list(plan.settings.values())[:1]:
        open_whole(settings)
    return plan


def described_plan(kind: str, file: Path, preset: str) -> StudyPlan | None:
    """The study that a file describes, to be done again; None where it is a file of settings."""
    if not is_plan(file):
        return None
    if preset != "default":
        raise InputError(f"{file}: has the settings of a study; leave out preset {preset}")
    return _read_of_kind(kind, file)


def _read_of_kind(kind: str, path: Path) -> StudyPlan:
    plan = read_plan(path)
    if plan.kind != kind:
        raise InputError(f"{path}: is a study of kind {plan.kind!r}; use kmcl {plan.kind}")
    return plan


def plan_study(
    kind: str,
    base: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    given: Mapping[str, Any],
    seeds: Sequence[int] | None = None,
    repeated: StudyPlan | None = None,
) -> StudyPlan:
    """The plan of a study from what a command or a function was given.

    base:     settings common to all, by flat names
    own:      arguments of this kind of study alone, those that were given
    given:    settings that were given beside a preset and a file
    repeated: the study that is done again, where nothing else is given
    """
    if kind not in DEFAULTS:
        raise InputError(f"{kind} is none of the studies: {', '.join(DEFAULTS)}")
    for name in own:
        if name not in DEFAULTS[kind]:
            raise InputError(f"{name}: is not an argument of {kind}")
    if kind == OF_WEIGHTS:
        base = {"kernel": DEFAULT_KERNEL, **base, "measure_test": False}
    arguments = DEFAULTS[kind] | (dict(repeated.arguments) if repeated else {}) | dict(own)
    variants, reference = design_variants(kind, arguments, base), REFERENCES.get(kind)
    search = parse_search(own["search"]) if "search" in own else None
    if repeated is not None:
        search = search or repeated.search
        if _keeps_variants(repeated, base, own):
            variants, reference = repeated.variants, repeated.reference or None
    check_given(kind, given, variants or (Variant("point", "kmcl"),))
    if seeds is None:
        seeds = repeated.seeds if repeated else (0,) if kind == OF_WEIGHTS else (0, 1, 2)
    return make_plan(
        *(kind, base, variants, seeds, own.get("reference", reference), search),
        arguments=arguments if kind in (OF_SIZES, OF_WEIGHTS) else None,
        known=repeated,
    )


def _keeps_variants(repeated: StudyPlan, base: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether a repeated study has the variants it had; otherwise they are designed again."""
    if repeated.kind == OF_SIZES and own and not repeated.arguments and "methods" not in own:
        raise InputError(f"{repeated.kind}: an earlier version described this study; give --methods too")
    return (
        "methods" not in own
        if repeated.kind in (COMPARISON, OF_WEIGHTS)
        else not own and base == repeated.base
    )


def repeated_values(plan: StudyPlan, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a study, and what is given now to do it again with."""
    if not changes or not plan.trained:
        return {**plan.base, **changes}
    first = plan.trained[0]
    made = plan.settings[first.name]
    # Relative to the folder where the study was begun, which need not be the present one.
    places = {"data": made.data.spec, "cache_dir": made.data.cache_dir, "weights": made.encoder.weights}
    found = {name: place for name, place in places.items() if name in plan.base and name not in first.changes}
    return {**plan.base, **found, **changes}


def run_study(
    plan: StudyPlan,
    folder: Path,
    *,
    jobs: int = 1,
    ray: str | None = None,
    console: Console | None = None,
) -> StudyResult:
    """Train every member that is not finished, then write table.md, table.csv and results.json.

    jobs: members that are trained at a time.
    ray:  address of a Ray cluster whose machines share `folder`, "auto" or "local"; None for this machine.

    Where the plan has a search, its trials come first, in a folder of their own.

    May be called again after any interruption, and by several processes at once: finished members are
    skipped, interrupted ones resume from their last epoch, and no two processes train the same member.
    Variants and seeds already in the folder are part of the results too. From a script, call it under `if
    __name__ == "__main__":`; members run in processes of their own, which import it.
    """
    console = console or Console(quiet=True)
    check_start(plan, ray)
    folder = folder.absolute() if ray else folder
    joined = enter_plan(folder, plan)
    sections, failures = [], {}
    if joined.search is not None:
        trials = joined.trials.members(folder / SEARCH_FOLDER)
        failures = train_members(trials, jobs, console, ray)
        found = read_found(joined, joined.search, measured(trials), folder)
        joined = found.chosen(joined)
        sections.append(found.section(joined.seeds[0]))
    members = joined.members(folder)
    slugs = {variant.slug: variant.name for variant in joined.variants}
    wanted = {slugs.get(variant.slug) for variant in plan.variants}
    failures |= train_members(
        [m for m in members if m.variant in wanted and m.seed in plan.seeds], jobs, console, ray
    )
    finished = measured(members)
    result = collect(joined, folder, members, finished, failures)
    sections += published_sections(joined, finished, result)
    if plan.kind == OF_TERMS:
        sections.append(WITHOUT_PARTS)
    if plan.kind == OF_SIZES:
        sections.append(against_all_images(joined, finished, result))
    write_tables(folder, markdown(result, sections), as_csv(result), result.to_json())
    return result


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
        best = {
            v.name: self.search.trial(v, self.best(v.name)) for v in plan.variants if self.val_map[v.name]
        }
        variants = [replace(trial, name=name) for name, trial in best.items()]
        settings = {name: plan.settings[trial.name] for name, trial in best.items()}
        return replace(plan, variants=tuple(variants), settings=settings, search=None)

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


def read_found(plan: StudyPlan, search: EqualSearch, trials: Sequence[Measured], folder: Path) -> Found:
    """The results of the finished trials. Raises InputError if none has a val mAP."""
    metrics = {one.member.variant: one.metrics.get("val") for one in trials}
    val_map: dict[str, dict[Any, float]] = {}
    for variant in plan.variants:
        found = val_map.setdefault(variant.name, {})
        for value in search.values:
            of_val = metrics.get(search.trial(variant, value).name)
            if of_val is not None and of_val["evaluation"]["mean_average_precision"] is not None:
                found[value] = of_val["evaluation"]["mean_average_precision"]
    if not any(val_map.values()):
        raise InputError(f"{folder / SEARCH_FOLDER}: no trial has a val mAP to choose by")
    return Found(search, val_map)


def against_all_images(plan: StudyPlan, finished: Sequence[Measured], result: StudyResult) -> str:
    """Each method with each fraction of the images, against the reference with the largest fraction."""
    fractions = [variant.changes["train_fraction"] for variant in plan.variants]
    largest = size_name(plan.reference, max(fractions))
    base = [one for one in finished if one.member.variant == largest]
    rows = []
    for variant in result.variants:
        own = [one for one in finished if one.member.variant == variant.name]
        found = difference_between(own, base, result.split) if variant.name != largest else None
        if found is not None:
            ahead = f"{found.seeds_ahead} of {len(found.seeds)}"
            rows.append([variant.name, difference_text(found.paired), ahead])
    title = f"The same trainings against {largest}, which has seen the most images:"
    return f"{title}\n\n{pipe_table(['method', f'difference to {largest}', 'seeds ahead'], rows)}"


def published_sections(plan: StudyPlan, finished: Sequence[Measured], result: StudyResult) -> list[str]:
    """The study's methods among the paper's, if the paper has figures for these data."""
    table = published_table(plan.data, of_kernels=plan.kind == OF_KERNELS)
    if table is None:
        return []
    rows = []
    for variant in result.variants:
        evaluations = [
            one.metrics[result.split]["evaluation"] for one in finished if one.member.variant == variant.name
        ]
        settings = plan.settings[variant.name]
        rows.append(OwnRow(variant.name, settings, evaluations, variant.parameters, variant.gmac))
    return [among_published(table, rows, result.split)]


def check_start(plan: StudyPlan, ray: str | None) -> None:
    """Detect errors that members would fail with before any starts; but not what the machines of Ray lack."""
    for settings in plan.settings.values() if ray is None else ():
        check_machine(settings)
