"""What a run chooses itself within its budget: views, learning rate, weight decay, depth and epochs.

Views: as many of those planned as the measured speed of the features allows. Learning rate, weight decay, and
whether the encoder's last stages are trained or the head alone: short trainings from the same initial
weights, judged on val. Epochs: those that fit into the time that is left.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from kmcl.data.batches import Batch
from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader
from kmcl.errors import InputError
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.losses.arguments import NonFiniteError
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.options.methods import MethodOptions
from kmcl.progress import WorkProgress
from kmcl.runs.settings import OptimisationSettings
from kmcl.storage.atomic import write_json
from kmcl.training.inference import predict_split
from kmcl.training.optimisation import make_optimiser
from kmcl.training.unknown_labels import IGNORED, UnknownLabels

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
FINISHING = 0.10, 8.0
"""Of the budget, and seconds, that post-hoc parts and evaluation take after training."""


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


@dataclass(frozen=True)
class Clock:
    """The time of a run: how much of its budget is used.

    began: in `time.monotonic()`; of a resumed run as if it had not been interrupted
    """

    budget: float
    began: float

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left_for_training(self) -> float:
        """Seconds until the passes after training must begin."""
        share, constant = FINISHING
        return self.budget * (1 - share) - constant - self.elapsed

    def write(self, file: Path) -> None:
        """Write how much is used."""
        write_json(file, {"used_seconds": round(self.elapsed, 1)})

    @contextmanager
    def kept_in(self, file: Path) -> Iterator[None]:
        """Write every second how much is used, so that `used_seconds` tells it after a kill -9."""
        stop = threading.Event()

        def keep() -> None:
            with suppress(OSError):  # of a full disk, what the run itself writes tells
                while not stop.wait(1):
                    self.write(file)

        self.write(file)

        thread = threading.Thread(target=keep, name="clock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def used_seconds(file: Path) -> float:
    """Of the budget of a run, according to the file of its clock; 0 where it has none."""
    try:
        return float(json.loads(file.read_text(encoding="utf-8"))["used_seconds"])
    except FileNotFoundError:
        return 0.0
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file}: has no used_seconds; remove it to begin the budget anew") from error


class Tried(NamedTuple):
    """What a short training is made with.

    head_alone: whether the encoder keeps its weights
    """

    learning_rate: float
    weight_decay: float
    head_alone: bool


class Trial(NamedTuple):
    """A short training and its val mAP."""

    tried: Tried
    val_map: float


def best_of(trials: Sequence[Trial]) -> Tried:
    """The recipe's learning rate, unless another gains more than `LEAST_GAIN`; then the same for weight decay
    and depth.

    trials: the first with what the recipe says
    """
    chosen = trials[0]
    rates = [trial for trial in trials if trial.tried[1:] == chosen.tried[1:]]
    for group in (rates, trials):
        best = max(group, key=lambda trial: trial.val_map)
        if best.val_map > chosen.val_map + LEAST_GAIN:
            chosen = best
    return chosen.tried


def choose_views(planned: int, num_train: int, seconds_per_image: float, seconds: float) -> int:
    """How many views fit: the first is there already, each other takes a pass over the training images."""
    more = math.floor(max(0.0, seconds) / max(num_train * seconds_per_image, 1e-9))
    return max(1, min(planned, 1 + more))


@dataclass
class ScheduleSearch:
    """Tries settings on copies of a classifier before it is trained.

    val:       batches of `val_split`; None without such
    from_rows: whether batches hold cached features instead of images
    more_stages: whether more stages are trained than a recipe trains of photographs
    """

    classifier: Classifier
    options: MethodOptions
    settings: OptimisationSettings
    labels: tuple[str, ...]
    train: BatchLoader
    val: BatchLoader | None
    val_split: Split | None
    from_rows: bool
    device: str
    console: Console
    unknown: UnknownLabels = IGNORED
    more_stages: bool = False

    def epochs_within(
        self, seconds: float, seconds_per_epoch: float, to_choose: Collection[str]
    ) -> tuple[int, bool]:
        """The epochs there is time for, and whether there is for short trainings with what is `to_choose`."""
        # Where few epochs fit, training them is worth more.
        is_enough = seconds >= FEWEST_EPOCHS_WITH_SEARCH * seconds_per_epoch
        with_trials = is_enough and self._num_trials(to_choose) > 0
        share = 1 - SHARE_OF_SEARCH if with_trials else 1.0
        most = self._limit.for_steps(len(self.train))
        return max(LEAST_EPOCHS, min(most, math.floor(share * seconds / seconds_per_epoch))), with_trials

    def trials(self, to_choose: Collection[str]) -> tuple[Trial, ...]:
        """Short trainings with those of learning_rate, weight_decay and head_epochs that are `to_choose`.

        Of a length that goes with the epochs of the settings; none where they would be too short.
        """
        num_trials = self._num_trials(to_choose)
        if num_trials == 0:
            return ()
        epochs, steps = self.settings.epochs, len(self.train)
        num_steps = math.floor(SHARE_OF_SEARCH * epochs / (1 - SHARE_OF_SEARCH) / num_trials * steps)
        if num_steps < FEWEST_TRIAL_STEPS:
            return ()
        total = num_steps * num_trials
        with WorkProgress(self.console, "trying settings in short trainings", total, "steps") as progress:
            progress.start(total)
            return tuple(self._search(to_choose, num_steps, progress.advance))

    @property
    def given(self) -> Tried:
        """What the settings say."""
        settings = self.settings
        return Tried(settings.learning_rate, settings.weight_decay, settings.head_epochs >= settings.epochs)

    @property
    def _limit(self) -> EpochLimit:
        if not self.from_rows:
            return EPOCH_LIMITS["images"]
        return EPOCH_LIMITS["cached features" + ", more stages" * self.more_stages]

    def _num_trials(self, to_choose: Collection[str]) -> int:
        if self.val is None:
            return 0
        others = sum(name in to_choose for name in ("weight_decay", "head_epochs"))
        if "learning_rate" in to_choose:
            return len(RATE_FACTORS) + others
        return 1 + others if others else 0

    def _search(
        self, to_choose: Collection[str], num_steps: int, on_step: Callable[[], object]
    ) -> list[Trial]:
        """The rates first; with the best of them, another weight decay, and the head alone."""
        given = self.given
        factors = RATE_FACTORS if "learning_rate" in to_choose else (1.0,)
        rates = [given._replace(learning_rate=factor * given.learning_rate) for factor in factors]
        trials = [self._try(tried, num_steps, on_step) for tried in rates]
        best = best_of(trials)
        if "weight_decay" in to_choose:
            decayed = best._replace(weight_decay=DECAY_FACTOR * best.weight_decay)
            trials.append(self._try(decayed, num_steps, on_step))
        if "head_epochs" in to_choose:
            trials.append(self._try(best._replace(head_alone=True), num_steps, on_step))
        return trials

    def _try(self, tried: Tried, num_steps: int, on_step: Callable[[], object]) -> Trial:
        try:
            return Trial(tried, self._val_map(self._train(tried, num_steps, on_step)))
        except (NonFiniteError, InputError):  # training diverged: nothing else is worse
            return Trial(tried, -1.0)

    def seconds_per_epoch(self) -> float:
        """Of a training epoch with its validation, from a few steps."""
        self._train(self.given, 1)  # the first step is slower
        began = time.perf_counter()
        self._train(self.given, TIMED_STEPS)
        step = (time.perf_counter() - began) / TIMED_STEPS
        num_val = 0 if self.val is None else len(self.val)
        # Validation runs the model and its moving average, forward only.
        return step * (len(self.train) + 0.6 * num_val)

    def _train(
        self, tried: Tried, num_steps: int, on_step: Callable[[], object] = lambda: None
    ) -> Classifier:
        """A copy, trained for some steps; the random numbers of the run are not touched."""
        values = {"learning_rate": tried.learning_rate, "weight_decay": tried.weight_decay}
        settings = self.settings.model_copy(update=values)
        classifier = copy.deepcopy(self.classifier).to(self.device).train()
        if tried.head_alone:
            classifier.encoder.requires_grad_(False)
        compute_loss = find_method(self.options.name).compute_loss
        score = Classifier.score_rows if self.from_rows else Classifier.__call__
        optimiser, schedule = make_optimiser(classifier, settings, num_steps)
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            for batch in self._batches(num_steps):
                output = score(classifier, batch.images.to(self.device))
                terms = self.unknown.loss(compute_loss, output, batch.targets.to(self.device), self.options)
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
        if self.val is None or self.val_split is None:
            raise RuntimeError("a learning rate is judged on val")
        predictions = predict_split(
            classifier, self.labels, self.val_split, self.val, from_rows=self.from_rows
        )
        return mean_average_precision(predictions)
