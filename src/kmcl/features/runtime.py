"""How the frozen stages are run to fill the feature cache: by torch, or by onnxruntime, three times as fast.

The two agree to some 1e-5 of the largest feature; the cache rounds features to float16, which is coarser.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kmcl.cores import available_cores
from kmcl.data.source_cache import cache_folder
from kmcl.encoders.stages import digest_of
from kmcl.models.classifier import Classifier
from kmcl.runs.planning import RuntimeName, installed_runtime
from kmcl.storage.atomic import WriteError, write_bytes

TOLERANCE = 1e-3
"""Largest difference of a feature from torch's, relative to the largest one."""

FrozenRuntime = Callable[[Tensor], Tensor]
"""From images, B x 3 x S x S in uint8, to the rows of the frozen stages, B x R in float32, on the CPU."""


def feature_folder() -> Path:
    """Of features, and of exported stages, where the settings name none."""
    return cache_folder() / "features"


@dataclass
class FrozenRuntimes:
    """Opens what runs frozen stages; of onnxruntime's, the last is kept until it is closed."""

    _kept: dict[str, FrozenRuntime] = field(default_factory=dict)

    def open(self, name: RuntimeName, classifier: Classifier, device: str, folder: Path) -> FrozenRuntime:
        """The frozen stages of a classifier as a function; onnxruntime only where it can run them.

        folder: where exported stages are kept, so that they are exported once
        """
        if name == "onnxruntime" and device == "cpu" and installed_runtime() == name:
            digest = _digest(classifier)
            if digest not in self._kept:
                runtime = _open_onnxruntime(classifier, folder / f"{digest}.onnx")
                self._kept = {} if runtime is None else {digest: runtime}
            if digest in self._kept:
                return self._kept[digest]
        return _TorchRuntime(classifier, device)

    def close(self) -> None:
        """Release its memory."""
        self._kept.clear()


class _TorchRuntime:
    def __init__(self, classifier: Classifier, device: str) -> None:
        self._classifier = classifier
        self._device = device

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        rows = self._classifier.to(self._device).frozen_rows(images.to(self._device))
        return rows.float().cpu()


class _OnnxRuntime:
    """A thread per core, each with an image of its own.

    That is a quarter faster than one batch shared by the threads: nobody waits for the slowest part of each
    layer, and an image's maps stay in the processor's cache. The features are the same to the bit.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._threads = ThreadPoolExecutor(available_cores(), thread_name_prefix="frozen-stages")

    def __call__(self, images: Tensor) -> Tensor:
        return torch.from_numpy(np.concatenate(list(self._threads.map(self._run, torch.split(images, 1)))))

    def _run(self, images: Tensor) -> Any:
        return self._session.run(None, {self._input: images.contiguous().numpy()})[0]


class _FrozenStages(nn.Module):
    """`Classifier.frozen_rows` as a module, the form an export needs."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier.frozen_rows(images)


def _digest(classifier: Classifier) -> str:
    """Of everything that the features of the frozen stages follow from."""
    encoder = classifier.encoder
    identity = {
        "encoder": encoder.name,
        "stages": encoder.num_frozen_stages,
        "size": encoder.input_size,
        "channels": encoder.in_channels,
        "mean": list(encoder.mean),
        "std": list(encoder.std),
        "weights": digest_of(encoder.frozen_tensors()),
        "versions": [version(name) for name in ("torch", "timm", "onnx", "onnxscript")],
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def _open_onnxruntime(classifier: Classifier, path: Path) -> FrozenRuntime | None:
    """None where the stages cannot be exported, or the exported ones differ from torch's.

    Raises WriteError where there is no room for the exported file, since there is none for features then; and
    torch's features, which differ in the last digits, would make the run another one.
    """
    try:
        if not path.is_file():
            write_bytes(path, _export(classifier))
        runtime = _OnnxRuntime(path)
        return runtime if _agrees(runtime, classifier) else None
    except WriteError:
        raise
    except Exception as error:  # whatever torch.export or onnxruntime cannot do, torch can
        logging.getLogger(__name__).info("onnxruntime cannot run %s: %s", classifier.encoder.name, error)
        return None


def _export(classifier: Classifier) -> bytes:
    side = classifier.encoder.input_size
    # Two images, since torch would treat a batch size of one as a constant.
    example = torch.zeros(2, 3, side, side, dtype=torch.uint8)
    was_training = classifier.training
    stages = _FrozenStages(classifier).eval()
    try:
        with _quiet(), torch.no_grad():
            try:
                return _trace(stages, example)
            except Exception:  # what the tracer does not know, torch.export may
                return _export_graph(stages, example)
    finally:
        classifier.train(was_training)


def _trace(stages: nn.Module, example: Tensor) -> bytes:
    """By torch's older exporter, which takes a second where the newer one takes fifteen."""
    exported = io.BytesIO()
    torch.onnx.export(
        stages,
        (example,),
        exported,  # type: ignore[arg-type]  # any binary file works
        dynamo=False,
        input_names=["images"],
        output_names=["rows"],
        dynamic_axes={"images": {0: "batch"}, "rows": {0: "batch"}},
    )
    return exported.getvalue()


def _export_graph(stages: nn.Module, example: Tensor) -> bytes:
    shapes = {"images": {0: torch.export.Dim("batch")}}
    program = torch.export.export(stages, (example,), dynamic_shapes=shapes)
    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    if exported is None:
        raise RuntimeError("torch exported nothing")
    return bytes(exported.model_proto.SerializeToString())


def _agrees(runtime: FrozenRuntime, classifier: Classifier) -> bool:
    side = classifier.encoder.input_size
    noise = torch.randint(0, 256, (2, 3, side, side), generator=torch.Generator().manual_seed(0))
    images = noise.to(torch.uint8)
    with torch.inference_mode():
        expected = classifier.frozen_rows(images).float()
    difference = (runtime(images) - expected).abs().max()
    return bool(difference <= TOLERANCE * expected.abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks, which say nothing to a user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
