"""Shared by the commands that run studies: reading settings, resuming, running a study and showing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kmcl.cli.data_arguments import parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED
from kmcl.errors import InputError
from kmcl.runs.resolution import read_given

if TYPE_CHECKING:
    from kmcl.studies.plan import StudyPlan


def study_values(
    data: str | None, preset: str, config: Path | None, option: list[str] | None, flags: Mapping[str, Any]
) -> dict[str, Any]:
    """The common settings of a study by flat names: preset, then file, then flags."""
    options = parse_dataset_options(option)
    given = read_given(data, preset, config, {**flags, "data_options": options or None})
    return {**given.options, **given.values}


def parse_numbers(name: str, text: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    """`0,1,2` as numbers."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--{name} must be numbers separated by commas; got {text!r}") from None


def refuse_beside_resume(data: str | None, config: Path | None, output: Path | None, flags: Any) -> None:
    if data or config or output or any(value is not None for value in flags):
        raise InputError(
            "--resume continues a study with the settings it was started with; give nothing else"
        )


def run_and_show(plan: StudyPlan, output: Path | None, jobs: int, ray: str | None) -> None:
    """Run a study to completion and print its results; exit status 1 if members failed."""
    from rich.console import Console

    from kmcl.reports.study_figures import run_drawn_study
    from kmcl.reports.study_table import print_study
    from kmcl.studies.plan import default_folder

    console = Console()
    folder = output or default_folder(plan)
    console.print(f"study folder: {folder}", soft_wrap=True, highlight=False)
    try:
        result = run_drawn_study(plan, folder, jobs=jobs, ray=ray, console=console)
    except KeyboardInterrupt as stop:
        typer.echo(f"Stopped; resume with the same command, or with --resume {folder}", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    if int(os.environ.get("RANK", 0)) == 0:
        print_study(console, result)
        console.print(f"results: {folder}/table.md, table.csv, results.json and figures", soft_wrap=True)
    if result.failures:
        raise typer.Exit(1)


def resumed_plan(
    kind: str,
    resume: Path | None,
    data: str | None,
    config: Path | None,
    output: Path | None,
    given: tuple[Any, ...],
) -> StudyPlan | None:
    """The plan of the study to resume, if there is one."""
    from kmcl.runs.dataset import open_whole
    from kmcl.studies.plan import read_plan

    if resume is None:
        return None
    refuse_beside_resume(data, config, output, given)
    plan = read_plan(resume)
    if plan.kind != kind:
        raise InputError(
            f"{resume}: is a study of kind {plan.kind!r}; resume it with kmcl {plan.kind} --resume"
        )
    open_whole(plan.settings)  # an error in the data ends here, not in every training
    return plan
