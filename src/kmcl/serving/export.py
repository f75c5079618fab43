"""Exporting a trained model to one ONNX file.

The graph goes from raw pixels to scores: it includes normalisation and calibration, and the batch size is
dynamic. `export_metadata` describes input, outputs and metadata. The file is put in place only after it has
been read back and its scores on real images agree with those of the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.evaluation.label_hierarchy import children_first
from kmcl.serving.check_images import MapCost, find_check_images
from kmcl.serving.deployment import write_bentoml_service, write_triton_entry
from kmcl.serving.export_metadata import INPUT, OUTPUTS, ExportMetadata
from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.loading import EXPORTED_SUFFIX, load_in_torch
from kmcl.serving.onnx_file import write_onnx
from kmcl.serving.onnx_predictor import OnnxPredictor
from kmcl.serving.predictions import Samples
from kmcl.serving.predictor import Predictor
from kmcl.storage.atomic import replacing, write_json

TOLERANCES = {
    "score": 1e-4,
    "probability": 1e-4,
    "sigma": 1e-4,
    "unfamiliarity": 0.01,
    "feature_summary": 0.01,
}
"""Largest difference of each output, relative to it where above 1. The unfamiliarity is a share of the images
of val, of which several may lie close together; the summary of features is compared in means of many images.
"""

CHECK_BATCH = 16


@dataclass(frozen=True)
class Exported:
    """An exported file, and how far its scores are from the original's on the images of the check.

    score_difference:  the largest difference of scores and probabilities
    sigma_difference:  the largest difference of sigmas, relative where they exceed 1; None without kernels
    unfamiliarity_difference, summary_difference: the largest ones; None for a model without these outputs
    decisions_changed: share of the decisions (image and label) that differ
    original, scores:  scores of the model and of the file on those images, to compute metrics from
    """

    path: Path
    num_images: int
    score_difference: float
    sigma_difference: float | None
    decisions_changed: float
    original: BatchScores
    scores: BatchScores
    unfamiliarity_difference: float | None = None
    summary_difference: float | None = None

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size


@dataclass(frozen=True)
class ExportReport:
    """What the check of an exported file found, as in the file's own JSON; see `Exported`.

    map:       of the model and of the file; None where the images have no targets
    guarantee: what the thresholds promise, in words
    """

    file: str
    bytes: int
    precision: str
    checked_on: str
    num_images: int
    score_difference: float
    sigma_difference: float | None
    unfamiliarity_difference: float | None
    summary_difference: float | None
    decisions_changed: float
    map: MapCost | None
    guarantee: str | None


@dataclass(frozen=True)
class WrittenExport:
    """An exported model, and what other servers need of it: Triton's version folder, BentoML's service."""

    report: ExportReport
    triton: Path | None
    bentoml: Path | None


class ExportableClassifier(nn.Module):
    """From raw pixels to those outputs of `export_metadata.OUTPUTS` that the model has."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.classifier = predictor.classifier
        temperatures = torch.from_numpy(predictor.rules.temperature_values).float()
        self.register_buffer("temperatures", temperatures)
        self.register_buffer("biases", torch.from_numpy(predictor.rules.bias_values).float())
        self.implied = [] if predictor.rules.parents is None else children_first(predictor.rules.parents)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.classifier(images)
        probabilities = self._raised(torch.sigmoid(output.logits / self.temperatures + self.biases))
        optional = (output.sigma, output.unfamiliarity, output.feature_summary)
        return output.probabilities, probabilities, *(one for one in optional if one is not None)

    def _raised(self, probabilities: Tensor) -> Tensor:
        """As `kmcl.evaluation.label_hierarchy.raise_parents`."""
        if not self.implied:
            return probabilities
        columns = list(probabilities.unbind(dim=1))
        for child, parent in self.implied:
            columns[parent] = torch.maximum(columns[parent], columns[child])
        return torch.stack(columns, dim=1)


