"""Recipes: the settings that nobody gave, chosen for the data, the machine and the budget.

`cached`    the first stages of a pretrained encoder keep their weights; their features are computed once per
            view of each image, and the rest is trained on them. Views, learning rate and epochs are chosen by
            the run itself (`training.schedule`), once it knows how long features and steps take here.
`finetune`  all stages are trained: the head first, then everything, with smaller rates for earlier stages.
`paper`     the preset of that name.
`auto`      cached, where the encoder has pretrained weights and stages to freeze, else finetune.

Settings that were given stay as they are. What a recipe chose is part of the run's settings.yaml, which
repeats the run on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kmcl.data import Dataset
from kmcl.data.source_cache import cache_folder
from kmcl.durations import parse_duration, spell_duration
from kmcl.encoders.offline_weights import PACKAGES
from kmcl.encoders.weights import default_weights
from kmcl.errors import InputError
from kmcl.training.presets import preset_values
from kmcl.training.throughput import Throughput, measure_throughput

BUDGETS = {"cpu": 600.0, "accelerator": 3600.0}
SHARE_OF_FEATURES = 0.55
"""Of the budget, at most, for computing features; the rest is for training."""
SHARE_OF_ALL = 0.85
"""Of the budget, for features and the fewest epochs together; the rest is for the start and the end."""
EPOCH_PER_PASS = 0.5
"""An epoch on cached features takes half as long as computing them, for all encoders and sizes measured."""
LONG_BUDGET, EPOCHS_OF_LONG = 300.0, 3.75
"""Above this budget there must be time for three epochs and the search of the rate, below it for one."""
LEARNING_RATE = 3e-3
EPOCHS = 6
FINETUNE_EPOCHS = 20
LARGEST_ENLARGEMENT = 1.6
"""Of the images' longer side: enlarging them further shows an encoder nothing more."""
COST_EXPONENT = 1.1
"""Time grows a little faster than multiplications: larger maps leave the processor's cache."""
NOMINAL_SECONDS = 1.4e-7
"""For a unit of `Candidate.cost`, on two cores: only decides which candidate is timed first."""


class Candidate(NamedTuple):
    """An encoder, its image size and the number of views."""

    encoder: str
    image_size: int
    views: int

    @property
    def cost(self) -> float:
        """Multiplications for one view of an image, up to a factor."""
        return _COSTS.get(self.encoder, 1.0) * self.image_size**2


_LITE0, _LITE2 = "tf_efficientnet_lite0", "tf_efficientnet_lite2"
_COSTS = {_LITE0: 1.0, _LITE2: 1.66}
"""Multiplications per pixel, of encoders that are compared with one another."""
CANDIDATES = (
    Candidate(_LITE0, 128, 1),
    Candidate(_LITE0, 160, 1),
    Candidate(_LITE0, 192, 1),
    Candidate(_LITE0, 224, 1),
    Candidate(_LITE2, 224, 1),
    Candidate(_LITE2, 260, 1),
    Candidate(_LITE2, 320, 1),
    Candidate(_LITE2, 320, 2),
    Candidate(_LITE2, 384, 2),
    Candidate(_LITE2, 384, 3),
    Candidate(_LITE2, 448, 3),
    Candidate(_LITE2, 448, 4),
)
"""From the cheapest to the dearest; the last that fits the budget is taken."""
STUDY_CANDIDATE = Candidate(_LITE0, 224, 2)
"""For comparisons and studies, whose plan must not depend on the speed of the machine."""


class Choice(NamedTuple):
    """The values of a run by flat names, and a line that says what was chosen, why, and what else can be."""

    values: dict[str, Any]
    line: str


def choose_settings(values: Mapping[str, Any], dataset: Dataset, device: str) -> Choice:
    """Complete `values`, which hold what was given, for a single training on `device`."""
    values = dict(values)
    recipe = values.get("recipe", "auto")
    if recipe == "paper":
        return Choice(preset_values("paper", values) | values, "recipe paper: the settings as printed")
    if values.get("to_choose") is not None:
        return Choice(values, f"recipe {recipe}: as in the file of settings")
    budget = values.get("budget")
    seconds = _default_budget(device) if budget is None else parse_duration(budget)
    if "encoder" not in values and values.get("weights") is not None:
        values["encoder"] = _encoder_of(values["weights"])
    encoder = values.get("encoder")
    obstacle = None if encoder is None else obstacle_to_caching(encoder, values.get("weights"))
    if recipe == "cached" and obstacle:
        raise InputError(f"recipe cached: {obstacle}; use --recipe finetune")
    if recipe == "finetune" or obstacle or values.get("frozen_stages") == 0:
        return _finetune(values, obstacle, budget, seconds)
    return _cached(values, dataset, device, seconds)


