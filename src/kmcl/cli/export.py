"""`kmcl export`: a trained model as one file, checked against the original."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer


class ExportFormat(StrEnum):
    """onnx for any runtime, without torch; torch for programs of torch.export."""

    ONNX = "onnx"
    TORCH = "torch"


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder, a model folder, or owner/name of the hub.")
    ],
    file_format: Annotated[
        ExportFormat, typer.Option("--format", help="onnx runs without torch; torch is a .pt2 program.")
    ] = ExportFormat.ONNX,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The file to write.", show_default="model.onnx or model.pt2 in RUN"),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights of 8 bits (onnx): smaller, and inexact; see the report.")
    ] = False,
    images: Annotated[int, typer.Option(min=2, max=100_000, help="At most so many for the check.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Write a model to one file with its labels, preprocessing and thresholds, and check it.

    The file is read back and must give the original's scores (to 1e-4) on real images: the run's own test
    images where they are at hand, else scenes of the embedded digits. With --int8 the differences, and the
    mAP they cost, are reported instead.
    """
    from kmcl.serving.check_images import find_check_images
    from kmcl.serving.export import FORMATS, export_model
    from kmcl.serving.loading import load

    predictor = load(run)
    path = output or _default_output(Path(run), FORMATS[file_format.value], int8)
    check = find_check_images(Path(run), predictor, images)
    exported = export_model(predictor, path, check.images, file_format=file_format.value, int8=int8)
    report = {
        "file": str(path),
        "bytes": exported.num_bytes,
        "precision": "int8" if int8 else "float32",
        "checked_on": check.source,
        "num_images": exported.num_images,
        "score_difference": exported.score_difference,
        "sigma_difference": exported.sigma_difference,
        "map_original": check.mean_average_precision(exported.original, predictor.labels),
        "map_exported": check.mean_average_precision(exported.scores, predictor.labels),
    }
    typer.echo(json.dumps(report, indent=2) if as_json else _sentences(report))


def _default_output(run: Path, suffix: str, int8: bool) -> Path:
    """Beside the model; in the current folder for a model of the hub."""
    name = f"model{'-int8' if int8 else ''}{suffix}"
    return run / name if run.is_dir() else Path(name)


def _sentences(report: dict[str, Any]) -> str:
    sigma = report["sigma_difference"]
    lines = [
        f"{report['file']}: {report['bytes'] / 1e6:.1f} MB, {report['precision']}",
        f"largest difference from the model on {report['num_images']} {report['checked_on']}: "
        f"{report['score_difference']:.1e} of a score"
        + ("" if sigma is None else f", {sigma:.1e} of a sigma"),
    ]
    if report["map_original"] is not None:
        original, exported = (100 * report[key] for key in ("map_original", "map_exported"))
        lines.append(f"mAP on them: {exported:.2f}, of the model itself {original:.2f}")
    return "\n".join(lines)
