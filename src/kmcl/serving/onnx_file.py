"""Writing an ONNX file."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from kmcl.errors import InputError
from kmcl.serving.export_metadata import METADATA_KEY, ExportMetadata


def write_onnx(
    traced: torch.export.ExportedProgram,
    path: Path,
    metadata: ExportMetadata,
    outputs: Sequence[str],
    *,
    int8: bool,
) -> None:
    """Write a traced classifier with its metadata, optionally quantised to 8-bit weights.

    outputs: the names of its outputs
    """
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError("export to ONNX needs onnx and onnxscript: pip install 'kmcl[export]'") from error
    with _quiet():
        program = torch.onnx.export(
            traced,
            input_names=[metadata.input_name],
            output_names=list(outputs),
            dynamo=True,
            verbose=False,
        )
        model = program.model_proto  # type: ignore[union-attr]
        if int8:
            model = _quantise(model)
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, metadata.to_json()
    try:
        onnx.save(model, str(path))
    except ValueError as error:  # one protocol-buffer message holds at most 2 GB
        raise InputError(f"the model does not fit into one ONNX file: {error}") from error


def _quantise(model: Any) -> Any:
    import onnx
    from onnxruntime.quantization import (  # type: ignore[import-untyped, unused-ignore]
        QuantType,
        quantize_dynamic,
    )

    # The recorded shapes of intermediate results become wrong when the quantiser rewrites products.
    model.graph.ClearField("value_info")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantised.onnx"
        quantize_dynamic(
            model,
            path,
            weight_type=QuantType.QUInt8,  # the only type that its convolution supports
            nodes_to_exclude=_grouped_convolutions(model),
        )
        return onnx.load(str(path))


def _grouped_convolutions(model: Any) -> list[str]:
    """Grouped convolutions, which are not quantised.

    They have few weights of very different magnitude, so one 8-bit scale for all of them loses much
    precision, and onnxruntime is slow on them in integers: leaving them in float32 halves the differences of
    EfficientNet-Lite0 and makes it four times as fast.
    """
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "Conv" and any(a.name == "group" and a.i > 1 for a in node.attribute)
    ]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' logging and warnings about their own internals."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
