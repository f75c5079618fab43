"""What a run chooses itself within its budget: views, learning rate, weight decay, depth and epochs.

Views: as many of those planned as the measured speed of the features allows. Learning rate, weight decay, and
whether the encoder's last stages are trained or the head alone: short trainings from the same initial
weights, judged on val. Epochs: those that fit into the time that is left.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from kmcl.data.batches import Batch
from kmcl.data.loading import BatchLoader
from kmcl.durations import spell_duration
from kmcl.encoders.timm_encoder import TimmEncoders
from kmcl.errors import InputError
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.losses.arguments import NonFiniteError
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.models.prediction import predict_split
from kmcl.progress import WorkProgress
from kmcl.runs.launcher import is_first_process
from kmcl.runs.planning import SHARE_OF_FEATURES
from kmcl.runs.recipes import default_frozen_stages
from kmcl.runs.resolution import with_changes
from kmcl.runs.settings import TrainingSettings
from kmcl.training.states import Prepared
from kmcl.training.task import make_optimiser

RATE_FACTORS = (1.0, 1 / 3, 3.0)
"""Of the recipe's learning rate: those that are tried, in this order."""
DECAY_FACTOR = 10.0
"""On the recipe's weight decay: the other one that is tried."""
LEAST_GAIN = 0.02
"""Of val mAP, for anything else than the recipe's own: on 530 X-rays, trials of a few steps differ by one
point by chance (docs/recipes.md).
"""
SHARE_OF_SEARCH = 0.2
"""Of the training time, for short trainings."""
FEWEST_TRIAL_STEPS = 12
"""Shorter trials say nothing; the recipe's rate is taken."""
TIMED_STEPS = 4
FEWEST_EPOCHS_WITH_SEARCH = 3
LEAST_EPOCHS = 1


class EpochLimit(NamedTuple):
    """The epochs after which nothing is left to gain; a small set may take more, up to so many steps."""

    epochs: int
    steps: int

    def for_steps(self, num_steps: int) -> int:
        """With so many steps an epoch."""
        return max(self.epochs, math.ceil(self.steps / num_steps))


EPOCH_LIMITS = {
    "images": EpochLimit(12, 1200),
    "cached features": EpochLimit(6, 500),
    "cached features, more stages": EpochLimit(6, 300),
}
"""By what is trained: all stages; the last one, whose longer trainings overfit (docs/recipes.md); more than a
recipe trains of photographs: twelve epochs of two stages of X-rays lost a point of mean AUC against five
(docs/research/default.md).
"""


class TrialSettings(NamedTuple):
    """What a short training is made with.

    head_alone: whether the encoder keeps its weights
    """

    learning_rate: float
    weight_decay: float
    head_alone: bool

    @classmethod
    def of(cls, settings: TrainingSettings) -> TrialSettings:
        chosen = settings.optimisation
        return cls(chosen.learning_rate, chosen.weight_decay, chosen.head_epochs >= chosen.epochs)


class TrialResult(NamedTuple):
    """A short training and its val mAP."""

    settings: TrialSettings
    val_map: float


def tune(prepared: Prepared) -> Prepared:
    """Choose what the plan left to the run, then write settings.yaml.

    Each choice is written down when it is made: a run that is resumed chooses what is left, in the time that
    is left.
    """
    folder, is_complete = prepared.folder, not prepared.undecided
    if prepared.data.from_rows and "cached_views" in prepared.undecided:
        prepared = _choose_views(prepared)
    if prepared.undecided:
        prepared = _choose_schedule(prepared)
    if is_first_process() and not (is_complete and folder.settings_file.is_file()):
        folder.write_settings(prepared.settings)
    return prepared


def _choose_views(prepared: Prepared) -> Prepared:
    """Compute the first view of everything; its speed says how many more there is time for."""
    data, clock = prepared.data, prepared.clock
    planned = prepared.settings.encoder.cached_views
    data.use_views(1)
    data.train_loader()
    for name in data.evaluated_splits:
        data.eval_loader(name)
    views, seconds_per_image = planned, data.cache.seconds_per_image
    if clock is not None and seconds_per_image is not None:
        left = SHARE_OF_FEATURES * clock.budget - clock.elapsed
        views = choose_views(planned, len(data.dataset.splits["train"]), seconds_per_image, left)
    data.use_views(views)
    if views < planned:
        prepared.say(f"{views} of {planned} views: features take longer than measured at the start")
    return _decided(prepared, cached_views=views)


def choose_views(planned: int, num_train: int, seconds_per_image: float, seconds: float) -> int:
    """How many views fit: the first is there already, each other takes a pass over the training images."""
    more = math.floor(max(0.0, seconds) / max(num_train * seconds_per_image, 1e-9))
    return max(1, min(planned, 1 + more))


