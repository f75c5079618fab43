"""`kmcl data audit` and `kmcl data correct`: likely wrong labels, and a table without them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kmcl.cli.data_arguments import DataArgument, OptionArgument, parse_dataset_options

if TYPE_CHECKING:
    from rich.console import Console

    from kmcl.data import Split
    from kmcl.labelling.audit import Audit
    from kmcl.labelling.image_features import FeatureExtractor

SHOWN_FINDINGS = 4
KINDS = {
    "missing": "labels that are most likely missing",
    "wrong": "labels that are most likely wrong",
    "near-duplicate": "labels that nearly identical images have differently",
}


def audit(
    data: DataArgument,
    option: OptionArgument = None,
    run: Annotated[
        Optional[Path],  # noqa: UP045
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
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Find labels that are likely wrong or missing, and near-duplicates with different labels.

    Each label is judged by the images and labels of all others (of other groups, where there are groups), and
    by the other labels of its image. Writes audit.html, where each finding is accepted or rejected with a
    key, and findings.csv with the same findings. `kmcl data correct` applies the decisions.
    """
    from rich.console import Console

    from kmcl.cli.report import show
    from kmcl.data import open_dataset
    from kmcl.data.selection import join_splits
    from kmcl.data.table_writing import table_cells
    from kmcl.data.vectors import feature_dim
    from kmcl.errors import InputError
    from kmcl.labelling.audit import audit_dataset
    from kmcl.labelling.audit_page import audit_page, write_audit
    from kmcl.labelling.findings_table import findings_to_csv

    dataset = open_dataset(data, **parse_dataset_options(option))
    everything = join_splits(dataset)
    console = Console(stderr=True)
    width = feature_dim(dataset)
    result = audit_dataset(dataset, _extractor(run, console, width), count, seed, on_step=console.print)
    source = _source_of(data)
    folder = None if source is None else source.parent
    in_files = width is None and Path(everything.images.name(0)).is_file()
    try:
        table = list(table_cells(dataset, folder)) if in_files else None
    except InputError as error:  # the decisions can be saved nevertheless
        console.print(f"The page has no corrected table: {error}", markup=False, soft_wrap=True)
        table = None
    advice = "" if source is None else f"corrected.csv belongs beside {source.name}: its paths start there. "
    written = "corrected.csv" if width is None else "corrected.npz"
    command = f"kmcl data correct {data} decisions.csv --output {written}"
    page = audit_page(
        result,
        f"Labels of {dataset.name}",
        everything,
        table,
        f"{advice}The command {command} makes the same table from decisions.csv."
        if width is None
        else f"The command {command} applies decisions.csv.",
    )
    path = write_audit(output, page, findings_to_csv(result, everything))
    _print_findings(result, everything)
    show(path, open_)


def _extractor(run: Path | None, console: Console, feature_dim: int | None) -> FeatureExtractor:
    from kmcl.labelling.image_features import FeatureExtractor, pretrained_extractor, vector_extractor

    if feature_dim is not None:
        return vector_extractor(console, feature_dim)  # an encoder would see nothing else
    if run is None:
        return pretrained_extractor(console)
    from kmcl.serving.loading import load_in_torch

    return FeatureExtractor(load_in_torch(run).classifier, console)


def _print_findings(result: Audit, everything: Split) -> None:
    from kmcl.labelling.audit import percent

    for kind, words in KINDS.items():
        found = [finding for finding in result.findings if finding.kind == kind]
        typer.echo(f"{words}: {len(found)}")
        for finding in found[:SHOWN_FINDINGS]:
            name = everything.images.name(finding.row)
            typer.echo(f"  {percent(finding.probability)}  {name}: {finding.reasons[0]}")
    for reason in list(result.unreadable.values())[:SHOWN_FINDINGS]:
        typer.echo(f"kmcl: {reason}", err=True)


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
    option: OptionArgument = None,
) -> None:
    """Write the labels of DATA as a table with the accepted suggestions of `kmcl data audit`."""
    from kmcl.data import open_dataset
    from kmcl.data.table_writing import write_table
    from kmcl.data.vector_writing import write_vectors
    from kmcl.data.vectors import feature_dim
    from kmcl.errors import InputError
    from kmcl.labelling.findings_table import correct_labels

    dataset = open_dataset(data, **parse_dataset_options(option))
    if output.exists() and output.resolve() == (_source_of(data) or Path()).resolve():
        raise InputError(f"{output}: is the dataset itself; choose another file for --output")
    of_vectors = feature_dim(dataset) is not None
    first = next(split.images.name(0) for split in dataset.splits.values() if len(split))
    if not of_vectors and not Path(first).is_file():
        raise InputError(
            f"{first}: is no image file, which a table needs; write the images with kmcl data convert, and "
            "audit the table it writes"
        )
    corrected = correct_labels(dataset, decisions)
    try:
        if of_vectors:
            write_vectors(corrected.dataset, output)
        else:
            write_table(corrected.dataset, output, output.parent)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    typer.echo(
        f"{output}: {corrected.num_changed} labels changed, {corrected.num_rejected} kept, "
        f"{corrected.num_undecided} not decided"
    )


def _source_of(data: str) -> Path | None:
    """The file of a table or of feature vectors."""
    path = Path(data.removeprefix("table:").removeprefix("features:"))
    return path if path.is_file() else None
