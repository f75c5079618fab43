"""Recipes: the settings that nobody gave, chosen for the data, the machine and the budget.

`cached`    the first stages of a pretrained encoder keep their weights; their features are computed once per
            view of each image, and the rest is trained on them. Views, learning rate, weight decay, depth and
            epochs are chosen by the run itself (`kmcl.training`).
`finetune`  all stages are trained: the head first, then everything, with smaller rates for earlier stages.
`paper`     the preset of that name.
`vectors`   for feature vectors: there is no encoder to choose, freeze or train, only the head on them.
`auto`      vectors, where the data are such; cached, where the encoder has pretrained weights and stages to
            freeze, else finetune. On an accelerator finetune too, if there are many images and the budget has
            time for enough epochs.

Settings that were given stay as they are. What a recipe chose is part of the run's settings.yaml, which
repeats the run on any machine. Other packages add recipes by the entry-point group `kmcl.recipes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kmcl.data.normalisation import IDENTITY
from kmcl.data.readers.registry import READERS
from kmcl.durations import parse_duration, spell_duration
from kmcl.errors import InputError
from kmcl.options import METHOD_OPTIONS
from kmcl.registry import Registry
from kmcl.runs.planning import (
    FINETUNE_CANDIDATE,
    NOMINAL_SECONDS,
    STUDY_CANDIDATE,
    Candidate,
    DataRule,
    Encoders,
    Facts,
    ImageCounts,
    Machine,
    Throughput,
    allowed_candidates,
    best_that_fits,
    installed_runtime,
    relative_cost,
    seconds_of_run,
)

DEFAULT_METHOD = "kmcl"
BUDGETS = {"cpu": 600.0, "accelerator": 3600.0}
LEARNING_RATE = 3e-3
EPOCHS, VECTOR_EPOCHS, FINETUNE_EPOCHS = 6, 20, 20
FINETUNE_DEFAULTS = {"epochs": FINETUNE_EPOCHS, "layer_decay": 0.7, "head_epochs": 1}
FINETUNE_LEAST_IMAGES, FINETUNE_LEAST_EPOCHS = 2000, 8
"""On an accelerator: with fewer images or epochs, all stages learn less than the last one alone."""
CHOSEN_BY_RUN = ("cached_views", "learning_rate", "weight_decay", "head_epochs", "epochs")
"""Of `cached`: what a run chooses once it knows how long features and steps take here."""
PROCESS = "frozen_gp"
MOST_MEASUREMENTS = 3
OVERRUN_TOLD = 1.1
"""Times the budget, above which a run says at its start that it takes longer."""
SHARE_OF_FINETUNING = 0.8
"""Of the budget, for the epochs of finetune."""
NOT_OF_SHARDED_WEIGHTS = (
    "--strategy fsdp: cached features leave little to train, which every process can hold; use "
    "--recipe finetune, or --strategy ddp"
)


class Choice(NamedTuple):
    """What a recipe chose.

    values: by flat names; of those that were given only `recipe`, `budget` and `to_choose` are taken
    reason: a sentence that says what was chosen, why, and what else can be
    """

    values: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Recipe:
    """A way to choose settings.

    chooses:  names of the settings that it may choose
    obstacle: why it cannot be used with what was given and with these data; None where it can
    choose:   from what was given; without a machine nothing is measured, and nothing is left to the run
    """

    chooses: tuple[str, ...]
    obstacle: Callable[[Mapping[str, Any], Facts], str | None]
    choose: Callable[[Mapping[str, Any], Facts, Machine | None], Choice]


def choose_settings(values: Mapping[str, Any], facts: Facts, machine: Machine | None = None) -> Choice:
    """What the recipe of these values chooses; nothing where they are the settings of a run."""
    name = values.get("recipe", "auto")
    if machine is not None and values.get("to_choose") is not None:
        return Choice(dict(values), f"recipe {name}: as in the file of settings")
    recipe = RECIPES["vectors"] if facts.are_vectors else RECIPES.find(name)
    if obstacle := recipe.obstacle(values, facts):
        raise InputError(f"recipe {name}: {obstacle}")
    return recipe.choose(values, facts, machine)


def left_to_the_run(values: Mapping[str, Any]) -> list[str]:
    """Settings that nobody gave and that a training chooses for its data, machine and budget."""
    if values.get("to_choose") is not None:  # the settings of a run, which are complete
        return []
    name = "vectors" if names_vectors(values.get("data")) else values.get("recipe", "auto")
    return [each for each in RECIPES.find(name).chooses if each not in values]


def names_vectors(spec: object) -> bool:
    """Whether a dataset spec names feature vectors; of what is in memory only the dataset itself says it."""
    kind = str(spec).partition(":")[0].strip()
    return kind in READERS and READERS[kind].gives_vectors


def default_frozen_stages(encoder: str, encoders: Encoders, rule: DataRule | None = None) -> int:
    """All stages but the last; of the many blocks of a transformer, all but the last sixth.

    rule: of the data, which may want more stages trained
    """
    rule = rule or DataRule()
    stages = encoders.count_stages(encoder)
    times = rule.trained_stages if stages >= rule.least_stages else 1
    return stages - times * max(1, stages // 6)


# What was given is used as it is


def _choose_nothing(values: Mapping[str, Any], facts: Facts, machine: Machine | None) -> Choice:
    return Choice(dict(values), "recipe paper: the settings as printed")


def _no_obstacle(values: Mapping[str, Any], facts: Facts) -> str | None:
    return None


# Feature vectors

OF_IMAGES: dict[str, Any] = {
    "encoder": IDENTITY,
    "weights": "none",
    "frozen_stages": 1,
    "cached_views": 0,
    "augmentation": "none",
    "image_size": None,
    "normalisation": "encoder",
    "grey": False,
    "layer_decay": 1.0,
    "head_epochs": 0,
}
"""Settings that are about images or an encoder, and the only value that each can have for feature vectors."""


def vector_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete values for feature vectors; settings of images and encoders are refused."""
    recipe = values.get("recipe", "auto")
    if recipe not in ("auto", "cached", "vectors"):
        raise InputError(
            f"recipe {recipe}: is for images; for feature vectors, which have no encoder to train, leave out "
            "--recipe, and --preset too"
        )
    for name, only in OF_IMAGES.items():
        if values.get(name, only) not in (only, None):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{flag} {values[name]}: is about images or their encoder, and the data are feature vectors"
            )
    defaults = {"learning_rate": LEARNING_RATE, "epochs": VECTOR_EPOCHS}
    return defaults | dict(values) | OF_IMAGES | {"recipe": "cached"}


