"""`kmcl predict`: labels for images, from files, folders, lists, tables and archives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption
from kmcl.errors import InputError
from kmcl.serving.engine_choice import ENOUGH_TO_CONVERT, Engine


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run or model folder, a hub model OWNER/NAME, or an .onnx file."
        ),
    ],
    sources: Annotated[
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
        Path | None,
        typer.Option(
            help="Write to this file instead of printing; the form follows its ending: "
            ".csv, .json, .jsonl (an object per line) or .parquet. After an interruption the same command "
            "goes on."
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Predict the share K of N, as one of N commands that differ in nothing else; the one that "
            "finishes last writes the output.",
            show_default="all",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
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
    if as_json and as_csv:
        raise InputError("--json and --csv cannot be combined")
    predicted = api.predict(
        run,
        sources,
        output=output,
        form="json" if as_json else "csv" if as_csv else None,
        wide=wide,
        part=part,
        batch_size=batch_size,
        engine=engine,
        sigma=sigma,
        features=features,
        guarantee=guarantee,
        abstain=abstain,
    )
    if predicted.num_unreadable:
        raise typer.Exit(1)
