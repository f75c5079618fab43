"""`kmcl data`: summarise a dataset (describe), find problems (check, audit), write it (convert, shard)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kmcl.cli.audit import audit, correct
from kmcl.cli.data_arguments import DataArgument, OptionArgument, parse_dataset_options

if TYPE_CHECKING:
    from rich.table import Table

    from kmcl.data.check import CheckReport
    from kmcl.data.describe import Description


class ShardForm(StrEnum):
    """What `kmcl data shard` writes."""

    tar = "tar"
    litdata = "litdata"


data_app = typer.Typer(help="Describe, check, audit, convert and shard datasets.", no_args_is_help=True)
data_app.command("audit")(audit)
data_app.command("correct")(correct)

JsonArgument = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

SHOWN_PROBLEMS = 50


@data_app.command("describe")
def describe_command(
    data: DataArgument,
    option: OptionArgument = None,
    as_json: JsonArgument = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write figures (PNG) to this folder.")
    ] = None,
) -> None:
    """Show sizes, labels per image, counts per label, correlations and image sizes."""
    from kmcl.data import open_dataset
    from kmcl.data.describe import describe

    description = describe(open_dataset(data, **parse_dataset_options(option)))
    written: list[Path] = []
    if figures is not None:
        from kmcl.data.figures import save_figures

        written = save_figures(description, figures)
    if as_json:
        typer.echo(json.dumps(asdict(description), indent=2))
        return
    _print_description(description)
    _print_notes(description.notes)
    for path in written:
        typer.echo(f"wrote {path}")


@data_app.command("check")
def check_command(
    data: DataArgument,
    option: OptionArgument = None,
    as_json: JsonArgument = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 2,
) -> None:
    """Decode every image and list all problems. Exit status 1 if there are any, 2 if rows cannot be used."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kmcl.data.check import check_spec

    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task("decoding", total=None)
        report = check_spec(
            data,
            parse_dataset_options(option),
            threads,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
    else:
        _print_report(report)
        _print_notes(report.notes)
    if report.problems:
        raise typer.Exit(2 if report.summary else 1)


@data_app.command("convert")
def convert_command(
    data: DataArgument,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Format and new folder: table:FOLDER (or FOLDER alone), coco:FOLDER, folder:FOLDER, "
            "labelstudio:FOLDER or hf:FOLDER.",
        ),
    ],
    option: OptionArgument = None,
) -> None:
    """Write DATA in another format: its images, labels and splits. Images that are files stay as they are."""
    from kmcl.data import open_dataset
    from kmcl.data.writers.registry import write_dataset

    dataset = open_dataset(data, **parse_dataset_options(option))
    with _writing(sum(len(split) for split in dataset.splits.values())) as on_image:
        spec = write_dataset(dataset, target, on_image)
    typer.echo(f"wrote {spec}")


@data_app.command("shard")
def shard_command(
    data: DataArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    images: Annotated[int, typer.Option("--images", min=1, help="Images in a shard.")] = 1000,
    form: Annotated[
        ShardForm, typer.Option("--form", help="tar: as WebDataset's; litdata: chunks of LitData.")
    ] = ShardForm.tar,
    option: OptionArgument = None,
) -> None:
    """Write DATA as shards, which `shards:` opens."""
    from kmcl.data import open_dataset
    from kmcl.data.litdata_writing import write_chunks
    from kmcl.data.shard_writing import write_shards

    dataset = open_dataset(data, **parse_dataset_options(option))
    with _writing(sum(len(split) for split in dataset.splits.values())) as on_image:
        write = write_chunks if form == ShardForm.litdata else write_shards
        written = write(dataset, folder, images, on_image)
    what = "folders of chunks" if form == ShardForm.litdata else "shards"
    typer.echo(f"wrote {len(written)} {what}; open them as shards:{folder}")


@contextmanager
def _writing(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar; what it gives is called with the number of images that were written."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("writing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task("writing", total=total)
        yield lambda count: bar.advance(task, count)


def _new_table(title: str, text_columns: list[str], number_columns: list[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in text_columns:
        table.add_column(name, overflow="fold")
    for name in number_columns:
        table.add_column(name, justify="right")
    return table


def _print_description(description: Description) -> None:
    from rich.console import Console

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
    from rich.console import Console
    from rich.markup import escape

    for note in notes:
        Console().print(f"note: {escape(note)}", soft_wrap=True, highlight=False)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _print_report(report: CheckReport) -> None:
    from rich.console import Console
    from rich.markup import escape

    from kmcl.data.check import EXAMPLES

    console = Console()
    if not report.problems:
        console.print(f"{escape(report.name)}: {report.num_images:,} images, nothing wrong")
        return
    problems = [problem for problem in report.problems if problem.kind != "unusable row"]
    if report.summary:
        num_refused = len(report.problems) - len(problems)
        console.print(
            f"{escape(report.name)}: {_counted(num_refused, 'problem')} in rows that cannot be used",
            soft_wrap=True,
            highlight=False,
        )
        for sentence in report.summary:
            console.print(f"  {escape(sentence)}", soft_wrap=True, highlight=False)
        if num_refused > EXAMPLES:
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
