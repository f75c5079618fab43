"""What the commands that run studies share: their arguments, and running one with its tables shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from kmcl.cli.data import parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED
from kmcl.errors import InputError
from kmcl.training.settings import PRESETS, TrainingSettings, resolve_settings

if TYPE_CHECKING:
    from kmcl.reports.blocks import Picture
    from kmcl.studies.plan import StudyPlan
    from kmcl.studies.results import StudyResult

NOT_OF_STUDIES = ("data", "data_options", "method", "seed", "devices", "nodes")
"""Settings without a flag: a study has methods and seeds, and a process for each training."""

DataArgument = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(
        metavar="DATA", help="Dataset word: digits, table:labels.csv, voc2007:DIR, coco2014:DIR, ..."
    ),
]
SeedsOption = Annotated[str, typer.Option(metavar="0,1,2", help="Every method is trained with each.")]
PresetOption = Annotated[str, typer.Option(help=f"Starting point: {', '.join(PRESETS)}.")]
ConfigOption = Annotated[Optional[Path], typer.Option(help="YAML file of settings, over the preset.")]  # noqa: UP045
OutputOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", help="Folder of the study.", show_default="runs/..., by the settings"),
]
ResumeOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="FOLDER", help="Go on with this study; the same command again does it too."),
]
JobsOption = Annotated[
    int, typer.Option(min=1, help="Trainings at a time, each with its share of the cores or its own GPU.")
]


def study_settings(
    data: str | None, preset: str, config: Path | None, option: list[str] | None, flags: dict[str, Any]
) -> TrainingSettings:
    options = parse_dataset_options(option)
    return resolve_settings(data, preset, config, {**flags, "data_options": options or None})


def parse_numbers(name: str, text: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    """`0,1,2` as numbers."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--{name} must be numbers separated by commas; got {text!r}") from None


def refuse_beside_resume(data: str | None, config: Path | None, output: Path | None, flags: Any) -> None:
    if data or config or output or any(value is not None for value in flags):
        raise InputError("--resume goes on with the settings the study was started with; give nothing else")


def run_and_show(
    plan: StudyPlan,
    output: Path | None,
    jobs: int,
    draw: Callable[[StudyResult], Sequence[Picture]],
) -> None:
    """Run a study to its end, write and show its results; status 1 where members failed."""
    from rich.console import Console

    from kmcl.reports.figure_files import write_picture
    from kmcl.studies.locks import held
    from kmcl.studies.plan import default_folder
    from kmcl.studies.study import run_study

    console = Console()
    folder = output or default_folder(plan)
    console.print(f"study folder: {folder}", soft_wrap=True, highlight=False)
    try:
        result = run_study(plan, folder, jobs=jobs, console=console)
    except KeyboardInterrupt as stop:
        typer.echo(f"Stopped; go on with the same command, or with --resume {folder}", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    with held(folder / "locks" / "results.lock"):
        for picture in draw(result):
            write_picture(picture, folder)
    if int(os.environ.get("RANK", 0)) == 0:
        typer.echo((folder / "table.md").read_text(encoding="utf-8"))
        console.print(f"results: {folder}/table.md, table.csv, results.json and figures", soft_wrap=True)
    if result.failures:
        raise typer.Exit(1)


def resumed_plan(
    kind: str,
    resume: Optional[Path],  # noqa: UP045
    data: str | None,
    config: Path | None,
    output: Path | None,
    given: tuple[Any, ...],
) -> StudyPlan | None:
    """The plan of the study to go on with, if there is one."""
    from kmcl.studies.plan import read_plan

    if resume is None:
        return None
    refuse_beside_resume(data, config, output, given)
    plan = read_plan(resume)
    if plan.kind != kind:
        raise InputError(f"{resume}: is a study of kind {plan.kind!r}; go on with kmcl {plan.kind} --resume")
    return plan