def _no_vectors(values: Mapping[str, Any], facts: Facts) -> str | None:
    return None if facts.are_vectors else "is for feature vectors, and the data are images"


def _choose_for_vectors(values: Mapping[str, Any], facts: Facts, machine: Machine | None) -> Choice:
    chosen = vector_settings(values)
    if machine is None:
        return Choice(chosen, "recipe vectors: nothing is measured")
    seconds = _budget(values, machine)
    to_choose = tuple(name for name in ("learning_rate", "weight_decay", "epochs") if name not in values)
    tried = "learning rates are tried, then " if "learning_rate" in to_choose else ""
    reason = (
        f"recipe cached: the features are given, so no image is read; {tried}the head is trained on them and "
        f"post-hoc parts are fitted, within {spell_duration(seconds)} (--budget)."
    )
    return Choice(chosen | {"budget": seconds, "to_choose": to_choose}, reason)


# All stages are trained


class _Obstacle(NamedTuple):
    """Why the first stages of an encoder cannot be frozen.

    is_untrained: whether it has no pretrained weights at all
    """

    reason: str
    is_untrained: bool


def _obstacle_to_freezing(values: Mapping[str, Any], encoders: Encoders) -> _Obstacle | None:
    encoder = _encoder(values, encoders)
    if (values.get("weights") or encoders.default_weights(encoder)) == "none":
        return _Obstacle(f"encoder {encoder} has no pretrained weights", is_untrained=True)
    try:
        encoders.count_stages(encoder)
    except InputError as error:
        return _Obstacle(str(error).rstrip("."), is_untrained=False)
    return None


def _choose_finetune(values: Mapping[str, Any], facts: Facts, machine: Machine | None) -> Choice:
    obstacle = _obstacle_to_freezing(values, facts.encoders)
    is_untrained = obstacle is not None and obstacle.is_untrained
    chosen = {**({} if is_untrained else FINETUNE_DEFAULTS), **values, "recipe": "finetune"}
    chosen |= _encoder_of_weights(values, facts.encoders)
    reason = "recipe finetune: all stages are trained"
    if obstacle:
        reason += f" ({obstacle.reason})"
    if machine is not None and (values.get("budget") is not None or obstacle is None):
        seconds = _budget(values, machine)
        chosen |= {"budget": seconds}
        if "epochs" not in values:
            chosen["to_choose"] = ("epochs",)
            reason += f", as many epochs as fit into {spell_duration(seconds)} (--budget)"
    return Choice(chosen, reason)


