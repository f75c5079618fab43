"""`kmcl complexity`: the size and the cost of every method on an encoder, and the paper's figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kmcl import api
from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.models.method_complexity import MeasuredMethod
    from kmcl.models.published_complexity import ComparedComplexity


def complexity(
    context: typer.Context,
    encoder: Annotated[str, typer.Option(help="Any encoder of timm.")] = "tf_efficientnet_lite0",
    method: Annotated[
        str | None, typer.Option(help="One method, as of kmcl train.", show_default="all of them")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="KMCL with one kernel: isotropic, anisotropic, mahalanobis or gaussian.",
            show_default="all of them",
        ),
    ] = None,
    labels: Annotated[int, typer.Option(min=1, help="Number of labels.")] = 20,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side of the images in pixels.", show_default="the encoder's own"),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Compare with the paper's figures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print how many parameters a classifier has and how much it computes per image (GMAC)."""
    rows: Sequence[MeasuredMethod | ComparedComplexity]
    if paper:
        for name in ("encoder", "method", "kernel", "labels", "image_size"):
            source = context.get_parameter_source(name)
            if source is not None and source.name != "DEFAULT":
                flag = name.replace("_", "-")
                raise InputError(f"--paper has its own encoders and labels and does not go with --{flag}.")
        compared = api.published_complexity()
        rows, table = compared, _paper_table(compared)
    else:
        measured = api.complexity(encoder, method=method, kernel=kernel, labels=labels, image_size=image_size)
        rows, table = measured, _table(measured)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        Console().print(table)


def _table(rows: Sequence[MeasuredMethod]) -> Table:
    first = rows[0]
    table = Table(title=f"{first.encoder} at {first.image_size} px, {first.labels} labels")
    table.add_column("method")
    table.add_column("parameters (M)", justify="right")
    table.add_column("GMAC", justify="right")
    for row in rows:
        name = f"{row.method} ({row.kernel})" if row.kernel else row.method
        table.add_row(name, f"{row.parameters / 1e6:.2f}", f"{row.gmac:.3f}")
    return table


def _paper_table(rows: Sequence[ComparedComplexity]) -> Table:
    table = Table(
        title=f"The paper's tables, {rows[0].labels} labels; parameters in millions",
        caption="The paper also counts the encoder's own classifier, which a kernel mixture leaves unused, "
        'and not the label embeddings of ML-GCN: so does "ours"; "true" counts what is there. Our TDRG '
        "lacks the third scale and other parts of the published one (docs/paper.md).",
    )
    for column in ("KMCL kernel\nor method", "\nencoder"):
        table.add_column(column)
    for column in ("\npx", "params\npaper", "\nours", "\ntrue", "GMAC\npaper", "\nours"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.kernel or row.method,
            row.encoder,
            str(row.image_size),
            f"{row.parameters_millions_paper:.2f}",
            f"{row.parameters_as_in_paper / 1e6:.2f}",
            f"{row.parameters / 1e6:.2f}",
            f"{row.gmac_paper:.2f}",
            f"{row.gmac:.2f}",
        )
    return table
