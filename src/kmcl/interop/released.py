"""Released checkpoints of the authors of KMCL and of ASL as classifiers of this package.

Both are state dicts of the ASL code base's TResNet (see `released_names`). KMCL's hold `encoder.*`, whose
own classifier `encoder.head.fc` was never used, and the linear layers `kmm.pi`, `kmm.mean` and `kmm.var` of
the kernel mixture (`kmm.pi` alone where only the asymmetric loss was trained). Where these have a number per
label and dimension, theirs are D x L and ours L x D. ASL's hold the network itself
under `model`, with `head.fc` as classifier, and its labels.

Files are read as tensors only; no code in them is ever run.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.interop.released_datasets import IMAGENET_MEAN, IMAGENET_STD, RELEASED_DATASETS
from kmcl.interop.released_names import find_encoder, rename_body
from kmcl.kernels import KERNELS
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options.methods import KMCL_PRESETS, AslOptions, MethodOptions

DEFAULT_THRESHOLD = 0.8
"""At which both code bases measure precision and recall; the asymmetric loss raises scores."""

DEFAULT_IMAGE_SIZES = {"tresnet_m": 224}
"""The others were trained at 448."""


_UNSUPPORTED = re.compile(r"GLOBAL ([\w.]+)")
"""The name in torch's complaint about an object of a class that is not allowed."""


class _Head(NamedTuple):
    """A head of ours by its method's options, with its tensors; `num_labels` is what they say."""

    method: MethodOptions
    num_labels: int
    tensors: dict[str, Tensor]


