"""Exporting a trained model to one file: ONNX, or a program of torch.export.

The graph goes from raw pixels to scores: it includes normalisation and calibration, and the batch size is
dynamic. `export_metadata` describes input, outputs and metadata. The file is put in place only after it has
been read back and its scores on real images agree with those of the original.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.serving.export_metadata import INPUT, METADATA_KEY, ExportMetadata
from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.predictions import Pixels
from kmcl.serving.predictor import Predictor
from kmcl.storage.atomic import replacing

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4
"""Largest difference of a score, a probability or (relative to it, where above 1) a sigma."""

TORCH_EXTRA_FILE = f"{METADATA_KEY}.json"
CHECK_BATCH = 16


@dataclass(frozen=True)
class Exported:
    """An exported file, and how far its scores are from the original's on the images of the check.

    score_difference:  the largest difference of scores and probabilities
    sigma_difference:  the largest difference of sigmas, relative where they exceed 1; None without kernels
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

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size


class ExportableClassifier(nn.Module):
    """From raw pixels to the outputs of `export_metadata.OUTPUTS`."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.classifier = predictor.classifier
        temperatures = torch.from_numpy(predictor.rules.temperature_values).float()
        self.register_buffer("temperatures", temperatures)
        self.register_buffer("biases", torch.from_numpy(predictor.rules.bias_values).float())

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.classifier(images)
        probabilities = torch.sigmoid(output.logits / self.temperatures + self.biases)
        outputs = (output.probabilities, probabilities)
        return outputs if output.sigma is None else (*outputs, output.sigma)


def export_model(
    predictor: Predictor, path: Path, images: Pixels, *, file_format: str = "onnx", int8: bool = False
) -> Exported:
    """Write a model to one file and check it.

    images: N x S x S x 3 at the model's size, on which the file must agree with the original
    int8:   8-bit weights (ONNX only), which makes the file about a third as large and its scores inexact:
            the differences are reported, not bounded
    """
    if file_format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}; got {file_format!r}")
    if int8 and file_format != "onnx":
        raise InputError("int8 quantisation is available for the format onnx only")
    if len(images) < 2:
        raise InputError(f"the check of an export needs at least 2 images; got {len(images)}")
    metadata = replace(_metadata(predictor), precision="int8" if int8 else "float32")
    if int8:  # the guarantee is about the scores of the model, not about those of this file
        metadata = replace(metadata, rules=replace(metadata.rules, guarantee=None))
    try:
        with replacing(path) as partial:
            if file_format == "torch":
                _write_torch(predictor, partial, metadata)
                run = _torch_runner(partial)
            else:
                _write_onnx(predictor, partial, metadata, int8)
                run = _onnx_runner(partial)
            exported = _check(predictor, run, images, partial)
            if not int8:
                _require_agreement(exported, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return replace(exported, path=path)


def _metadata(predictor: Predictor) -> ExportMetadata:
    description, encoder = predictor.description, predictor.classifier.encoder
    return ExportMetadata(
        rules=description.rules,
        image_size=encoder.input_size,
        mean=encoder.mean,
        std=encoder.std,
        method=description.method.name,
        encoder=description.encoder,
    )


def _trace(predictor: Predictor) -> torch.export.ExportedProgram:
    module = ExportableClassifier(predictor).eval().cpu()
    side = predictor.image_size
    # Two images, since torch would treat a batch size of one as a constant.
    example = torch.zeros(2, 3, side, side, dtype=torch.uint8)
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


def _write_torch(predictor: Predictor, path: Path, metadata: ExportMetadata) -> None:
    buffer = io.BytesIO()  # for a path, torch requires the suffix .pt2
    torch.export.save(_trace(predictor), buffer, extra_files={TORCH_EXTRA_FILE: metadata.to_json()})
    path.write_bytes(buffer.getvalue())


def _write_onnx(predictor: Predictor, path: Path, metadata: ExportMetadata, int8: bool) -> None:
    from kmcl.serving.onnx_file import write_onnx

    write_onnx(_trace(predictor), path, metadata, int8=int8)


_Runner = Callable[[Pixels], list[Any]]


def _onnx_runner(path: Path) -> _Runner:
    from kmcl.serving.onnx_predictor import OnnxPredictor

    predictor = OnnxPredictor(path)
    return lambda images: [array for array in predictor.score(images) if array is not None]


def _torch_runner(path: Path) -> _Runner:
    with path.open("rb") as file:
        program = torch.export.load(io.BytesIO(file.read()), extra_files={TORCH_EXTRA_FILE: ""}).module()

    def run(images: Pixels) -> list[Any]:
        with torch.no_grad():
            outputs = program(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())
        return [output.numpy() for output in outputs]

    return run


def _check(predictor: Predictor, run: _Runner, images: Pixels, path: Path) -> Exported:
    """Compare scores on the images, the first of them as a batch of one."""
    found, expected = [], []
    for first in (0, *range(1, len(images), CHECK_BATCH)):
        batch = images[first : 1 if first == 0 else first + CHECK_BATCH]
        found.append(run(batch))
        expected.append([array for array in predictor.score(batch) if array is not None])
    original, scores = _joined(expected), _joined(found)
    sigma_difference = None
    if original.sigma is not None and scores.sigma is not None:
        sigma_difference = _largest((scores.sigma - original.sigma) / np.maximum(original.sigma, 1))
    score_difference = max(
        _largest(scores.score - original.score), _largest(scores.probability - original.probability)
    )
    rules = predictor.rules
    changed = float(
        (rules.decide(original.probability).present != rules.decide(scores.probability).present).mean()
    )
    return Exported(path, len(images), score_difference, sigma_difference, changed, original, scores)


def _joined(batches: list[list[Any]]) -> BatchScores:
    arrays = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    return BatchScores(arrays[0], arrays[1], arrays[2] if len(arrays) == 3 else None)


def _largest(difference: Any) -> float:
    largest = float(np.abs(difference).max())
    return largest if largest == largest else float("inf")


def _require_agreement(exported: Exported, path: Path) -> None:
    worst = max(exported.score_difference, exported.sigma_difference or 0.0)
    if worst > TOLERANCE:
        raise InputError(
            f"{path}: was not written: its scores differ from the model's by {worst:.2g} on "
            f"{exported.num_images} images (allowed: {TOLERANCE:g})"
        )
