"""`kmcl monitor`: drift between val and new predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.written_page import OpenOption, show

SHOWN_FINDINGS = 10


def monitor(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run whose model made the predictions.")],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PREDICTIONS...", help="Files that kmcl predict --output wrote."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="RUN/monitor"),
    ] = None,
    false_alarms: Annotated[
        float,
        typer.Option(help="Probability of any alarm where nothing has changed; above 0 and below 1."),
    ] = 0.01,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Part of a file name that is its group, such as '^[0-9]+' for a patient; one image of each "
            "group is compared.",
        ),
    ] = None,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with status 3 where drift is found.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    open_: OpenOption = False,
) -> None:
    """Compare new predictions with those of val: unfamiliar images, features, label rates, probabilities.

    Needs no targets. Writes a page, monitor.html, and monitor.json. The status is 0 whether or not there is
    drift, unless --fail-on-drift is given. Features are compared where the files have them, which
    kmcl predict --features writes.
    """
    monitored = api.monitor(run, files, output=output, false_alarms=false_alarms, group=group)
    drift = monitored.drift
    if as_json:
        typer.echo(json.dumps(monitored.to_json(), indent=2))
    else:
        found = drift.found
        typer.echo(
            f"{'drift' if found else 'no drift'}: {len(found)} of {len(drift.checks)} checks differ from "
            f"val, {drift.num_new} new images against {drift.num_val}"
        )
        for check in found[:SHOWN_FINDINGS]:
            typer.echo(f"  {monitored.in_words(check)}")
        if len(found) > SHOWN_FINDINGS:
            typer.echo(f"  and {len(found) - SHOWN_FINDINGS} more")
        if drift.not_compared:
            typer.echo(f"not compared, since val or the files lack it: {', '.join(drift.not_compared)}")
        for note in drift.notes:
            typer.echo(note)
        show(monitored.page, open_)
    if fail_on_drift and drift.found:
        raise typer.Exit(3)
