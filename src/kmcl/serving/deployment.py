"""An exported model as other servers want it: an entry of a Triton model repository, a BentoML service."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kmcl.errors import InputError
from kmcl.serving.export_metadata import ExportMetadata
from kmcl.serving.onnx_predictor import OnnxPredictor
from kmcl.storage.atomic import replacing, write_text
from kmcl.version import __version__

MAX_BATCH = 32
QUEUE_MICROSECONDS = 2000
"""What Triton waits for further images to score with the first."""


def write_triton_entry(exported: Path, folder: Path) -> Path:
    """Write an entry of a Triton model repository, as its next version; returns the version's folder.

        FOLDER/config.pbtxt  name, shapes and types, dynamic batching; labels and thresholds as parameters
        FOLDER/labels.txt    the labels in the order of the outputs
        FOLDER/1/model.onnx

    exported: an .onnx file that `kmcl export` wrote
    folder:   of the entry; its name is the model's
    """
    _require_name(folder, r"[\w.-]+", "letters, digits, _, . and -")
    model = OnnxPredictor(exported)
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    version = folder / str(max(versions, default=0) + 1)
    _copy(exported, version / "model.onnx")
    write_text(folder / "labels.txt", "".join(f"{_one_line(label)}\n" for label in model.labels))
    write_text(folder / "config.pbtxt", triton_config(folder.name, model.metadata, model.output_shapes))
    return version


def triton_config(name: str, metadata: ExportMetadata, outputs: Mapping[str, Sequence[int]]) -> str:
    """config.pbtxt of a model: a protocol-buffer message in text form.

    outputs: the shape of each for one image
    """
    side = metadata.image_size
    kind, dims = "TYPE_UINT8", f"3, {side}, {side}"
    if metadata.feature_dim is not None:
        kind, dims = "TYPE_FP32", str(metadata.feature_dim)
    parts = [
        f"name: {_text(name)}",
        'backend: "onnxruntime"',
        f"max_batch_size: {MAX_BATCH}",
        f"input [\n  {{ name: {_text(metadata.input_name)} data_type: {kind} dims: [ {dims} ] }}\n]",
        "output [\n" + ",\n".join(_triton_output(*output) for output in outputs.items()) + "\n]",
        f"dynamic_batching {{ max_queue_delay_microseconds: {QUEUE_MICROSECONDS} }}",
        _parameter("labels", json.dumps(metadata.rules.labels)),
        _parameter("thresholds", json.dumps(metadata.rules.exact_thresholds.tolist())),
    ]
    return "\n".join(parts) + "\n"


def _triton_output(name: str, shape: Sequence[int]) -> str:
    if not shape:
        # Triton wants at least one dimension besides the batch, and the graph has none.
        return f"  {{ name: {_text(name)} data_type: TYPE_FP32 dims: [ 1 ] reshape: {{ shape: [ ] }} }}"
    of_labels = "" if name == "feature_summary" else ' label_filename: "labels.txt"'
    return f"  {{ name: {_text(name)} data_type: TYPE_FP32 dims: [ {shape[0]} ]{of_labels} }}"


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {_text(key)} value: {{ string_value: {_text(value)} }} }}"


def _text(value: str) -> str:
    """A string of the text form, which has the escapes of C: everything but plain ASCII as octal bytes."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in value.encode()
    )
    return f'"{plain}"'


def write_bentoml_service(exported: Path, folder: Path) -> Path:
    """Write a BentoML service of an exported model, to be served or built from there; returns service.py.

    exported: an .onnx file that `kmcl export` wrote
    folder:   its name is the service's
    """
    _require_name(folder, r"[a-z][a-z0-9_-]*", "lower-case letters, digits, _ and -")
    OnnxPredictor(exported).refuse_vectors("--bentoml")  # and what is not such a file
    _copy(exported, folder / "model.onnx")
    write_text(folder / "service.py", _SERVICE.replace("NAME", folder.name))
    bentofile = {
        "service": "service:Classifier",
        "include": ["service.py", "model.onnx"],
        "python": {"packages": [f"kmcl[onnx]=={__version__}"]},
    }
    write_text(folder / "bentofile.yaml", json.dumps(bentofile, indent=2) + "\n")  # JSON is YAML too
    return folder / "service.py"


_SERVICE = '''"""A BentoML service of a model that kmcl exported: bentoml serve service:Classifier"""

from pathlib import Path

import bentoml
from PIL import Image

import kmcl


@bentoml.service(name="NAME", traffic={"timeout": 30})
class Classifier:
    def __init__(self) -> None:
        self.predictor = kmcl.load(Path(__file__).with_name("model.onnx"))

    @bentoml.api
    def predict(self, image: Image.Image) -> dict:
        """The labels of an image: probability, threshold and decision, as kmcl predict gives them."""
        (prediction,) = self.predictor.predict(image)
        return {
            "unfamiliarity": prediction.unfamiliarity,
            "labels": [
                {
                    "label": label.label,
                    "probability": label.probability,
                    "threshold": label.threshold,
                    "present": label.present,
                }
                for label in prediction.labels
            ],
        }
'''


def _require_name(folder: Path, pattern: str, allowed: str) -> None:
    name = folder.resolve().name
    if not re.fullmatch(pattern, name, re.ASCII) or name.isdecimal():
        raise InputError(f"{folder}: the folder's name is the model's and may have {allowed}; got {name!r}")


def _copy(exported: Path, path: Path) -> None:
    with replacing(path) as temporary:
        shutil.copyfile(exported, temporary)


def _one_line(label: str) -> str:
    return " ".join(label.split())