def _choose_schedule(prepared: Prepared) -> Prepared:
    data = prepared.data
    val = data.eval_loader("val") if "val" in prepared.dataset.splits else None
    trainings, seconds_per_epoch = ShortTrainings(prepared, data.train_loader(), val), 0.0
    if prepared.clock is not None:
        left = prepared.clock.left_for_training
        seconds_per_epoch = trainings.seconds_per_epoch()
        if "epochs" in prepared.undecided:
            epochs, with_trials = trainings.epochs_within(left, seconds_per_epoch)
            given = TrialSettings.of(prepared.settings)
            prepared = _with_schedule(prepared, given, epochs, leaves_rest=with_trials)
            trainings = replace(trainings, prepared=prepared)
    results, epochs = trainings.results(), prepared.settings.optimisation.epochs
    chosen = best_of(results) if results else TrialSettings.of(prepared.settings)
    prepared = _with_schedule(prepared, chosen, epochs, leaves_rest=False)
    prepared.say(_reason(chosen, results, epochs, seconds_per_epoch))
    return prepared


def _with_schedule(prepared: Prepared, chosen: TrialSettings, epochs: int, *, leaves_rest: bool) -> Prepared:
    """
    leaves_rest: whether nothing but the epochs is decided yet
    """
    head_epochs = epochs if chosen.head_alone else prepared.settings.optimisation.head_epochs
    rest = tuple(name for name in prepared.undecided if name != "epochs") if leaves_rest else ()
    return _decided(
        prepared,
        learning_rate=chosen.learning_rate,
        weight_decay=chosen.weight_decay,
        head_epochs=head_epochs,
        epochs=epochs,
        to_choose=rest,
    )


def _decided(prepared: Prepared, **values: object) -> Prepared:
    """The state with these settings, which are written down."""
    rest = tuple(name for name in prepared.undecided if name not in values)
    decisions = {"to_choose": rest} | values
    prepared.decisions.write(decisions)
    return replace(prepared, settings=with_changes(prepared.settings, decisions))


def best_of(results: Sequence[TrialResult]) -> TrialSettings:
    """The recipe's learning rate, unless another gains more than `LEAST_GAIN`; then the same for weight decay
    and depth.

    results: the first with what the recipe says
    """
    chosen = results[0]
    rates = [result for result in results if result.settings[1:] == chosen.settings[1:]]
    for group in (rates, results):
        best = max(group, key=lambda result: result.val_map)
        if best.val_map > chosen.val_map + LEAST_GAIN:
            chosen = best
    return chosen.settings