def _encoder_with_time_to_train(
    values: Mapping[str, Any], facts: Facts, machine: Machine | None
) -> dict[str, Any] | None:
    """The encoder and image size that there is time to train as a whole; None where there is none."""
    if machine is None or machine.device == "cpu" or "frozen_stages" in values:
        return None
    if len(facts.train) < FINETUNE_LEAST_IMAGES:
        return None
    large = _encoder_of_weights(values, facts.encoders)
    if "encoder" not in values and not large:
        candidate = {"encoder": FINETUNE_CANDIDATE.encoder, "image_size": FINETUNE_CANDIDATE.image_size}
        large = _not_given(values, candidate)
    wanted = {**values, **large}
    seconds_per_image = machine.time_training(
        wanted["encoder"], wanted.get("weights"), wanted.get("image_size"), facts.train, _in_channels(values)
    )
    epochs = SHARE_OF_FINETUNING * _budget(values, machine) / (len(facts.train) * seconds_per_image)
    return large if epochs >= FINETUNE_LEAST_EPOCHS else None


# The first stages are frozen, and their features cached


def _obstacle_to_caching(values: Mapping[str, Any], facts: Facts) -> str | None:
    obstacle = _obstacle_to_freezing(values, facts.encoders)
    return f"{obstacle.reason}; use --recipe finetune" if obstacle else None


def _choose_cached(values: Mapping[str, Any], facts: Facts, machine: Machine | None) -> Choice:
    if values.get("frozen_stages") == 0:
        return _choose_finetune(values, facts, machine)
    if values.get("strategy") == "fsdp":
        raise InputError(NOT_OF_SHARDED_WEIGHTS)
    named = {**values, **_encoder_of_weights(values, facts.encoders)}
    if machine is None:
        chosen, reason = _without_measuring(values, facts)
    elif all(name in named for name in ("encoder", "image_size", "cached_views", "learning_rate", "epochs")):
        frozen = default_frozen_stages(named["encoder"], facts.encoders, facts.rule)
        chosen = {"frozen_stages": frozen, "feature_runtime": installed_runtime()}
        reason = "recipe cached: with the settings given"
    else:
        chosen, reason = _what_fits(named, facts, machine)
    complete = named | _not_given(named, chosen)
    parts = {} if "posthoc" in values else parts_for(complete, facts.rule, facts.encoders)
    decided = {name: chosen[name] for name in ("budget", "to_choose") if name in chosen}
    return Choice(complete | parts | decided | {"recipe": "cached"}, reason)


def _without_measuring(values: Mapping[str, Any], facts: Facts) -> Choice:
    encoder, candidate = _encoder(values, facts.encoders), STUDY_CANDIDATE
    chosen = {
        "encoder": encoder,
        "frozen_stages": default_frozen_stages(encoder, facts.encoders, facts.rule),
        "cached_views": 1 if values.get("augmentation") == "none" else candidate.views,
        "feature_runtime": installed_runtime(),
        "learning_rate": LEARNING_RATE,
        "epochs": EPOCHS,
    }
    if "encoder" not in values:
        chosen["image_size"] = candidate.image_size
    return Choice(chosen, "recipe cached: nothing is measured")


def _what_fits(values: Mapping[str, Any], facts: Facts, machine: Machine) -> Choice:
    """The largest candidate that the budget has time for; the run chooses the rest."""
    budget = _budget(values, machine)
    candidates = allowed_candidates(values, facts, budget)
    images = ImageCounts.of(facts.dataset, with_test=values.get("measure_test") is not False)
    timed, measured, candidate = _fit(candidates, images, budget, values, facts, machine)
    seconds_per_image = measured.seconds_per_image(relative_cost(candidate, timed))
    chosen = {
        "encoder": candidate.encoder,
        "image_size": candidate.image_size,
        "frozen_stages": default_frozen_stages(candidate.encoder, facts.encoders, facts.rule),
        "cached_views": candidate.views,
        "feature_runtime": measured.runtime,
        "learning_rate": LEARNING_RATE,
        "epochs": EPOCHS,
        "budget": budget,
        "to_choose": tuple(name for name in CHOSEN_BY_RUN if name not in values),
    }
    views, rate = values.get("cached_views", candidate.views), 1 / measured.seconds_per_image()
    reason = (
        f"recipe cached: {candidate.encoder} at {candidate.image_size} px with its first "
        f"{values.get('frozen_stages', chosen['frozen_stages'])} stages frozen, {views} "
        f"view{'s' * (views > 1)} of each image. Features take about "
        f"{spell_duration(images.passes(candidate.views) * seconds_per_image)} of the "
        f"{spell_duration(budget)} of --budget ({timed.encoder} at {timed.image_size} px: {rate:.0f} images "
        f"a second here, in {values.get('feature_runtime', measured.runtime)}); then learning rates are "
        "tried and the rest is trained. --recipe finetune trains all stages."
    )
    fewest = seconds_of_run(candidate, images, 1.0, seconds_per_image)
    if fewest > OVERRUN_TOLD * budget:
        reason += f" Even so the run takes about {spell_duration(fewest)}, more than --budget."
    return Choice(chosen, reason)


