"""`kmcl data audit` and `kmcl data correct`: likely wrong labels, and a table without them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.data_arguments import DataArgument, OptionArgument, parse_dataset_options
from kmcl.cli.written_page import OpenOption, show

SHOWN_FINDINGS = 4
KINDS = {
    "missing": "labels that are most likely missing",
    "wrong": "labels that are most likely wrong",
    "near-duplicate": "labels that nearly identical images have differently",
}


def audit(
    data: DataArgument,
    options: OptionArgument = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Compare images by the encoder of this run or model. It has seen the labels of its training "
            "images, wrong ones too, so it suits other data best.",
            show_default="a pretrained encoder",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Findings, and as many near-duplicates at most.")] = 200,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("audit"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    open_: OpenOption = False,
) -> None:
    """Find labels that are likely wrong or missing, and near-duplicates with different labels.

    Each label is judged by the images and labels of all others (of other groups, where there are groups), and
    by the other labels of its image. Writes audit.html, where each finding is accepted or rejected with a
    key, and findings.csv with the same findings. `kmcl data correct` applies the decisions.
    """
    given = parse_dataset_options(options)
    written = api.audit(data, options=given, run=run, count=count, output=output, seed=seed)
    for kind, words in KINDS.items():
        found = [finding for finding in written.audit.findings if finding.kind == kind]
        typer.echo(f"{words}: {len(found)}")
        for finding in found[:SHOWN_FINDINGS]:
            typer.echo(f"  {written.in_words(finding)}")
    for reason in list(written.audit.unreadable.values())[:SHOWN_FINDINGS]:
        typer.echo(f"kmcl: {reason}", err=True)
    show(written.page, open_)


def correct(
    data: DataArgument,
    decisions: Annotated[
        Path,
        typer.Argument(
            metavar="DECISIONS", help="decisions.csv of the page, or findings.csv with its column filled in."
        ),
    ],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The table to write (CSV); of feature vectors an .npz file.")
    ],
    options: OptionArgument = None,
) -> None:
    """Write the labels of DATA as a table with the accepted suggestions of `kmcl data audit`."""
    corrected = api.correct(data, decisions, output, options=parse_dataset_options(options))
    typer.echo(
        f"{output}: {corrected.num_changed} labels changed, {corrected.num_rejected} kept, "
        f"{corrected.num_undecided} not decided"
    )
