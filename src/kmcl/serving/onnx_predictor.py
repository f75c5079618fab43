"""Prediction from an exported .onnx file with onnxruntime, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from kmcl.errors import InputError
from kmcl.serving.export_metadata import METADATA_KEY, OPTIONAL, OUTPUTS, ExportMetadata
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.predictions import Pixels, Samples

if TYPE_CHECKING:
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]


class OnnxPredictor(ImagePredictor):
    """Like `Predictor`, for a file that `kmcl export` wrote.

    Images are resized by Pillow, whose pixels differ by at most 1/255 from those of `Predictor`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.session = open_session(self.path)
        try:
            text = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
            self._inputs = [(item.name, item.type, item.shape[1:]) for item in self.session.get_inputs()]
            self._outputs = {item.name: item.shape[1:] for item in self.session.get_outputs()}
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: its metadata are damaged: {error.reason}") from None
        if text is None:
            raise InputError(
                f"{path}: is an ONNX file that was not written by kmcl export: it lacks the metadata"
            )
        self.metadata = ExportMetadata.from_json(text, str(path))
        super().__init__(self.metadata.rules, self.metadata.image_size, self.metadata.feature_dim)
        self._check_signature()
        self._check_numbers()

    def score(self, images: Samples) -> BatchScores:
        batch = np.ascontiguousarray(images if self.feature_dim else images.transpose(0, 3, 1, 2))
        try:
            results: list[Any] = self.session.run(None, {self.metadata.input_name: batch})
        except Exception as error:
            # onnxruntime can load some graphs that it cannot run; its errors share no base but Exception.
            raise InputError(f"{self.path}: cannot be run: {_first_line(error)}") from error
        named = dict(zip(self._outputs, results, strict=True))
        if not all(np.isfinite(array).all() for array in results):
            raise InputError(f"{self.path}: gives scores that are not finite; its weights are damaged")
        return BatchScores(*(named.get(name) for name in BatchScores._fields))  # type: ignore[arg-type]

    @property
    def has_unfamiliarity(self) -> bool:
        return "unfamiliarity" in self._outputs

    @property
    def summary_size(self) -> int:
        return self._outputs["feature_summary"][0] if "feature_summary" in self._outputs else 0

    @property
    def output_shapes(self) -> dict[str, list[int]]:
        """Those of `export_metadata.OUTPUTS` that the file has, with the shape of each for one image."""
        return self._outputs

    def use_cores(self, number: int) -> None:
        """Score on that many cores; without this call, on all."""
        self.session = open_session(self.path, number)

    def resize(self, image: Pixels) -> Pixels:
        if image.shape[:2] == (self.image_size, self.image_size):
            return image
        size = (self.image_size, self.image_size)
        return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))

    def _check_signature(self) -> None:
        """Compare the graph's inputs and outputs with the metadata."""
        num_labels, name = len(self.labels), self.metadata.input_name
        kind, shape = "uint8", [3, self.image_size, self.image_size]
        if self.feature_dim is not None:
            kind, shape = "float", [self.feature_dim]
        if self._inputs != [(name, f"tensor({kind})", shape)]:
            wanted = " x ".join(map(str, shape))
            raise InputError(f"{self.path}: must take {kind} {name} of {wanted}; takes {self._inputs}")
        outputs = list(self._outputs.items())
        shapes = {name: [num_labels] for name in OUTPUTS} | {"unfamiliarity": []}
        summary = self._outputs.get("feature_summary", [])
        if len(summary) == 1 and isinstance(summary[0], int):
            shapes["feature_summary"] = summary
        names = [name for name in OUTPUTS if name in self._outputs or name not in OPTIONAL]
        if outputs != [(name, shapes[name]) for name in names]:
            raise InputError(f"{self.path}: must give {OUTPUTS} of {num_labels} labels; gives {outputs}")

    def _check_numbers(self) -> None:
        """Weights that are not finite show in the scores of any image."""
        self.score(self.blank_sample)


def open_session(path: Path, num_cores: int = 0) -> onnxruntime.InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(f"{path}: an .onnx file needs onnxruntime: pip install 'kmcl[onnx]'") from error
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores  # 0: all
    options.log_severity_level = 3  # errors only: its warnings are about nodes of the graph
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:
        # onnxruntime raises a family of classes of its own that share no base but Exception.
        raise InputError(f"{path}: cannot be read as an ONNX model: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
