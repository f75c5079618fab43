"""A study from its plan to its tables: check, run what is missing, measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from kmcl.studies.command import command_of
from kmcl.studies.plan import StudyPlan, enter_plan
from kmcl.studies.progress import StudyProgress
from kmcl.studies.results import StudyResult, collect
from kmcl.studies.running import StudyRun
from kmcl.studies.tables import write_tables


def run_study(
    plan: StudyPlan,
    folder: Path,
    *,
    jobs: int = 1,
    console: Console | None = None,
    notes: Sequence[str] = (),
) -> StudyResult:
    """Train every member that is not finished, then write table.md, table.csv and results.json.

    May be called again after any interruption, and by several processes at once: finished members are left
    alone, interrupted ones go on from their last epoch, and no two processes train the same. From a script,
    call it under `if __name__ == "__main__":`; members run in processes of their own, which import it.
    """
    check_data_and_methods(plan)
    plan = enter_plan(folder, plan)
    members = plan.members(folder)
    with StudyProgress(console or Console(quiet=True), members, jobs) as progress:
        failures = StudyRun(jobs, progress).run(members)
    result = collect(plan, folder, failures)
    write_tables(result, folder, command_of(plan), notes)
    return result


def check_data_and_methods(plan: StudyPlan) -> None:
    """Find what every member would fail on before any begins."""
    from kmcl.data import open_dataset
    from kmcl.methods import find_method

    for variant in plan.variants:
        find_method(variant.method)
    open_dataset(plan.settings.data, **plan.settings.data_options)