def export_model(predictor: Predictor, path: Path, images: Samples, *, int8: bool = False) -> Exported:
    """Write a model to one ONNX file and check it.

    images: N x S x S x 3 at the model's size, or N x D feature vectors, on which the file must agree with the
            original
    int8:   8-bit weights, which makes the file about a third as large and its scores inexact:
            the differences are reported, not bounded
    """
    if path.suffix.lower() != EXPORTED_SUFFIX:
        raise InputError(f"{path}: an exported model is a file NAME{EXPORTED_SUFFIX}, by which kmcl knows it")
    if len(images) < 2:
        raise InputError(f"the check of an export needs at least 2 images; got {len(images)}")
    metadata = replace(_metadata(predictor), precision="int8" if int8 else "float32")
    if int8:  # the guarantee is about the scores of the model, not about those of this file
        metadata = replace(metadata, rules=replace(metadata.rules, guarantee=None))
    try:
        with replacing(path) as partial:
            _write_onnx(predictor, partial, metadata, _output_names(predictor), int8)
            exported = _check(predictor, OnnxPredictor(partial).score, images, partial)
            if not int8:
                _require_agreement(exported, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return replace(exported, path=path)


def export(
    run: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    int8: bool = False,
    images: int | None = None,
    triton: str | PathLike[str] | None = None,
    bentoml: str | PathLike[str] | None = None,
    guarantee: str | None = None,
) -> WrittenExport:
    """Write a model to one ONNX file and check it on images.

    output: the file; model.onnx in the run if not given
    int8:   8-bit weights: smaller, but inexact
    images: of the check, at most; 500 if not given, 5000 with int8
    triton, bentoml: folders to write what these servers need as well
    guarantee: a rate that the thresholds keep, as in "recall=0.9"
    """
    if int8 and guarantee is not None:
        raise InputError("--guarantee is about the scores of the model, which --int8 changes; give one")
    predictor = load_in_torch(run, guarantee=guarantee)
    if bentoml is not None:
        predictor.refuse_vectors("--bentoml")
    promised = None if int8 else predictor.rules.guarantee
    folder = Path(run)
    name = "model-int8.onnx" if int8 else "model.onnx"
    usual = folder / name if folder.is_dir() else Path(name)  # in the current folder for a hub model
    path = usual if output is None else Path(output)
    check = find_check_images(folder, predictor, images or (5000 if int8 else 500))
    exported = export_model(predictor, path, check.images, int8=int8)
    report = ExportReport(
        file=str(path),
        bytes=exported.num_bytes,
        precision="int8" if int8 else "float32",
        checked_on=check.source,
        num_images=exported.num_images,
        score_difference=exported.score_difference,
        sigma_difference=exported.sigma_difference,
        unfamiliarity_difference=exported.unfamiliarity_difference,
        summary_difference=exported.summary_difference,
        decisions_changed=exported.decisions_changed,
        map=check.compare(exported.original, exported.scores, predictor.labels),
        guarantee=None if promised is None else promised.in_words(predictor.labels),
    )
    write_json(path.with_name(f"{path.name}.json"), asdict(report))
    return WrittenExport(
        report,
        None if triton is None else write_triton_entry(path, Path(triton)),
        None if bentoml is None else write_bentoml_service(path, Path(bentoml)),
    )


def _output_names(predictor: Predictor) -> list[str]:
    """Those of `OUTPUTS` that the model gives, in their order."""
    scores = predictor.score(predictor.blank_sample)
    return [name for name in OUTPUTS if getattr(scores, name) is not None]


def _metadata(predictor: Predictor) -> ExportMetadata:
    description, encoder = predictor.description, predictor.classifier.encoder
    return ExportMetadata(
        rules=description.rules,
        image_size=encoder.input_size,
        mean=encoder.mean,
        std=encoder.std,
        method=description.method.name,
        encoder=description.encoder,
        feature_dim=predictor.feature_dim,
    )


def _trace(predictor: Predictor) -> torch.export.ExportedProgram:
    module = ExportableClassifier(predictor).eval().cpu()
    side = predictor.image_size
    # Two images, since torch would treat a batch size of one as a constant.
    if predictor.feature_dim is None:
        example = torch.zeros(2, 3, side, side, dtype=torch.uint8)
    else:
        example = torch.zeros(2, predictor.feature_dim)
    try:
        with torch.no_grad():
            return torch.export.export(
                module, (example,), dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}}
            )
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"encoder {predictor.description.encoder!r} with method {predictor.description.method.name!r} "
            f"cannot be exported by this torch: {reason}"
        ) from error


def _write_onnx(
    predictor: Predictor, path: Path, metadata: ExportMetadata, outputs: list[str], int8: bool
) -> None:
    write_onnx(_trace(predictor), path, metadata, outputs, int8=int8)


def _check(
    predictor: Predictor, run: Callable[[Samples], BatchScores], images: Samples, path: Path
) -> Exported:
    """Compare scores on the images, the first of them as a batch of one."""
    found, expected = [], []
    for first in (0, *range(1, len(images), CHECK_BATCH)):
        batch = images[first : 1 if first == 0 else first + CHECK_BATCH]
        found.append(run(batch))
        expected.append(predictor.score(batch))
    original, scores = _joined(expected), _joined(found)
    rules = predictor.rules
    changed = float((rules.present(original.score) != rules.present(scores.score)).mean())
    return Exported(
        path,
        len(images),
        max(_largest(scores.score, original.score), _largest(scores.probability, original.probability)),
        _difference(scores.sigma, original.sigma),
        changed,
        original,
        scores,
        _difference(scores.unfamiliarity, original.unfamiliarity),
        _difference(scores.feature_summary, original.feature_summary),
    )


def _joined(batches: list[BatchScores]) -> BatchScores:
    arrays = [None if parts[0] is None else np.concatenate(parts) for parts in zip(*batches, strict=True)]
    return BatchScores(*arrays)  # type: ignore[arg-type]


def _difference(found: Any, original: Any) -> float | None:
    return None if found is None or original is None else _largest(found, original)


def _largest(found: Any, original: Any) -> float:
    """The largest difference, relative to the original where that is above 1."""
    largest = float((np.abs(found - original) / np.maximum(np.abs(original), 1)).max())
    return largest if largest == largest else float("inf")


def _require_agreement(exported: Exported, path: Path) -> None:
    for what, difference, allowed in (
        ("scores differ", exported.score_difference, TOLERANCES["score"]),
        ("scores differ", exported.sigma_difference, TOLERANCES["sigma"]),
        ("unfamiliarity differs", exported.unfamiliarity_difference, TOLERANCES["unfamiliarity"]),
        ("feature summary differs", exported.summary_difference, TOLERANCES["feature_summary"]),
    ):
        if difference is not None and difference > allowed:
            raise InputError(
                f"{path}: was not written: its {what} from the model's by {difference:.2g} on "
                f"{exported.num_images} images (allowed: {allowed:g})"
            )
