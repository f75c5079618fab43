"""`kmcl report`: one or several runs as an HTML page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; the first is the base.")],
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Folder to write to.", show_default="RUN/report, or report next to the first of several"
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    groups: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="YAML or JSON file: name of a group, list of its labels.", show_default="found by clustering"
        ),
    ] = None,
    image: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="An image to explain; may be given several times."),
    ] = None,
    saliency: Annotated[
        str, typer.Option(help="Images to explain besides: random, disagreement (of two runs) or none.")
    ] = "random",
    num_images: Annotated[int, typer.Option(min=0, help="How many of them.")] = 6,
    num_masked: Annotated[
        int,
        typer.Option(
            min=0,
            help="Images on which the label that a label usually occurs with is covered: 12 for each label.",
        ),
    ] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
) -> None:
    """Write a report of RUN: one HTML file for a browser, with its figures as SVG and PNG files.

    With several runs, they are compared. Missing parts of a run are listed in the report.
    """
    from rich.console import Console

    from kmcl.reports import ReportSettings, write_report
    from kmcl.reports.progress import ReportProgress
    from kmcl.runs.folder import RunFolder

    settings = ReportSettings(groups, tuple(image or ()), saliency, num_images, seed, num_masked)  # type: ignore[arg-type]
    folder = output or (runs[0] / "report" if len(runs) == 1 else runs[0].resolve().parent / "report")
    with ReportProgress(Console(stderr=True)) as progress:
        page = write_report(runs, folder, settings, progress)
    if len(runs) == 1 and any(RunFolder(runs[0]).logs.glob("*.json")):
        # Tracked by a service. The module loads Lightning, which takes seconds.
        from kmcl.training.tracking import track_page

        track_page(runs[0], page, partial(typer.echo, err=True))
    show(page, open_)


def show(page: Path, in_browser: bool) -> None:
    """Print the path of the page, and open it if requested."""
    typer.echo(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if in_browser:
        typer.launch(page.resolve().as_uri())