class _Fit(NamedTuple):
    """What was timed, how long it takes, and what is taken."""

    timed: Candidate
    measured: Throughput
    candidate: Candidate


def _fit(
    candidates: list[Candidate],
    images: ImageCounts,
    budget: float,
    values: Mapping[str, Any],
    facts: Facts,
    machine: Machine,
) -> _Fit:
    """What is taken has been timed as it will run. A measurement may be wrong where other programs run for a
    moment, so that a larger candidate can be timed again.
    """

    def measure(candidate: Candidate) -> Throughput:
        stages = values.get("frozen_stages")
        return machine.time_features(
            candidate.encoder,
            values.get("weights"),
            candidate.image_size,
            stages or default_frozen_stages(candidate.encoder, facts.encoders, facts.rule),
            facts.train,
            _in_channels(values),
        )

    def largest(candidates: list[Candidate], timed: Candidate, measured: Throughput) -> Candidate:
        return best_that_fits(
            candidates, images, budget, lambda one: measured.seconds_per_image(relative_cost(one, timed))
        )

    timed = best_that_fits(candidates, images, budget, lambda one: one.cost * NOMINAL_SECONDS)
    for _ in range(MOST_MEASUREMENTS):
        measured = measure(timed)
        candidate = largest(candidates, timed, measured)
        if candidate[:2] == timed[:2]:
            return _Fit(timed, measured, candidate)
        last_timed, timed = timed, candidate
    no_larger = [one for one in candidates if one.cost <= last_timed.cost]
    return _Fit(last_timed, measured, largest(no_larger, last_timed, measured))


def parts_for(values: Mapping[str, Any], rule: DataRule, encoders: Encoders) -> dict[str, Any]:
    """Post-hoc parts, where the data want others than the method's own: with more trained stages than one."""
    parts = METHOD_OPTIONS.find(values.get("method") or DEFAULT_METHOD).posthoc
    if rule.process is None or PROCESS not in parts:
        return {}
    if values["frozen_stages"] >= default_frozen_stages(values["encoder"], encoders):
        return {}
    return {"posthoc": ",".join(rule.process if name == PROCESS else name for name in parts)}


# Whichever suits


def _choose_automatically(values: Mapping[str, Any], facts: Facts, machine: Machine | None) -> Choice:
    if _obstacle_to_freezing(values, facts.encoders):
        return _choose_finetune(values, facts, machine)
    large = _encoder_with_time_to_train(values, facts, machine)
    if large is None:
        return _choose_cached(values, facts, machine)
    return _choose_finetune({**values, **large}, facts, machine)


# What recipes share


def _budget(values: Mapping[str, Any], machine: Machine) -> float:
    """In seconds."""
    if values.get("budget") is not None:
        return parse_duration(values["budget"])
    return BUDGETS["cpu" if machine.device == "cpu" else "accelerator"]


def _encoder(values: Mapping[str, Any], encoders: Encoders) -> str:
    """The encoder that was given, or the one that the weights are for."""
    found: str | None = values.get("encoder") or encoders.made_for(values.get("weights"))
    return found or STUDY_CANDIDATE.encoder


def _encoder_of_weights(values: Mapping[str, Any], encoders: Encoders) -> dict[str, Any]:
    """The encoder, where only weights were given."""
    if "encoder" in values or values.get("weights") is None:
        return {}
    return {"encoder": _encoder(values, encoders)}


def _in_channels(values: Mapping[str, Any]) -> int:
    return 1 if values.get("grey") else 3


def _not_given(values: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if name not in values}


_BY_CACHED = (
    *("budget", "encoder", "image_size", "frozen_stages", "cached_views", "feature_runtime", "posthoc"),
    *("learning_rate", "weight_decay", "head_epochs", "epochs"),
)
_BY_FINETUNE = ("budget", "layer_decay", "head_epochs", "epochs")
_BY_EITHER = ("recipe", *dict.fromkeys((*_BY_CACHED, *_BY_FINETUNE)))

RECIPES: Registry[Recipe] = Registry(
    "recipe",
    "kmcl.recipes",
    {
        "auto": Recipe(_BY_EITHER, _no_obstacle, _choose_automatically),
        "cached": Recipe(_BY_CACHED, _obstacle_to_caching, _choose_cached),
        "finetune": Recipe(_BY_FINETUNE, _no_obstacle, _choose_finetune),
        "paper": Recipe((), _no_obstacle, _choose_nothing),
        "vectors": Recipe(
            ("budget", "learning_rate", "weight_decay", "epochs"), _no_vectors, _choose_for_vectors
        ),
    },
    Recipe,
)
