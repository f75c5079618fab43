"""`kmcl export`: write a trained model to one ONNX file and check it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kmcl import api
from kmcl.cli.guarantee_option import GuaranteeOption

if TYPE_CHECKING:
    from kmcl.serving.export import ExportReport


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run or model folder, or a hub model OWNER/NAME.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write.", show_default="model.onnx in RUN"),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit weights: smaller, but inexact; see the report.")
    ] = False,
    images: Annotated[
        int | None,
        typer.Option(
            min=2, max=100_000, help="Maximum number for the check.", show_default="500; 5000 with --int8"
        ),
    ] = None,
    triton: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write an entry of a Triton model repository: REPOSITORY/NAME.",
            show_default="none",
        ),
    ] = None,
    bentoml: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write a BentoML service with the model to this folder.",
            show_default="none",
        ),
    ] = None,
    guarantee: GuaranteeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Write a model to one ONNX file with its labels, preprocessing and thresholds, and check it.

    The file is read back and must reproduce the scores of the model to 1e-4 on the test images of the run, or
    on scenes of the embedded digits where these are not available. With --int8 the differences are reported
    instead: the change of mAP on the test images, and the share of decisions that change. The report is
    written next to the file, as FILE.json.
    """
    written = api.export(
        run, output=output, int8=int8, images=images, triton=triton, bentoml=bentoml, guarantee=guarantee
    )
    typer.echo(json.dumps(asdict(written.report), indent=2) if as_json else _sentences(written.report))
    if written.triton is not None:
        typer.echo(f"Triton: {written.triton}", err=True)
    if written.bentoml is not None:
        typer.echo(f"BentoML: cd {written.bentoml.parent} && bentoml serve service:Classifier", err=True)


def _sentences(report: ExportReport) -> str:
    sigma, unfamiliarity = report.sigma_difference, report.unfamiliarity_difference
    lines = [
        f"{report.file}: {report.bytes / 1e6:.1f} MB, {report.precision}",
        f"largest difference from the model on {report.num_images} {report.checked_on}: "
        f"{report.score_difference:.1e} of a score"
        + ("" if sigma is None else f", {sigma:.1e} of a sigma")
        + ("" if unfamiliarity is None else f", {unfamiliarity:.1e} of an unfamiliarity"),
    ]
    lines.append(f"decisions changed: {100 * report.decisions_changed:.2f} %")
    if report.map is not None:
        lines.append(
            f"mAP: {100 * report.map.exported:.2f}, of the model {100 * report.map.original:.2f}; loss "
            f"{100 * report.map.cost:+.2f}, 95 % interval {100 * report.map.low:+.2f} to "
            f"{100 * report.map.high:+.2f}"
        )
    if report.guarantee is not None:
        lines.append(report.guarantee)
    return "\n".join(lines)
