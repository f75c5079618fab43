"""`kmcl export`: write a trained model to one ONNX file and check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from kmcl.cli.guarantee_option import GuaranteeOption
from kmcl.errors import InputError


def export(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run or model folder, or a hub model OWNER/NAME.")
    ],
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The file to write.", show_default="model.onnx in RUN"),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit weights: smaller, but inexact; see the report.")
    ] = False,
    images: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=2, max=100_000, help="Maximum number for the check.", show_default="500; 5000 with --int8"
        ),
    ] = None,
    triton: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FOLDER",
            help="Also write an entry of a Triton model repository: REPOSITORY/NAME.",
            show_default="none",
        ),
    ] = None,
    bentoml: Annotated[
        Optional[Path],  # noqa: UP045
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
    if int8 and guarantee is not None:
        raise InputError("--guarantee is about the scores of the model, which --int8 changes; give one")
    from kmcl.serving.check_images import find_check_images
    from kmcl.serving.export import export_model
    from kmcl.serving.loading import load_in_torch
    from kmcl.storage.atomic import write_json

    predictor = load_in_torch(run, guarantee=guarantee)
    if bentoml is not None:
        predictor.refuse_vectors("--bentoml")
    promised = None if int8 else predictor.rules.guarantee
    path = output or _default_output(Path(run), int8)
    check = find_check_images(Path(run), predictor, images or (5000 if int8 else 500))
    exported = export_model(predictor, path, check.images, int8=int8)
    cost = check.compare(exported.original, exported.scores, predictor.labels)
    report = {
        "file": str(path),
        "bytes": exported.num_bytes,
        "precision": "int8" if int8 else "float32",
        "checked_on": check.source,
        "num_images": exported.num_images,
        "score_difference": exported.score_difference,
        "sigma_difference": exported.sigma_difference,
        "unfamiliarity_difference": exported.unfamiliarity_difference,
        "summary_difference": exported.summary_difference,
        "decisions_changed": exported.decisions_changed,
        "map": None if cost is None else cost._asdict(),
        "guarantee": None if promised is None else promised.in_words(predictor.labels),
    }
    write_json(path.with_name(f"{path.name}.json"), report)
    typer.echo(json.dumps(report, indent=2) if as_json else _sentences(report))
    _write_for_servers(path, triton, bentoml)


def _write_for_servers(exported: Path, triton: Path | None, bentoml: Path | None) -> None:
    from kmcl.serving.deployment import write_bentoml_service, write_triton_entry

    if triton is not None:
        typer.echo(f"Triton: {write_triton_entry(exported, triton)}", err=True)
    if bentoml is not None:
        service = write_bentoml_service(exported, bentoml)
        typer.echo(f"BentoML: cd {service.parent} && bentoml serve service:Classifier", err=True)


def _default_output(run: Path, int8: bool) -> Path:
    """In the folder of the model; in the current folder for a hub model."""
    name = "model-int8.onnx" if int8 else "model.onnx"
    return run / name if run.is_dir() else Path(name)


def _sentences(report: dict[str, Any]) -> str:
    sigma, unfamiliarity = report["sigma_difference"], report["unfamiliarity_difference"]
    lines = [
        f"{report['file']}: {report['bytes'] / 1e6:.1f} MB, {report['precision']}",
        f"largest difference from the model on {report['num_images']} {report['checked_on']}: "
        f"{report['score_difference']:.1e} of a score"
        + ("" if sigma is None else f", {sigma:.1e} of a sigma")
        + ("" if unfamiliarity is None else f", {unfamiliarity:.1e} of an unfamiliarity"),
    ]
    lines.append(f"decisions changed: {100 * report['decisions_changed']:.2f} %")
    if report["map"] is not None:
        values = {name: 100 * value for name, value in report["map"].items()}
        lines.append(
            f"mAP: {values['exported']:.2f}, of the model {values['original']:.2f}; loss "
            f"{values['cost']:+.2f}, 95 % interval {values['low']:+.2f} to {values['high']:+.2f}"
        )
    if report["guarantee"] is not None:
        lines.append(report["guarantee"])
    return "\n".join(lines)
