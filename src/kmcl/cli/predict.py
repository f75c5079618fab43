"""`kmcl predict`: labels for images, from files, folders, lists, tables and archives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption, say_guarantee
from kmcl.cli.prediction_forms import PredictionFiles, choose_form
from kmcl.cli.prediction_run import ENOUGH_TO_CONVERT, PredictionRun
from kmcl.errors import InputError
from kmcl.serving.engine_choice import Engine


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run or model folder, a hub model OWNER/NAME, or an .onnx file."
        ),
    ],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Images, folders, patterns (*.jpg), lists of paths (.txt), tables and other datasets "
            "(table:labels.csv), uncompressed tar files (WebDataset's shards); feature vectors "
            "(features:FILE) for a model that takes these.",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per line and image.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per image and label.")] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per image and one column per label (CSV or Parquet).")
    ] = False,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Write to this file instead of printing; the form follows its ending: "
            ".csv, .json, .jsonl (an object per line) or .parquet. After an interruption the same command "
            "goes on."
        ),
    ] = None,
    part: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="K/N",
            help="Predict the share K of N, as one of N commands that differ in nothing else; the one that "
            "finishes last writes the output.",
            show_default="all",
        ),
    ] = None,
    batch_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Images per batch.", show_default="by image size"),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help=f"What computes the model. auto: from {ENOUGH_TO_CONVERT:,} images on onnxruntime, if the "
            "extra export is installed, else torch."
        ),
    ] = Engine.auto,
    sigma: Annotated[
        bool, typer.Option("--sigma", help="Add sigma, the width of each label's kernel.")
    ] = False,
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Add columns feature_1 to feature_8, by whose means kmcl monitor compares images with val.",
        ),
    ] = False,
    guarantee: GuaranteeOption = None,
    abstain: AbstainOption = None,
) -> None:
    """Predict the labels of images: probability with its 90 % interval, threshold and decision.

    A label is present where its probability reaches its threshold; both are calibrated on val. The
    unfamiliarity of an image is the share of val that is less unlike the training images, if the model has
    that post-hoc part; from 0.95 on the image counts as unlike them.
    Unreadable images are reported, and have the reason in the column error; the exit status is then 1. Files
    of a folder that are no images are listed.
    """
    form = choose_form(output, as_json=as_json, as_csv=as_csv, wide=wide)
    if abstain is not None and wide:
        raise InputError("--wide has one column per label, and no place for the decisions of --abstain")
    if features and form == "table":
        raise InputError("--features adds columns of numbers; give --output, --csv or --json with it")
    if part is not None and output is None:
        raise InputError("--part needs --output, the file that all parts write together")
    if form == "parquet":
        import pyarrow  # noqa: F401  # missing packages are found before any image is predicted

    from rich.console import Console

    from kmcl.serving import load
    from kmcl.serving.image_sources import ImageSource
    from kmcl.serving.prediction_job import Part
    from kmcl.serving.predictions import Columns

    chosen = None if part is None else Part.parse(part)
    source = ImageSource(paths)
    predictor = load(run, guarantee=guarantee)
    say_guarantee(predictor.rules)
    cutoff = None
    if abstain is not None:
        from kmcl.runs.guarantee import cutoff_of_run

        cutoff = cutoff_of_run(predictor.rules, abstain, run)
    if features and not predictor.summary_size:
        raise InputError(
            f"--features: {run} gives none: it has no post-hoc part unfamiliarity, or an earlier version "
            "exported it"
        )
    columns = Columns(
        sigma,
        cutoff is not None,
        predictor.has_unfamiliarity,
        error=True,
        num_features=predictor.summary_size if features else 0,
    )
    files = PredictionFiles(form, columns, predictor.labels, wide)
    running = PredictionRun(predictor, source, files, cutoff, engine, batch_size, Console(stderr=True))
    if output is None:
        running.print_to(sys.stdout)
    else:
        running.write_to(output, chosen)
    if running.num_unreadable:
        raise typer.Exit(1)
