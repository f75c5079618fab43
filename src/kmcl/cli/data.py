"""`kmcl data`: summarise a dataset (describe), find problems (check, audit), write it (convert, shard)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kmcl import api
from kmcl.cli.audit import audit, correct
from kmcl.cli.data_arguments import DataArgument, OptionArgument, parse_dataset_options

if TYPE_CHECKING:
    from kmcl.data.check import CheckReport
    from kmcl.data.describe import Description

data_app = typer.Typer(no_args_is_help=True)
data_app.command("audit")(audit)
data_app.command("correct")(correct)

JsonArgument = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

SHOWN_PROBLEMS = 50


@data_app.command()
def describe(
    data: DataArgument,
    options: OptionArgument = None,
    as_json: JsonArgument = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write figures (PNG) to this folder.")
    ] = None,
) -> None:
    """Show sizes, labels per image, counts per label, correlations and image sizes."""
    described = api.describe_data(data, options=parse_dataset_options(options), figures=figures)
    if as_json:
        typer.echo(json.dumps(asdict(described.description), indent=2))
        return
    _print_description(described.description)
    _print_notes(described.description.notes)
    for path in described.figures:
        typer.echo(f"wrote {path}")


@data_app.command()
def check(
    data: DataArgument,
    options: OptionArgument = None,
    as_json: JsonArgument = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 2,
) -> None:
    """Decode every image and list all problems. Exit status 1 if there are any, 2 if rows cannot be used."""
    report = api.check_data(data, options=parse_dataset_options(options), threads=threads)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
    else:
        _print_report(report)
        _print_notes(report.notes)
    if report.problems:
        raise typer.Exit(2 if report.summary else 1)


@data_app.command()
def convert(
    data: DataArgument,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Format and new folder: table:FOLDER (or FOLDER alone), coco:FOLDER, folder:FOLDER, "
            "labelstudio:FOLDER or hf:FOLDER.",
        ),
    ],
    options: OptionArgument = None,
) -> None:
    """Write DATA in another format: its images, labels and splits. Images that are files stay as they are."""
    typer.echo(f"wrote {api.convert_data(data, target, options=parse_dataset_options(options))}")


@data_app.command()
def shard(
    data: DataArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    images: Annotated[int, typer.Option("--images", min=1, help="Images in a shard.")] = 1000,
    form: Annotated[
        Literal["tar", "litdata"],
        typer.Option("--form", help="tar: as WebDataset's; litdata: chunks of LitData."),
    ] = "tar",
    options: OptionArgument = None,
) -> None:
    """Write DATA as shards, which `shards:` opens."""
    given = parse_dataset_options(options)
    written = api.shard_data(data, folder, images=images, form=form, options=given)
    what = "folders of chunks" if form == "litdata" else "shards"
    typer.echo(f"wrote {len(written)} {what}; open them as shards:{folder}")


def _new_table(title: str, text_columns: list[str], number_columns: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in text_columns:
        table.add_column(name, overflow="fold")
    for name in number_columns:
        table.add_column(name, justify="right")
    return table


def _print_description(description: Description) -> None:
    console = Console()
    names = [split.name for split in description.splits]
    splits = _new_table(
        description.name, ["split"], ["images", "without label", "labels per image", "groups"]
    )
    for split in description.splits:
        groups = "-" if split.num_groups is None else f"{split.num_groups:,}"
        numbers = (
            f"{split.num_images:,}",
            f"{split.num_unlabelled:,}",
            f"{split.labels_per_image:.2f}",
            groups,
        )
        splits.add_row(split.name, *numbers)
    console.print(splits)

    has_unknown = any(any(label.unknown.values()) for label in description.labels)
    labels = _new_table(
        "images per label", ["label"], [*names, "share", *(["unknown"] if has_unknown else [])]
    )
    for label in description.labels:
        cells = [f"{label.positives[name]:,}" for name in names] + [f"{label.prevalence:.1%}"]
        labels.add_row(label.name, *cells, *([f"{sum(label.unknown.values()):,}"] if has_unknown else []))
    console.print(labels)

    histogram = _new_table("labels per image", [], ["labels", "share of images"])
    for count, share in enumerate(description.labels_histogram):
        histogram.add_row(str(count), f"{share:.1%}")
    console.print(histogram)

    pairs = _new_table("strongest correlations", ["label", "and"], ["correlation", "images with both"])
    for pair in description.correlations:
        pairs.add_row(pair.first, pair.second, f"{pair.correlation:+.2f}", f"{pair.num_together:,}")
    console.print(pairs)

    sizes = description.image_sizes
    if sizes.widths is not None and sizes.heights is not None:
        spread = [f"{low} to {high}, median {middle}" for low, middle, high in (sizes.widths, sizes.heights)]
        console.print(f"{sizes.num_sampled} sampled images: width {spread[0]}; height {spread[1]}")
    if description.feature_dim is not None:
        console.print(f"feature vectors of {description.feature_dim:,} numbers instead of images")
    if sizes.num_unreadable:
        console.print(f"{sizes.num_unreadable} sampled images cannot be read: see kmcl data check")


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        Console().print(f"note: {escape(note)}", soft_wrap=True, highlight=False)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _print_report(report: CheckReport) -> None:
    console = Console()
    if not report.problems:
        console.print(f"{escape(report.name)}: {report.num_images:,} images, nothing wrong")
        return
    problems = [problem for problem in report.problems if problem.kind != "unusable row"]
    if report.summary:
        console.print(
            f"{escape(report.name)}: {_counted(report.num_refused, 'problem')} in rows that cannot be used",
            soft_wrap=True,
            highlight=False,
        )
        for sentence in report.summary:
            console.print(f"  {escape(sentence)}", soft_wrap=True, highlight=False)
        if not report.is_summary_complete:
            console.print("  --json lists them all", highlight=False)
        if not problems and report.num_images:
            kept = _counted(report.num_images, "image")
            console.print(f"the other rows: {kept}, nothing wrong", highlight=False)
    if not problems:
        return
    checked = "the other rows" if report.summary else report.name
    title = f"{checked}: {_counted(len(problems), 'problem')}"
    table = _new_table(title, ["problem", "where", "what"], [])
    for problem in problems[:SHOWN_PROBLEMS]:
        place = [problem.split or ""]
        if problem.line is not None:
            place.append(f"line {problem.line}")
        elif problem.row is not None:
            place.append(f"row {problem.row}")
        table.add_row(problem.kind, " ".join(place).strip(), escape(problem.message))
    console.print(table)
    if len(problems) > SHOWN_PROBLEMS:
        console.print(f"and {len(problems) - SHOWN_PROBLEMS:,} more; --json lists them all")