@dataclass(frozen=True)
class ShortTrainings:
    """Tries settings on copies of the classifier before it is trained.

    val: None without such a split
    """

    prepared: Prepared
    train: BatchLoader
    val: BatchLoader | None

    def epochs_within(self, seconds: float, seconds_per_epoch: float) -> tuple[int, bool]:
        """The epochs there is time for, and whether there is for short trainings."""
        # Where few epochs fit, training them is worth more.
        is_enough = seconds >= FEWEST_EPOCHS_WITH_SEARCH * seconds_per_epoch
        with_trials = is_enough and self._num_trials > 0
        share = 1 - SHARE_OF_SEARCH if with_trials else 1.0
        most = self._limit.for_steps(len(self.train))
        return max(LEAST_EPOCHS, min(most, math.floor(share * seconds / seconds_per_epoch))), with_trials

    def results(self) -> tuple[TrialResult, ...]:
        """Of those of learning_rate, weight_decay and head_epochs that are undecided.

        Of a length that goes with the epochs of the settings; none where they would be too short.
        """
        num_trials = self._num_trials
        if num_trials == 0:
            return ()
        epochs, steps = self.prepared.settings.optimisation.epochs, len(self.train)
        num_steps = math.floor(SHARE_OF_SEARCH * epochs / (1 - SHARE_OF_SEARCH) / num_trials * steps)
        if num_steps < FEWEST_TRIAL_STEPS:
            return ()
        total, what = num_steps * num_trials, "trying settings in short trainings"
        with WorkProgress(self.prepared.console, what, total, "steps") as progress:
            progress.start(total)
            return tuple(self._search(num_steps, progress.advance))

    def seconds_per_epoch(self) -> float:
        """Of a training epoch with its validation, from a few steps."""
        given = TrialSettings.of(self.prepared.settings)
        self._train(given, 1)  # the first step is slower
        began = time.perf_counter()
        self._train(given, TIMED_STEPS)
        step = (time.perf_counter() - began) / TIMED_STEPS
        num_val = 0 if self.val is None else len(self.val)
        # Validation runs the model and its moving average, forward only.
        return step * (len(self.train) + 0.6 * num_val)

    @property
    def _limit(self) -> EpochLimit:
        if not self.prepared.data.from_rows:
            return EPOCH_LIMITS["images"]
        encoder = self.prepared.settings.encoder
        of_photographs = default_frozen_stages(encoder.name, TimmEncoders())
        trains_more = bool(encoder.cached_views) and encoder.frozen_stages < of_photographs
        return EPOCH_LIMITS["cached features" + ", more stages" * trains_more]

    @property
    def _num_trials(self) -> int:
        undecided = self.prepared.undecided
        if self.val is None:
            return 0
        others = sum(name in undecided for name in ("weight_decay", "head_epochs"))
        if "learning_rate" in undecided:
            return len(RATE_FACTORS) + others
        return 1 + others if others else 0

    def _search(self, num_steps: int, on_step: Callable[[], object]) -> list[TrialResult]:
        """The rates first; with the best of them, another weight decay, and the head alone."""
        undecided, given = self.prepared.undecided, TrialSettings.of(self.prepared.settings)
        factors = RATE_FACTORS if "learning_rate" in undecided else (1.0,)
        rates = [given._replace(learning_rate=factor * given.learning_rate) for factor in factors]
        results = [self._try(settings, num_steps, on_step) for settings in rates]
        best = best_of(results)
        if "weight_decay" in undecided:
            decayed = best._replace(weight_decay=DECAY_FACTOR * best.weight_decay)
            results.append(self._try(decayed, num_steps, on_step))
        if "head_epochs" in undecided:
            results.append(self._try(best._replace(head_alone=True), num_steps, on_step))
        return results

    def _try(self, settings: TrialSettings, num_steps: int, on_step: Callable[[], object]) -> TrialResult:
        try:
            return TrialResult(settings, self._val_map(self._train(settings, num_steps, on_step)))
        except (NonFiniteError, InputError):  # training diverged: nothing else is worse
            return TrialResult(settings, -1.0)

    def _train(
        self, chosen: TrialSettings, num_steps: int, on_step: Callable[[], object] = lambda: None
    ) -> Classifier:
        """A copy, trained for some steps; the random numbers of the run are not touched."""
        options, data, device = self.prepared.options, self.prepared.data, self.prepared.device
        values = {"learning_rate": chosen.learning_rate, "weight_decay": chosen.weight_decay}
        settings = self.prepared.settings.optimisation.model_copy(update=values)
        classifier = copy.deepcopy(self.prepared.classifier).to(device).train()
        if chosen.head_alone:
            classifier.encoder.requires_grad_(False)
        compute_loss = find_method(options.name).compute_loss
        optimiser, schedule = make_optimiser(classifier, settings, num_steps)
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            for batch in self._batches(num_steps):
                output = data.score(classifier, batch.images.to(device))
                terms = self.prepared.unknown.loss(compute_loss, output, batch.targets.to(device), options)
                optimiser.zero_grad()
                terms.total.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                on_step()
        return classifier

    def _batches(self, num_steps: int) -> Iterator[Batch]:
        for step, batch in enumerate(self._epochs()):
            yield batch
            if step + 1 == num_steps:
                break
        self.train.set_epoch(0)

    def _epochs(self) -> Iterator[Batch]:
        for epoch in itertools.count():
            self.train.set_epoch(epoch)
            yield from self.train

    def _val_map(self, classifier: Classifier) -> float:
        if self.val is None:
            raise RuntimeError("a learning rate is judged on val")
        dataset, from_rows = self.prepared.dataset, self.prepared.data.from_rows
        predictions = predict_split(
            classifier, dataset.labels, dataset.splits["val"], self.val, from_rows=from_rows
        )
        return mean_average_precision(predictions)


def _reason(
    chosen: TrialSettings, results: Sequence[TrialResult], epochs: int, seconds_per_epoch: float
) -> str:
    text = f"learning rate {chosen.learning_rate:.1e}, weight decay {chosen.weight_decay:.0e}"
    text += ", only the head is trained" if chosen.head_alone else ""
    if results:
        ranked = sorted(results, key=lambda result: (result.settings[1:], result.settings.learning_rate))
        tried = ", ".join(f"{100 * one.val_map:.1f} with {_named(one, ranked[0])}" for one in ranked)
        text += f" (val mAP of short trainings: {tried})"
    text += f", {epochs} epoch{'s' * (epochs > 1)}"
    if seconds_per_epoch:
        text += f" of about {spell_duration(seconds_per_epoch)}"
    return text


def _named(result: TrialResult, first: TrialResult) -> str:
    """What distinguishes a trial: its rate, or another weight decay, or that the head is trained alone."""
    if result.settings.head_alone != first.settings.head_alone:
        return "the head alone"
    if result.settings.weight_decay != first.settings.weight_decay:
        return f"weight decay {result.settings.weight_decay:.0e}"
    return f"{result.settings.learning_rate:.1e}"
