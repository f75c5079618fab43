"""The settings that a run completes itself: a first model, then views, epochs and learning rate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from rich.console import Console

from kmcl.durations import spell_duration
from kmcl.models.classifier import Classifier
from kmcl.models.description import ModelDescription
from kmcl.models.folder import DESCRIPTION_FILE
from kmcl.options.methods import MethodOptions
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.training.candidates import SHARE_OF_FEATURES
from kmcl.training.first_model import save_first_model
from kmcl.training.recipes import trains_more_stages
from kmcl.training.run_data import RunData
from kmcl.training.schedule import Clock, ScheduleSearch, Trial, Tried, best_of, choose_views

FIRST_MODEL_SECONDS = 50.0
"""Of the run, until the features of the first model are computed; fitting and saving it takes a few more."""


@dataclass
class Completion:
    """Completes the settings of a run that are listed in `recipe.to_choose`, and writes down each when it is
    chosen: a run that is resumed chooses what is left, in the time that is left.

    classifier: before training; it is not changed
    clock:      None without a budget
    """

    run: RunFolder
    settings: TrainingSettings
    data: RunData
    classifier: Classifier
    description: ModelDescription
    options: MethodOptions
    clock: Clock | None
    console: Console
    device: str

    def complete(self) -> TrainingSettings:
        with nullcontext() if self.clock is None else self.clock.kept_in(self.run.budget_file):
            if self.data.from_rows:
                self._save_first_model()
                if "cached_views" in self._to_choose:
                    self._choose_views()
            if self._to_choose:
                self._choose_schedule()
        return self.settings

    @property
    def _to_choose(self) -> tuple[str, ...]:
        return self.settings.recipe.to_choose

    def _save_first_model(self) -> None:
        if "val" not in self.data.dataset.splits or (self.run.model / DESCRIPTION_FILE).is_file():
            return
        first = save_first_model(
            self.run.model,
            self.classifier,
            self.description,
            self.data.dataset,
            self.data.cache,
            self.settings,
            lambda: FIRST_MODEL_SECONDS - self.clock.elapsed if self.clock else FIRST_MODEL_SECONDS,
            self.data.unknown,
        )
        after = "" if self.clock is None else f" after {spell_duration(self.clock.elapsed)}"
        self._say(
            f"first model{after}: val mAP {100 * first.val_map:.1f}, a Gaussian process on frozen "
            f"features of {first.num_train} images; usable now, and replaced by better ones"
        )

    def _choose_views(self) -> None:
        """Compute the first view of everything; its speed says how many more there is time for."""
        planned = self.settings.encoder.cached_views
        self._update("encoder", cached_views=1)
        self.data.train_loader()
        for name in self.data.evaluated_splits:
            self.data.eval_loader(name)
        views = planned
        seconds_per_image = self.data.cache.seconds_per_image
        if self.clock is not None and seconds_per_image is not None:
            left = SHARE_OF_FEATURES * self.clock.budget - self.clock.elapsed
            views = choose_views(planned, len(self.data.dataset.splits["train"]), seconds_per_image, left)
        self._update("encoder", cached_views=views)
        self._write_chosen(["cached_views"])
        if views < planned:
            self._say(f"{views} of {planned} views: features take longer than measured at the start")

    def _choose_schedule(self) -> None:
        search, seconds_per_epoch = self._search(), 0.0
        if self.clock is not None:
            left = self.clock.left_for_training
            seconds_per_epoch = search.seconds_per_epoch()
            if "epochs" in self._to_choose:
                epochs, with_trials = search.epochs_within(left, seconds_per_epoch, self._to_choose)
                self._update_optimisation(search.given, epochs)
                self._write_chosen(["epochs"] if with_trials else self._to_choose)
                search.settings = self.settings.optimisation
        trials = search.trials(self._to_choose)
        chosen = best_of(trials) if trials else search.given
        self._update_optimisation(chosen, self.settings.optimisation.epochs)
        self._write_chosen(self._to_choose)
        self._say(_told(chosen, trials, self.settings.optimisation.epochs, seconds_per_epoch))

    def _update_optimisation(self, chosen: Tried, epochs: int) -> None:
        self._update(
            "optimisation",
            learning_rate=chosen.learning_rate,
            weight_decay=chosen.weight_decay,
            head_epochs=epochs if chosen.head_alone else self.settings.optimisation.head_epochs,
            epochs=epochs,
        )

    def _search(self) -> ScheduleSearch:
        val_split = self.data.dataset.splits.get("val")
        return ScheduleSearch(
            self.classifier,
            self.options,
            self.settings.optimisation,
            self.data.dataset.labels,
            self.data.train_loader(),
            None if val_split is None else self.data.eval_loader("val"),
            val_split,
            self.data.from_rows,
            self.device,
            self.console,
            self.data.unknown,
            self._trains_more_stages,
        )

    @property
    def _trains_more_stages(self) -> bool:
        encoder = self.settings.encoder
        return bool(encoder.cached_views) and trains_more_stages(encoder.name, encoder.frozen_stages)

    def _update(self, group: str, **values: object) -> None:
        changed = getattr(self.settings, group).model_copy(update=values)
        self.settings = self.settings.model_copy(update={group: changed})
        self.data.use_settings(self.settings)

    def _write_chosen(self, names: Collection[str]) -> None:
        self._update("recipe", to_choose=tuple(name for name in self._to_choose if name not in names))
        self.run.write_settings(self.settings)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def _told(chosen: Tried, trials: Sequence[Trial], epochs: int, seconds_per_epoch: float) -> str:
    text = f"learning rate {chosen.learning_rate:.1e}, weight decay {chosen.weight_decay:.0e}"
    text += ", only the head is trained" if chosen.head_alone else ""
    if trials:
        ranked = sorted(trials, key=lambda trial: (trial.tried[1:], trial.tried.learning_rate))
        tried = ", ".join(f"{100 * trial.val_map:.1f} with {_named(trial, ranked[0])}" for trial in ranked)
        text += f" (val mAP of short trainings: {tried})"
    text += f", {epochs} epoch{'s' * (epochs > 1)}"
    if seconds_per_epoch:
        text += f" of about {spell_duration(seconds_per_epoch)}"
    return text


def _named(trial: Trial, first: Trial) -> str:
    """What distinguishes a trial: its rate, or another weight decay, or that the head is trained alone."""
    if trial.tried.head_alone != first.tried.head_alone:
        return "the head alone"
    if trial.tried.weight_decay != first.tried.weight_decay:
        return f"weight decay {trial.tried.weight_decay:.0e}"
    return f"{trial.tried.learning_rate:.1e}"
