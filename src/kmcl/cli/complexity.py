"""`kmcl complexity`: the size and the cost of every method on an encoder, and the paper's figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmcl.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_ENCODER = "tf_efficientnet_lite0"
DEFAULT_LABELS = 20


def complexity(
    encoder: Annotated[
        str | None, typer.Option(help="Any encoder of timm.", show_default=DEFAULT_ENCODER)
    ] = None,
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
    labels: Annotated[
        int | None, typer.Option(min=1, help="Number of labels.", show_default=str(DEFAULT_LABELS))
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side of the images in pixels.", show_default="the encoder's own"),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Compare with the paper's figures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print how many parameters a classifier has and how much it computes per image (GMAC)."""
    if paper:
        given = {
            "--encoder": encoder,
            "--method": method,
            "--kernel": kernel,
            "--labels": labels,
            "--image-size": image_size,
        }
        chosen = [name for name, value in given.items() if value is not None]
        if chosen:
            raise InputError(f"--paper has its own encoders and labels and does not go with {chosen[0]}.")
        rows = _paper_rows()
    else:
        rows = _rows(encoder or DEFAULT_ENCODER, method, kernel, labels or DEFAULT_LABELS, image_size)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return

    from rich.console import Console

    Console().print(_paper_table(rows) if paper else _table(rows))


def _rows(
    encoder: str, method: str | None, kernel: str | None, num_labels: int, image_size: int | None
) -> list[dict[str, Any]]:
    from kmcl.models.complexity import own_image_size
    from kmcl.models.method_complexity import measure_methods

    image_size = image_size or own_image_size(encoder)
    return [
        {
            "encoder": encoder,
            "image_size": image_size,
            "labels": num_labels,
            "method": measured.method,
            "kernel": measured.kernel,
            "parameters": measured.complexity.parameters,
            "gmac": measured.complexity.gmac,
        }
        for measured in measure_methods(encoder, num_labels, image_size, method=method, kernel=kernel)
    ]


def _paper_rows() -> list[dict[str, Any]]:
    from kmcl.models.published_complexity import PUBLISHED, published_counterpart

    rows = []
    for row in PUBLISHED:
        as_in_paper = published_counterpart(row)
        rows.append(
            {
                "method": row.method,
                "encoder": row.encoder,
                "image_size": row.image_size,
                "labels": row.num_labels,
                "kernel": row.kernel,
                "parameters": published_counterpart(row, paper_count=False).parameters,
                "parameters_as_in_paper": as_in_paper.parameters,
                "parameters_millions_paper": row.parameters_millions,
                "gmac": as_in_paper.gmac,
                "gmac_paper": row.gmac,
            }
        )
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    first = rows[0]
    table = Table(title=f"{first['encoder']} at {first['image_size']} px, {first['labels']} labels")
    table.add_column("method")
    table.add_column("parameters (M)", justify="right")
    table.add_column("GMAC", justify="right")
    for row in rows:
        name = f"{row['method']} ({row['kernel']})" if row["kernel"] else row["method"]
        table.add_row(name, f"{row['parameters'] / 1e6:.2f}", f"{row['gmac']:.3f}")
    return table


def _paper_table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(
        title=f"The paper's tables, {rows[0]['labels']} labels; parameters in millions",
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
            row["kernel"] or row["method"],
            row["encoder"],
            str(row["image_size"]),
            f"{row['parameters_millions_paper']:.2f}",
            f"{row['parameters_as_in_paper'] / 1e6:.2f}",
            f"{row['parameters'] / 1e6:.2f}",
            f"{row['gmac_paper']:.2f}",
            f"{row['gmac']:.2f}",
        )
    return table
