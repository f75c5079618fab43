"""What a run chooses itself within its budget: views, learning rate and epochs.

Views: as many of those planned as the measured speed of the features allows. Learning rate: short trainings
from the same initial weights, judged on val. Epochs: those that fit into the time that is left.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rich.console import Console

from kmcl.data.batches import Batch
from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader
from kmcl.errors import InputError
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.losses.arguments import NonFiniteError
from kmcl.methods import MethodOptions, find_method
from kmcl.models.classifier import Classifier
from kmcl.training.inference import predict_split
from kmcl.training.optimisation import make_optimiser
from kmcl.training.settings import OptimisationSettings
from kmcl.training.unknown_labels import IGNORED, UnknownLabels
from kmcl.training.work_progress import WorkProgress

RATE_FACTORS = (1.0, 1 / 3, 3.0)
"""Of the recipe's learning rate: those that are tried, in this order."""
SHARE_OF_SEARCH = 0.2
"""Of the training time, for trying learning rates."""
FEWEST_TRIAL_STEPS = 12
"""Shorter trials say nothing; the recipe's rate is taken."""
TIMED_STEPS = 4
FEWEST_EPOCHS_WITH_SEARCH = 3
LEAST_EPOCHS = 1
MOST_EPOCHS = 12
MOST_STEPS = 1200
"""Small sets may take more than `MOST_EPOCHS`, up to this many steps."""
FINISHING = 0.10, 8.0
"""Of the budget, and seconds, that post-hoc parts and evaluation take after training."""


@dataclass(frozen=True)
class Clock:
    """The time of a run: how much of its budget is used."""

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


class Trial(NamedTuple):
    """A learning rate and the val mAP of a short training with it."""

    learning_rate: float
    val_map: float


class Schedule(NamedTuple):
    """What was chosen, and what it was chosen from."""

    learning_rate: float
    epochs: int
    trials: tuple[Trial, ...]
    seconds_per_epoch: float


def choose_views(planned: int, num_train: int, seconds_per_image: float, seconds: float) -> int:
    """How many views fit: the first is there already, each other takes a pass over the training images."""
    more = math.floor(max(0.0, seconds) / max(num_train * seconds_per_image, 1e-9))
    return max(1, min(planned, 1 + more))


@dataclass
class ScheduleSearch:
    """Tries learning rates on copies of a classifier before it is trained.

    val:       batches of `val_split`; None without such
    from_rows: whether batches hold cached features instead of images
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

    def choose(self, seconds: float | None, *, search_rate: bool, choose_epochs: bool) -> Schedule:
        """Within `seconds`; without a limit, the epochs of the settings and trials of a fixed length."""
        rate, epochs = self.settings.learning_rate, self.settings.epochs
        steps = len(self.train)
        search_rate = search_rate and self.val is not None
        per_epoch = 0.0
        if seconds is not None:
            per_epoch = self._seconds_per_epoch()
            if choose_epochs and seconds < FEWEST_EPOCHS_WITH_SEARCH * per_epoch:
                search_rate = False  # the time is better spent on training
            share = 1 - SHARE_OF_SEARCH if search_rate else 1.0
            if choose_epochs:
                most = max(MOST_EPOCHS, math.ceil(MOST_STEPS / steps))
                epochs = max(LEAST_EPOCHS, min(most, math.floor(share * seconds / per_epoch)))
        trials: list[Trial] = []
        if search_rate:
            part = SHARE_OF_SEARCH * epochs / (1 - SHARE_OF_SEARCH) / len(RATE_FACTORS)
            num_steps = math.floor(part * steps)
            if num_steps >= FEWEST_TRIAL_STEPS:
                trials = self._try_rates([rate * factor for factor in RATE_FACTORS], num_steps)
                rate = max(trials, key=lambda trial: trial.val_map).learning_rate
        return Schedule(rate, epochs, tuple(trials), per_epoch)

    def _try_rates(self, rates: list[float], num_steps: int) -> list[Trial]:
        total = num_steps * len(rates)
        with WorkProgress(self.console, "trying learning rates", total, "steps") as progress:
            progress.start(total)
            return [self._try(rate, num_steps, progress.advance) for rate in rates]

    def _try(self, rate: float, num_steps: int, on_step: Callable[[], object]) -> Trial:
        try:
            return Trial(rate, self._val_map(self._train(rate, num_steps, on_step)))
        except (NonFiniteError, InputError):  # training diverged: no other rate is worse
            return Trial(rate, -1.0)

    def _seconds_per_epoch(self) -> float:
        """Of a training epoch with its validation, from a few steps."""
        self._train(self.settings.learning_rate, 1)  # the first step is slower
        began = time.perf_counter()
        self._train(self.settings.learning_rate, TIMED_STEPS)
        step = (time.perf_counter() - began) / TIMED_STEPS
        num_val = 0 if self.val is None else len(self.val)
        # Validation runs the model and its moving average, forward only.
        return step * (len(self.train) + 0.6 * num_val)

    def _train(self, rate: float, num_steps: int, on_step: Callable[[], object] = lambda: None) -> Classifier:
        """A copy, trained for some steps; the random numbers of the run are not touched."""
        settings = self.settings.model_copy(update={"learning_rate": rate})
        classifier = copy.deepcopy(self.classifier).to(self.device).train()
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
