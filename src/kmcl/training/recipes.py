"""Recipes: the settings that nobody gave, chosen for the data, the machine and the budget.

`cached`    the first stages of a pretrained encoder keep their weights; their features are computed once per
            view of each image, and the rest is trained on them. Views, learning rate, weight decay, depth and
            epochs are chosen by the run itself (`training.schedule`).
`finetune`  all stages are trained: the head first, then everything, with smaller rates for earlier stages.
`paper`     the preset of that name.
For feature vectors see `training.vector_recipe`.
`auto`      cached, where the encoder has pretrained weights and stages to freeze, else finetune. On an
            accelerator finetune too, if there are many images and the budget has time for enough epochs.

Settings that were given stay as they are. What a recipe chose is part of the run's settings.yaml, which
repeats the run on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kmcl.data import Dataset
from kmcl.data.source_cache import cache_folder
from kmcl.data.vectors import feature_dim
from kmcl.durations import parse_duration, spell_duration
from kmcl.encoders.offline_weights import PACKAGES
from kmcl.encoders.weights import default_weights
from kmcl.errors import InputError
from kmcl.options import METHOD_OPTIONS
from kmcl.runs.resolution import DEFAULT_METHOD
from kmcl.runs.vector_recipe import choose_for_vectors, names_vectors, vector_values
from kmcl.training.candidates import (
    FINETUNE_CANDIDATE,
    NOMINAL_SECONDS,
    STUDY_CANDIDATE,
    Candidate,
    ImageCounts,
    allowed_candidates,
    are_grey,
    best_that_fits,
    seconds_of_run,
)
from kmcl.training.sharding import NOT_OF_CACHED_FEATURES
from kmcl.training.throughput import Throughput, measure_throughput, measure_training

BUDGETS = {"cpu": 600.0, "accelerator": 3600.0}
LEARNING_RATE = 3e-3
EPOCHS = 6
FINETUNE_EPOCHS = 20
FINETUNE_DEFAULTS = {"epochs": FINETUNE_EPOCHS, "layer_decay": 0.7, "head_epochs": 1}
FINETUNE_LEAST_IMAGES, FINETUNE_LEAST_EPOCHS = 2000, 8
"""On an accelerator: with fewer images or epochs, all stages learn less than the last one alone."""
CHOSEN_BY_RUN = ("cached_views", "learning_rate", "weight_decay", "head_epochs", "epochs")
"""Of `cached`: what a run chooses once it knows how long features and steps take here."""
STAGES_TO_TRAIN_TWO = 6
"""Of an encoder of grey images, at least."""
PROCESS = "frozen_gp"
PROCESS_OF_GREY = f"{PROCESS}:last_map=false,stages=0,grid=7"
MOST_MEASUREMENTS = 3
OVERRUN_TOLD = 1.1
"""Times the budget, above which a run says at its start that it takes longer."""
SHARE_OF_FINETUNING = 0.8
"""Of the budget, for the epochs of finetune."""


class Choice(NamedTuple):
    """The values of a run by flat names, and a line that says what was chosen, why, and what else can be."""

    values: dict[str, Any]
    line: str


class Obstacle(NamedTuple):
    """Why the first stages of an encoder cannot be frozen.

    is_untrained: whether it has no pretrained weights at all
    """

    reason: str
    is_untrained: bool


def choose_settings(values: Mapping[str, Any], dataset: Dataset, device: str) -> Choice:
    """Complete `values`, which hold what was given, for a single training on `device`."""
    values = dict(values)
    recipe = values.get("recipe", "auto")
    if recipe == "paper" and feature_dim(dataset) is None:
        return Choice(values, "recipe paper: the settings as printed")
    if values.get("to_choose") is not None:
        return Choice(values, f"recipe {recipe}: as in the file of settings")
    budget = values.get("budget")
    seconds = _default_budget(device) if budget is None else parse_duration(budget)
    if feature_dim(dataset) is not None:
        return Choice(*choose_for_vectors(values, seconds))
    if "encoder" not in values and values.get("weights") is not None:
        values["encoder"] = _encoder_of(values["weights"])
    encoder = values.get("encoder")
    obstacle = None if encoder is None else obstacle_to_caching(encoder, values.get("weights"))
    if _trains_all_stages(values, obstacle):
        return _finetune(values, obstacle, budget, seconds)
    if recipe == "auto" and device != "cpu" and "frozen_stages" not in values:
        epochs = _epochs_of_finetuning(values, dataset, device, seconds)
        if epochs >= FINETUNE_LEAST_EPOCHS:
            return _finetune(_with_finetune_encoder(values), None, budget, seconds)
    return _cached(values, dataset, device, seconds)


def choose_for_study(values: Mapping[str, Any], *, grey: bool = False) -> dict[str, Any]:
    """Complete the common values of the trainings of a study; nothing is measured.

    grey: whether the images have no colour
    """
    values = dict(values)
    if names_vectors(values.get("data")):
        return vector_values(values)
    if values.get("recipe") == "paper":
        return values
    encoder = values.get("encoder") or _encoder_of(values.get("weights"))
    obstacle = obstacle_to_caching(encoder, values.get("weights"))
    if _trains_all_stages(values, obstacle):
        return _finetune_defaults(obstacle) | values | {"recipe": "finetune"}
    chosen: dict[str, Any] = {"encoder": encoder, "epochs": EPOCHS, "learning_rate": LEARNING_RATE}
    if "encoder" not in values:
        chosen["image_size"] = STUDY_CANDIDATE.image_size
    views = 1 if values.get("augmentation") == "none" else STUDY_CANDIDATE.views
    chosen |= {"cached_views": views, "frozen_stages": default_frozen_stages(encoder, grey=grey)}
    return chosen | {"feature_runtime": _installed_runtime()} | values | {"recipe": "cached"}


def obstacle_to_caching(encoder: str, weights: str | None) -> Obstacle | None:
    """None where the first stages of an encoder can be frozen."""
    if (weights or default_weights(encoder)) == "none":
        return Obstacle(f"encoder {encoder} has no pretrained weights", is_untrained=True)
    try:
        default_frozen_stages(encoder)
    except InputError as error:
        return Obstacle(str(error).rstrip("."), is_untrained=False)
    return None


def default_frozen_stages(encoder: str, *, grey: bool = False) -> int:
    """All stages but the last; of the many blocks of a transformer, all but the last sixth.

    grey: whether images have no colour, as X-rays and scans. These are unlike the photographs that encoders
          were trained on, so twice as much is trained (docs/recipes.md); but not of an encoder with few
          stages, two of which are most of it.
    """
    from kmcl.encoders.timm_encoder import count_stages

    stages = count_stages(encoder)
    trained = max(1, stages // 6)
    return stages - (2 * trained if grey and stages >= STAGES_TO_TRAIN_TWO else trained)


def trains_more_stages(encoder: str, frozen_stages: int) -> bool:
    """Whether fewer stages are frozen than `default_frozen_stages` of photographs."""
    return frozen_stages < default_frozen_stages(encoder)


def with_parts(values: Mapping[str, Any], *, grey: bool) -> dict[str, Any]:
    """Complete values with the method's post-hoc parts, where grey images need others than its own: with more
    trained stages than one, on cached features, the Gaussian process reads the last frozen map, in cells.

    The copy of two stages for the last map would be a third of a prediction, and gains nothing on X-rays, but
    the place of a feature does: they are taken alike (docs/research/default.md).
    """
    values = dict(values)
    parts = METHOD_OPTIONS.find(values.get("method") or DEFAULT_METHOD).posthoc
    if not grey or values["recipe"] != "cached" or PROCESS not in parts:
        return values
    if not trains_more_stages(values["encoder"], values["frozen_stages"]):
        return values
    return {"posthoc": ",".join(PROCESS_OF_GREY if name == PROCESS else name for name in parts)} | values


def _trains_all_stages(values: Mapping[str, Any], obstacle: Obstacle | None) -> bool:
    """Whether what was given, or the encoder, leaves only finetune."""
    recipe = values.get("recipe", "auto")
    if recipe == "cached" and obstacle:
        raise InputError(f"recipe cached: {obstacle.reason}; use --recipe finetune")
    return recipe == "finetune" or obstacle is not None or values.get("frozen_stages") == 0


def _encoder_of(weights: str | None) -> str:
    """The encoder that these weights are for, where only they were given."""
    return PACKAGES[weights].encoder if weights in PACKAGES else STUDY_CANDIDATE.encoder


def _finetune(values: dict[str, Any], obstacle: Obstacle | None, budget: Any, seconds: float) -> Choice:
    chosen = _finetune_defaults(obstacle) | values | {"recipe": "finetune"}
    line = "recipe finetune: all stages are trained"
    if obstacle:
        line += f" ({obstacle.reason})"
    if budget is not None or obstacle is None:
        chosen |= {"budget": seconds}
        if "epochs" not in values:
            chosen["to_choose"] = ("epochs",)
            line += f", as many epochs as fit into {spell_duration(seconds)} (--budget)"
    return Choice(chosen, line)


def _finetune_defaults(obstacle: Obstacle | None) -> dict[str, Any]:
    return {} if obstacle is not None and obstacle.is_untrained else dict(FINETUNE_DEFAULTS)


def _with_finetune_encoder(values: dict[str, Any]) -> dict[str, Any]:
    if "encoder" in values:
        return values
    chosen = {"encoder": FINETUNE_CANDIDATE.encoder, "image_size": FINETUNE_CANDIDATE.image_size}
    return chosen | values


def _epochs_of_finetuning(values: Mapping[str, Any], dataset: Dataset, device: str, seconds: float) -> float:
    """How many epochs of the whole network the budget has time for; 0 with too few images."""
    num_train = len(dataset.splits["train"])
    if num_train < FINETUNE_LEAST_IMAGES:
        return 0.0
    chosen = _with_finetune_encoder(dict(values))
    step = measure_training(
        chosen["encoder"],
        chosen.get("weights"),
        chosen.get("image_size"),
        dataset.splits["train"],
        device,
        1 if chosen.get("grey") else 3,
    )
    return SHARE_OF_FINETUNING * seconds / (num_train * step)


def _cached(values: dict[str, Any], dataset: Dataset, device: str, seconds: float) -> Choice:
    if values.get("strategy") == "fsdp":
        raise InputError(NOT_OF_CACHED_FEATURES)
    grey = are_grey(dataset)
    if all(name in values for name in ("encoder", "image_size", "cached_views", "learning_rate", "epochs")):
        fixed = {
            "frozen_stages": default_frozen_stages(values["encoder"], grey=grey),
            "feature_runtime": _installed_runtime(),
        }
        fixed |= values | {"recipe": "cached"}
        return Choice(with_parts(fixed, grey=grey), "recipe cached: with the settings given")
    candidates = allowed_candidates(values, dataset, seconds)
    images = ImageCounts.of(dataset, with_test=values.get("measure_test") is not False)

    def measure(candidate: Candidate) -> Throughput:
        stages = values.get("frozen_stages") or default_frozen_stages(candidate.encoder, grey=grey)
        return measure_throughput(
            candidate.encoder,
            values.get("weights"),
            candidate.image_size,
            stages,
            dataset.splits["train"],
            values.get("cache_dir") or cache_folder() / "features",
            device,
            1 if values.get("grey") else 3,
        )

    # What is taken has been timed as it will run. A measurement may be wrong where other programs run for a
    # moment, so that a larger candidate can be timed again.
    timed = best_that_fits(candidates, images, seconds, lambda c: c.cost * NOMINAL_SECONDS)
    for _ in range(MOST_MEASUREMENTS):
        measured = measure(timed)
        candidate = best_that_fits(candidates, images, seconds, measured.for_candidates(timed))
        if candidate[:2] == timed[:2]:
            break
        last_timed, timed = timed, candidate
    else:
        timed = last_timed
        no_larger = [c for c in candidates if c.cost <= timed.cost]
        candidate = best_that_fits(no_larger, images, seconds, measured.for_candidates(timed))
    expected = images.passes(candidate.views) * measured.for_candidates(timed)(candidate)
    to_choose = [name for name in CHOSEN_BY_RUN if name not in values]
    chosen: dict[str, Any] = {
        "encoder": candidate.encoder,
        "image_size": candidate.image_size,
        "frozen_stages": default_frozen_stages(candidate.encoder, grey=grey),
        "cached_views": candidate.views,
        "feature_runtime": measured.runtime,
        "learning_rate": LEARNING_RATE,
        "epochs": EPOCHS,
    }
    chosen |= values | {"recipe": "cached", "budget": seconds, "to_choose": tuple(to_choose)}
    chosen = with_parts(chosen, grey=grey)
    line = _told(chosen, timed, measured, expected)
    fewest = seconds_of_run(candidate, images, 1.0, measured.for_candidates(timed)(candidate))
    if fewest > OVERRUN_TOLD * seconds:
        line += f" Even so the run takes about {spell_duration(fewest)}, more than --budget."
    return Choice(chosen, line)


def _told(chosen: Mapping[str, Any], timed: Candidate, measured: Throughput, expected: float) -> str:
    views, rate = chosen["cached_views"], 1 / measured.seconds_per_image()
    return (
        f"recipe cached: {chosen['encoder']} at {chosen['image_size']} px with its first "
        f"{chosen['frozen_stages']} stages frozen, {views} view{'s' * (views > 1)} of each image. Features "
        f"take about {spell_duration(expected)} of the {spell_duration(chosen['budget'])} of --budget "
        f"({timed.encoder} at {timed.image_size} px: {rate:.0f} images a second here, in "
        f"{measured.runtime}); then learning rates are tried and the rest is trained. --recipe finetune "
        "trains all stages."
    )


def _default_budget(device: str) -> float:
    return BUDGETS["cpu" if device == "cpu" else "accelerator"]


def _installed_runtime() -> str:
    from kmcl.features.runtime import can_use_onnxruntime

    return "onnxruntime" if can_use_onnxruntime() else "torch"
