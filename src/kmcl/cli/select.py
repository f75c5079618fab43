"""`kmcl select`: which images to label next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.data import Dataset
    from kmcl.labelling.next_images import Chosen

StrategyName = Literal["spread", "uncertain", "random"]


def select(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model folder.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Images, folders or patterns (*.jpg).")
    ],
    count: Annotated[int, typer.Option(min=1, help="Images to choose.")] = 100,
    strategy: Annotated[
        StrategyName,
        typer.Option(
            help="spread: unlike the labelled images and each other, slightly better than random on "
            "photographs; uncertain: unclear labels, which was worse than random there; random."
        ),
    ] = "spread",
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("to-label"),
    url_prefix: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="URL",
            help="Where Label Studio finds the images: what their paths are appended to.",
            show_default="its local files",
        ),
    ] = None,
    url_root: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="The folder that these paths start from; of local files the document root.",
            show_default="/",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the contact sheet in the browser.")] = False,
) -> None:
    """Choose the images to label next, and write them as a table, Label Studio tasks and a contact sheet.

    Images that the run's dataset has already are left out. The tasks have the model's predictions as
    pre-annotations; label_config.xml is the labelling configuration that they need.
    """
    from rich.console import Console

    from kmcl.cli.report import show
    from kmcl.data.image_paths import find_images
    from kmcl.labelling.next_images import choose_images
    from kmcl.serving.loading import load_in_torch

    found = find_images(paths)
    console = Console(stderr=True)
    predictor = load_in_torch(run)
    predictor.refuse_vectors("kmcl select")
    labelled = _dataset_of(run, console)
    chosen = choose_images(predictor, found.images, labelled, count, strategy, console, seed)
    page = _write(output, chosen, predictor.labels, run.resolve().name, url_prefix, url_root)
    for reason in chosen.unreadable:
        typer.echo(f"kmcl: {reason}", err=True)
    typer.echo(f"{len(chosen.images)} of {len(found.images)} images chosen ({strategy})")
    show(page, open_)


def _dataset_of(run: Path, console: object) -> Dataset | None:
    """What a run was trained on; None, with a notice, where it cannot be opened."""
    from kmcl.runs.dataset import open_run_dataset
    from kmcl.runs.folder import RunFolder

    if not RunFolder(run).settings_file.is_file():
        typer.echo(f"kmcl: {run} is no run, so that its labelled images are not known", err=True)
        return None
    try:
        return open_run_dataset(RunFolder(run).read_settings())
    except InputError as error:
        typer.echo(f"kmcl: the labelled images are not taken into account: {error}", err=True)
        return None


def _write(
    folder: Path,
    chosen: Chosen,
    labels: tuple[str, ...],
    run_name: str,
    url_prefix: str | None,
    url_root: Path | None,
) -> Path:
    from kmcl.data.readers.labelstudio import CONFIG
    from kmcl.data.writers.labelstudio import LOCAL_FILES, labeling_interface
    from kmcl.labelling.contact_sheet import write_contact_sheet
    from kmcl.labelling.label_studio_tasks import make_task
    from kmcl.labelling.next_images import chosen_to_csv
    from kmcl.storage.atomic import write_text

    prefix = LOCAL_FILES if url_prefix is None else url_prefix
    tasks = [
        make_task(one.path, url_root, prefix, labels, one.probabilities, one.present, run_name)
        for one in chosen.images
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "images.csv", chosen_to_csv(chosen, labels))
        write_text(folder / "tasks.json", json.dumps(tasks, indent=1) + "\n")
        write_text(folder / CONFIG, labeling_interface(labels))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return write_contact_sheet(folder, run_name, chosen, labels)