def import_released(
    path: Path,
    *,
    dataset: str | None = None,
    labels: tuple[str, ...] | None = None,
    image_size: int | None = None,
    threshold: float = DEFAULT_THRESHOLD,
) -> tuple[Classifier, ModelDescription]:
    """Read a released checkpoint.

    dataset:    what it was trained on, a name in `RELEASED_DATASETS`; found by the number of labels if not
                given. It determines the labels and the normalisation (ImageNet's for an unknown dataset)
    labels:     in the order of its outputs, instead of the file's own or the dataset's
    image_size: 224 for TResNet-M and 448 for the others, as published, if not given
    threshold:  the score from which a label counts as present
    """
    content = _read(path)
    tensors, stored_labels = _split(content, path)
    is_kmcl = "kmm.pi.weight" in tensors
    prefix = "encoder." if is_kmcl else ""
    body = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(f"{prefix}body.")}
    try:
        encoder = find_encoder(body)
        head = _kernel_mixture_head(tensors) if is_kmcl else _linear_head(tensors)
        dataset = dataset or _dataset_with(head.num_labels)
        mean, std = _normalisation(is_kmcl, dataset)
        description = ModelDescription(
            rules=LabelRules(
                _labels(head, labels or stored_labels, dataset), thresholds=(threshold,) * head.num_labels
            ),
            method=head.method,
            encoder=encoder,
            image_size=image_size or DEFAULT_IMAGE_SIZES.get(encoder, 448),
            mean=mean,
            std=std,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    classifier = build_classifier(description)
    expected = classifier.state_dict()
    state = {f"encoder.backbone.{name}": tensor for name, tensor in rename_body(body).items()}
    state |= {f"head.{name}": tensor for name, tensor in head.tensors.items()}
    classifier.load_state_dict(_fitted(state, expected, path))
    return classifier.eval(), description


@dataclass(frozen=True)
class ImportedModel:
    """A released checkpoint as a model folder.

    digest: SHA-256 of the checkpoint. A changed weight is a weight like any other: only a comparison with the
            published digest shows it
    """

    folder: Path
    description: ModelDescription
    digest: str


def import_to_folder(
    checkpoint: Path,
    folder: Path,
    *,
    dataset: str | None,
    labels: Path | None,
    image_size: int | None,
    threshold: float,
) -> ImportedModel:
    """Convert a released checkpoint to a new model folder; see `import_released`.

    labels: a text file with the labels, one per line, in the order of the outputs
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not empty; choose another --output")
    names = None if labels is None else _read_labels(labels)
    classifier, description = import_released(
        checkpoint, dataset=dataset, labels=names, image_size=image_size, threshold=threshold
    )
    try:
        save_model(folder, classifier, description)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    with checkpoint.open("rb") as file:
        return ImportedModel(folder, description, hashlib.file_digest(file, "sha256").hexdigest())


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a list of labels: {error}") from error
    return tuple(line.strip() for line in lines if line.strip())


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except MemoryError:
        raise
    except Exception as error:
        # A broken or hostile file makes the unpickler raise almost anything; no code of the file was run.
        raise InputError(f"{path}: {_refusal(path, error)}") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: holds {type(content).__name__}, not a state dict")
    return content


def _refusal(path: Path, error: Exception) -> str:
    """Why a file was not read, in our words: torch's advise to switch off what protects from its code."""
    if not path.is_file():
        return "is not a file"
    with path.open("rb") as file:
        start = file.read(2)
    if start not in (b"PK", b"\x80\x02"):
        return "is not a checkpoint: neither a zip archive nor a pickle, which torch.save writes"
    if named := _UNSUPPORTED.search(str(error)):
        return (
            f"refers to {named[1]}, which is no tensor; such a checkpoint is refused, since loading it could "
            "run code"
        )
    return "cannot be read as tensors: it is damaged, or holds other things, which are refused"


def _split(content: Mapping[str, Any], path: Path) -> tuple[dict[str, Tensor], tuple[str, ...] | None]:
    """The tensors by name, without the prefix of data parallelism, and the labels where the file has them."""
    state: Any = content
    for key in ("model", "state_dict"):
        if isinstance(content.get(key), Mapping):
            state = content[key]
    tensors = {
        str(name).removeprefix("module."): value for name, value in state.items() if isinstance(value, Tensor)
    }
    if not tensors:
        raise InputError(f"{path}: holds no tensors")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise InputError(f"{path}: {name} declares {tuple(tensor.shape)} values, more than it holds")
    stored = content.get("idx_to_class")
    labels = tuple(map(str, stored.values())) if isinstance(stored, Mapping) else None
    return tensors, labels


def _kernel_mixture_head(tensors: Mapping[str, Tensor]) -> _Head:
    if any(name.startswith("downsampler.") for name in tensors):
        raise InputError(
            "it reduces features to 128 dimensions before its anisotropic kernels, which neither the paper "
            "nor this package does"
        )
    weight = _tensor(tensors, "kmm.pi.weight", ndim=2)
    num_labels, feature_dim = weight.shape
    if "kmm.mean.weight" not in tensors:
        return _Head(AslOptions(), num_labels, _linear(tensors, "kmm.pi", "logits"))
    num_means = len(_tensor(tensors, "kmm.mean.weight", ndim=2))
    num_variances = len(_tensor(tensors, "kmm.var.weight", ndim=2))
    for kernel, family in KERNELS.items():
        shapes = (family.mean_shape(num_labels, feature_dim), family.variance_shape(num_labels, feature_dim))
        if (num_means, num_variances) == (math.prod(shapes[0]), math.prod(shapes[1])):
            layers = {"kmm.pi": "logits", "kmm.mean": "means", "kmm.var": "variances"}
            state: dict[str, Tensor] = {}
            for released, ours in layers.items():
                layer = _linear(tensors, released, f"kernel_mixture.{ours}")
                if len(next(iter(layer.values()))) == num_labels * feature_dim:
                    layer = {name: _labels_first(tensor, num_labels) for name, tensor in layer.items()}
                state |= layer
            options = KMCL_PRESETS["released"].model_copy(update={"kernel": kernel})
            return _Head(options, num_labels, state)
    raise InputError(
        f"its {num_means} means and {num_variances} variances for {num_labels} labels fit none of "
        f"the kernels {', '.join(KERNELS)}"
    )


def _labels_first(tensor: Tensor, num_labels: int) -> Tensor:
    """Rows in the order D x L, that of their reshaped outputs, in ours, L x D."""
    return tensor.reshape(-1, num_labels, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)


def _linear_head(tensors: Mapping[str, Tensor]) -> _Head:
    """ASL's classifier: one linear layer, or two without anything between them, which are one."""
    if "head.fc.FC.weight" in tensors:
        inner, outer = "head.fc.embedding_generator.0", "head.fc.FC"
        weight = _tensor(tensors, f"{outer}.weight", ndim=2).double()
        inner_weight = _tensor(tensors, f"{inner}.weight", ndim=2).double()
        inner_bias = _tensor(tensors, f"{inner}.bias", ndim=1).double()
        bias = _tensor(tensors, f"{outer}.bias", ndim=1).double()
        if weight.shape[1] != len(inner_weight) or len(inner_weight) != len(inner_bias):
            raise InputError(f"the two layers of its classifier, {inner} and {outer}, do not fit together")
        state = {"logits.weight": weight @ inner_weight, "logits.bias": weight @ inner_bias + bias}
    else:
        state = _linear(tensors, "head.fc", "logits")
    return _Head(AslOptions(), len(state["logits.bias"]), state)


def _linear(tensors: Mapping[str, Tensor], released: str, ours: str) -> dict[str, Tensor]:
    return {
        f"{ours}.weight": _tensor(tensors, f"{released}.weight", ndim=2),
        f"{ours}.bias": _tensor(tensors, f"{released}.bias", ndim=1),
    }


def _tensor(tensors: Mapping[str, Tensor], name: str, ndim: int) -> Tensor:
    if name not in tensors or tensors[name].ndim != ndim:
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        raise InputError(f"it needs a tensor {name!r} of {ndim} dimensions; found {found}")
    return tensors[name]


def _dataset_with(num_labels: int) -> str | None:
    return next((name for name, d in RELEASED_DATASETS.items() if len(d.labels) == num_labels), None)


def _labels(head: _Head, labels: tuple[str, ...] | None, dataset: str | None) -> tuple[str, ...]:
    if dataset is not None and dataset not in RELEASED_DATASETS:
        raise InputError(f"dataset must be one of {', '.join(RELEASED_DATASETS)}; got {dataset!r}")
    if labels is None and dataset is None:
        raise InputError(f"it has {head.num_labels} labels and does not name them; give --labels")
    named = labels or RELEASED_DATASETS[dataset].labels  # type: ignore[index]
    if len(named) != head.num_labels or len(set(named)) != len(named):
        raise InputError(
            f"it has {head.num_labels} outputs; got {len(named)} labels, {len(set(named))} of them different"
        )
    return named


def _normalisation(is_kmcl: bool, dataset: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """ASL's networks took pixels between 0 and 1 as they are; KMCL's were given their dataset's constants."""
    if not is_kmcl:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if dataset is None or dataset not in RELEASED_DATASETS:
        return IMAGENET_MEAN, IMAGENET_STD
    return RELEASED_DATASETS[dataset].mean, RELEASED_DATASETS[dataset].std


def _fitted(state: dict[str, Tensor], expected: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Every tensor of the classifier from the checkpoint, or an error that names what does not fit."""
    fitted = {}
    for name, wanted in expected.items():
        found = state.pop(name, None)
        if found is None and name.endswith("num_batches_tracked"):
            found = wanted  # a step counter that the in-place batch norm does not have
        if found is None or found.shape != wanted.shape:
            shape = None if found is None else tuple(found.shape)
            raise InputError(
                f"{path}: {name} has shape {shape} there; the network needs {tuple(wanted.shape)}"
            )
        if found.is_complex() or not bool(torch.isfinite(found).all()):
            raise InputError(f"{path}: {name} holds values that are not finite")
        fitted[name] = found.to(wanted.dtype)
    if state:
        raise InputError(
            f"{path}: has {len(state)} tensors that the network does not have, such as {next(iter(state))}"
        )
    return fitted
