"""A study from its plan to its tables: check, run what is missing, measure."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from kmcl.studies.command import command_of
from kmcl.studies.plan import StudyPlan, enter_plan
from kmcl.studies.progress import StudyProgress
from kmcl.studies.published_tables import OwnRow, among_published, published_table
from kmcl.studies.results import StudyResult, collect
from kmcl.studies.running import StudyRun
from kmcl.studies.tables import write_tables


def run_study(
    plan: StudyPlan,
    folder: Path,
    *,
    jobs: int = 1,
    console: Console | None = None,
) -> StudyResult:
    """Train every member that is not finished, then write table.md, table.csv and results.json.

    May be called again after any interruption, and by several processes at once: finished members are left
    alone, interrupted ones go on from their last epoch, and no two processes train the same. What the folder
    has of other variants and seeds stands in the results too. From a script, call it under
    `if __name__ == "__main__":`; members run in processes of their own, which import it.
    """
    check_data_and_methods(plan)
    joined = enter_plan(folder, plan)
    wanted = {member.name for member in plan.members(folder)}
    members = [member for member in joined.members(folder) if member.name in wanted]
    with StudyProgress(console or Console(quiet=True), members, jobs) as progress:
        failures = StudyRun(jobs, progress).run(members)
    result = collect(joined, folder, failures)
    write_tables(result, folder, command_of(joined), published_sections(joined, folder, result))
    return result


def published_sections(plan: StudyPlan, folder: Path, result: StudyResult) -> list[str]:
    """The study's methods among the paper's, where the paper has figures of these data."""
    of_kernels = plan.kind == "study kernels"
    table = published_table(plan.settings.data, of_kernels=of_kernels)
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


def check_data_and_methods(plan: StudyPlan) -> None:
    """Find what every member would fail on before any begins."""
    from kmcl.data import open_dataset
    from kmcl.methods import find_method

    for variant in plan.variants:
        find_method(variant.method)
    open_dataset(plan.settings.data, **plan.settings.data_options)
