"""A study from its plan to its tables: check, run the missing members, evaluate."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from kmcl.studies.command import command_of
from kmcl.studies.designs import OF_SIZES, OF_TERMS, WITHOUT_PARTS, size_name, sizes_of
from kmcl.studies.equal_search import FOLDER, read_found, trials_of
from kmcl.studies.pipe_table import pipe_table
from kmcl.studies.plan import StudyPlan, enter_plan
from kmcl.studies.published_tables import OwnRow, among_published, published_table
from kmcl.studies.results import StudyResult, collect, difference_between
from kmcl.studies.running import train_members
from kmcl.studies.tables import difference_text, write_tables
from kmcl.training.plan import check_machine


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
    command, sections, failures = command_of(joined), [], {}
    if joined.search is not None:
        trials = trials_of(joined, joined.search)
        failures = train_members(trials.members(folder / FOLDER), jobs, console, ray)
        found = read_found(joined, joined.search, folder)
        joined = found.chosen(joined)
        sections.append(found.section(joined.seeds[0]))
    wanted = {member.name for member in plan.members(folder)}
    members = [member for member in joined.members(folder) if member.name in wanted]
    failures |= train_members(members, jobs, console, ray)
    result = collect(joined, folder, failures)
    sections += published_sections(joined, folder, result)
    if plan.kind == OF_TERMS:
        sections.append(WITHOUT_PARTS)
    if plan.kind == OF_SIZES:
        sections.append(against_all_images(joined, folder, result))
    write_tables(result, folder, command, sections)
    return result


def against_all_images(plan: StudyPlan, folder: Path, result: StudyResult) -> str:
    """Each method with each fraction of the images, against the reference with the largest fraction."""
    largest = size_name(plan.reference, sizes_of(plan.variants).fractions[-1])
    finished = [member for member in plan.members(folder) if member.is_finished]
    base = [member for member in finished if member.variant == largest]
    rows = []
    for variant in result.variants:
        own = [member for member in finished if member.variant == variant.name]
        found = difference_between(own, base, result.split) if variant.name != largest else None
        if found is not None:
            ahead = f"{found.seeds_ahead} of {len(found.seeds)}"
            rows.append([variant.name, difference_text(found.paired), ahead])
    title = f"The same trainings against {largest}, which has seen the most images:"
    return f"{title}\n\n{pipe_table(['method', f'difference to {largest}', 'seeds ahead'], rows)}"


def published_sections(plan: StudyPlan, folder: Path, result: StudyResult) -> list[str]:
    """The study's methods among the paper's, if the paper has figures for these data."""
    of_kernels = plan.kind == "study kernels"
    table = published_table(plan.settings.data.spec, of_kernels=of_kernels)
    if table is None:
        return []
    rows = []
    for variant in result.variants:
        members = [
            member
            for member in plan.members(folder)
            if member.variant == variant.name and member.seed in variant.seeds
        ]
        evaluations = [member.run.read_metrics()[result.split]["evaluation"] for member in members]
        own = OwnRow(variant.name, members[0].settings, evaluations, variant.parameters, variant.gmac)
        rows.append(own)
    return [among_published(table, rows, result.split)]


def check_start(plan: StudyPlan, ray: str | None) -> None:
    """Detect errors that members would fail with before any starts; but not what the machines of Ray lack."""
    for variant in plan.variants:
        settings = plan.member_settings(variant, plan.seeds[0])
        if ray is None:
            check_machine(settings)