def choose_for_study(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the common values of the trainings of a study; nothing is measured."""
    values = dict(values)
    recipe = values.get("recipe", "auto")
    if recipe == "paper":
        return preset_values("paper", values) | values
    encoder = values.get("encoder") or _encoder_of(values.get("weights"))
    obstacle = obstacle_to_caching(encoder, values.get("weights"))
    if recipe == "cached" and obstacle:
        raise InputError(f"recipe cached: {obstacle}; use --recipe finetune")
    if recipe == "finetune" or obstacle or values.get("frozen_stages") == 0:
        return _finetune_defaults(obstacle) | values | {"recipe": "finetune"}
    chosen: dict[str, Any] = {"encoder": encoder, "epochs": EPOCHS, "learning_rate": LEARNING_RATE}
    if "encoder" not in values:
        chosen["image_size"] = STUDY_CANDIDATE.image_size
    views = 1 if values.get("augmentation") == "none" else STUDY_CANDIDATE.views
    chosen |= {"cached_views": views, "frozen_stages": default_frozen_stages(encoder)}
    return chosen | {"feature_runtime": _installed_runtime()} | values | {"recipe": "cached"}


def _encoder_of(weights: str | None) -> str:
    """The encoder that these weights are for, where only they were given."""
    return PACKAGES[weights].encoder if weights in PACKAGES else STUDY_CANDIDATE.encoder


def obstacle_to_caching(encoder: str, weights: str | None) -> str | None:
    """Why the first stages of an encoder cannot be frozen; None where they can."""
    if (weights or default_weights(encoder)) == "none":
        return f"encoder {encoder} has no pretrained weights"
    try:
        default_frozen_stages(encoder)
    except InputError as error:
        return str(error).rstrip(".")
    return None


def default_frozen_stages(encoder: str) -> int:
    """All stages but the last; of the many blocks of a transformer, all but the last sixth."""
    from kmcl.encoders.timm_encoder import count_stages

    stages = count_stages(encoder)
    return stages - max(1, stages // 6)


def _finetune(values: dict[str, Any], obstacle: str | None, budget: Any, seconds: float) -> Choice:
    chosen = _finetune_defaults(obstacle) | values | {"recipe": "finetune"}
    line = "recipe finetune: all stages are trained"
    if obstacle:
        line += f" ({obstacle})"
    if budget is not None or obstacle is None:
        chosen |= {"budget": seconds}
        if "epochs" not in values:
            chosen["to_choose"] = ("epochs",)
            line += f", as many epochs as fit into {spell_duration(seconds)} (--budget)"
    return Choice(chosen, line)


def _finetune_defaults(obstacle: str | None) -> dict[str, Any]:
    if obstacle and "no pretrained" in obstacle:
        return {}
    return {"epochs": FINETUNE_EPOCHS, "layer_decay": 0.7, "head_epochs": 1}


def _cached(values: dict[str, Any], dataset: Dataset, device: str, seconds: float) -> Choice:
    if all(name in values for name in ("encoder", "image_size", "cached_views", "learning_rate", "epochs")):
        fixed = {
            "frozen_stages": default_frozen_stages(values["encoder"]),
            "feature_runtime": _installed_runtime(),
        }
        return Choice(fixed | values | {"recipe": "cached"}, "recipe cached: with the settings given")
    candidates = _candidates(values, dataset)
    images = _Images.of(dataset, with_test=values.get("measure_test") is not False)

    def measure(candidate: Candidate) -> Throughput:
        stages = values.get("frozen_stages") or default_frozen_stages(candidate.encoder)
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

    # What is measured should be what is taken: its stages are exported and timed as they will run.
    measured_one = _best_that_fits(candidates, images, seconds, lambda c: c.cost * NOMINAL_SECONDS)
    measured = measure(measured_one)
    candidate = _best_that_fits(candidates, images, seconds, _seconds_by(measured, measured_one))
    if candidate[:2] != measured_one[:2]:
        measured_one, measured = candidate, measure(candidate)
        no_larger = candidates[: candidates.index(candidate) + 1]
        candidate = _best_that_fits(no_larger, images, seconds, _seconds_by(measured, measured_one))
    expected = images.passes(candidate.views) * _seconds_by(measured, measured_one)(candidate)
    to_choose = [name for name in ("cached_views", "learning_rate", "epochs") if name not in values]
    chosen: dict[str, Any] = {
        "encoder": candidate.encoder,
        "image_size": candidate.image_size,
        "frozen_stages": default_frozen_stages(candidate.encoder),
        "cached_views": candidate.views,
        "feature_runtime": measured.runtime,
        "learning_rate": LEARNING_RATE,
        "epochs": EPOCHS,
    }
    chosen |= values | {"recipe": "cached", "budget": seconds, "to_choose": tuple(to_choose)}
    return Choice(chosen, _told(chosen, measured_one, measured, expected))


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


def _candidates(values: Mapping[str, Any], dataset: Dataset) -> list[Candidate]:
    """Those that agree with what was given, the cheapest first."""
    encoder, size, views = values.get("encoder"), values.get("image_size"), values.get("cached_views")
    if encoder is None:
        candidates = [c for c in CANDIDATES if default_weights(c.encoder) != "none"]
    else:
        candidates = _sizes_of(encoder)
    if values.get("augmentation") == "none":
        views = 1
    if views is not None:
        candidates = [c._replace(views=views) for c in candidates]
    if size is not None:
        candidates = [c._replace(image_size=size) for c in candidates]
    else:
        largest = LARGEST_ENLARGEMENT * _longer_side(dataset)
        candidates = [c for c in candidates if c.image_size <= largest] or candidates[:1]
    return list(dict.fromkeys(candidates))


def _sizes_of(encoder: str) -> list[Candidate]:
    """An encoder of the user's choice: at its own size, smaller, and (where it can) larger."""
    from kmcl.encoders.timm_encoder import own_size

    size, is_fixed = own_size(encoder)
    if is_fixed:
        return [Candidate(encoder, size, views) for views in (1, 2, 3)]
    smaller = [Candidate(encoder, int(size * part) // 32 * 32, 1) for part in (0.6, 0.8)]
    larger = int(size * 1.3) // 32 * 32
    return [*smaller, Candidate(encoder, size, 1), Candidate(encoder, size, 2)] + [
        Candidate(encoder, larger, views) for views in (2, 3)
    ]


def _longer_side(dataset: Dataset, most: int = 16) -> float:
    """The median longer side of some training images in pixels."""
    images = dataset.splits["train"].images
    rows = np.linspace(0, len(images) - 1, min(most, len(images)), dtype=int)
    sides = []
    for row in rows:
        try:
            sides.append(max(images.load(int(row)).shape[:2]))
        except InputError:
            continue  # reported when the features are computed
    return float(np.median(sides)) if sides else float("inf")


class _Images(NamedTuple):
    """How many images of a dataset need features: of each view of train, and besides."""

    train: int
    other: int

    @classmethod
    def of(cls, dataset: Dataset, *, with_test: bool) -> _Images:
        others = ("val", "test") if with_test else ("val",)
        other = sum(len(dataset.splits[name]) for name in others if name in dataset.splits)
        return cls(len(dataset.splits["train"]), other)

    def passes(self, views: int) -> int:
        return self.other + views * self.train


def _seconds_by(measured: Throughput, timed: Candidate) -> Callable[[Candidate], float]:
    """Seconds that one image takes with any candidate, from those of the one that was timed."""
    return lambda candidate: measured.seconds_per_image((candidate.cost / timed.cost) ** COST_EXPONENT)


def _best_that_fits(
    candidates: Sequence[Candidate],
    images: _Images,
    budget: float,
    seconds_per_image: Callable[[Candidate], float],
) -> Candidate:
    """The last candidate whose features fit into their share of the budget and leave time for some epochs,
    else the first.
    """
    epochs = EPOCHS_OF_LONG if budget >= LONG_BUDGET else 1.0

    def fits(candidate: Candidate) -> bool:
        seconds = seconds_per_image(candidate)
        features = images.passes(candidate.views) * seconds
        training = epochs * EPOCH_PER_PASS * images.train * seconds
        return features <= SHARE_OF_FEATURES * budget and features + training <= SHARE_OF_ALL * budget

    fitting = [candidate for candidate in candidates if fits(candidate)]
    return fitting[-1] if fitting else candidates[0]


def _default_budget(device: str) -> float:
    return BUDGETS["cpu" if device == "cpu" else "accelerator"]


def _installed_runtime() -> str:
    from kmcl.training.frozen_runtime import can_use_onnxruntime

    return "onnxruntime" if can_use_onnxruntime() else "torch"
