"""The settings that a run completes itself: a first model, then views, learning rate and epochs."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from kmcl.durations import spell_duration
from kmcl.methods import MethodOptions
from kmcl.models.classifier import Classifier
from kmcl.models.description import ModelDescription
from kmcl.models.folder import DESCRIPTION_FILE
from kmcl.training.candidates import SHARE_OF_FEATURES
from kmcl.training.first_model import save_first_model
from kmcl.training.recipes import trains_more_stages
from kmcl.training.run_data import RunData
from kmcl.training.run_folder import RunFolder
from kmcl.training.schedule import Clock, Schedule, ScheduleSearch, Trial, choose_views
from kmcl.training.settings import TrainingSettings

FIRST_MODEL_SECONDS = 50.0
"""Of the run, until the features of the first model are computed; fitting and saving it takes a few more."""


@dataclass
class Completion:
    """Completes the settings of a run that are listed in `recipe.to_choose`, and writes them down.

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
        to_choose = self.settings.recipe.to_choose
        if self.data.from_rows:
            self._save_first_model()
            if "cached_views" in to_choose:
                self._choose_views()
        if set(to_choose) - {"cached_views"}:
            self._choose_schedule()
        self._update("recipe", to_choose=())
        self.run.write_settings(self.settings)
        return self.settings

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
        if views < planned:
            self._say(f"{views} of {planned} views: features take longer than measured at the start")

    def _choose_schedule(self) -> None:
        to_choose = self.settings.recipe.to_choose
        val_split = self.data.dataset.splits.get("val")
        search = ScheduleSearch(
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
        schedule = search.choose(None if self.clock is None else self.clock.left_for_training, to_choose)
        chosen = schedule.chosen
        self._update(
            "optimisation",
            learning_rate=chosen.learning_rate,
            weight_decay=chosen.weight_decay,
            head_epochs=schedule.epochs if chosen.head_alone else self.settings.optimisation.head_epochs,
            epochs=schedule.epochs,
        )
        self._say(_told(schedule))

    @property
    def _trains_more_stages(self) -> bool:
        encoder = self.settings.encoder
        return bool(encoder.cached_views) and trains_more_stages(encoder.name, encoder.frozen_stages)

    def _update(self, group: str, **values: object) -> None:
        changed = getattr(self.settings, group).model_copy(update=values)
        self.settings = self.settings.model_copy(update={group: changed})
        self.data.use_settings(self.settings)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def _told(schedule: Schedule) -> str:
    chosen = schedule.chosen
    text = f"learning rate {chosen.learning_rate:.1e}, weight decay {chosen.weight_decay:.0e}"
    text += ", only the head is trained" if chosen.head_alone else ""
    if schedule.trials:
        ranked = sorted(schedule.trials, key=lambda trial: (trial.tried[1:], trial.tried.learning_rate))
        tried = ", ".join(f"{100 * trial.val_map:.1f} with {_named(trial, ranked[0])}" for trial in ranked)
        text += f" (val mAP of short trainings: {tried})"
    text += f", {schedule.epochs} epoch{'s' * (schedule.epochs > 1)}"
    if schedule.seconds_per_epoch:
        text += f" of about {spell_duration(schedule.seconds_per_epoch)}"
    return text


def _named(trial: Trial, first: Trial) -> str:
    """What distinguishes a trial: its rate, or another weight decay, or that the head is trained alone."""
    if trial.tried.head_alone != first.tried.head_alone:
        return "the head alone"
    if trial.tried.weight_decay != first.tried.weight_decay:
        return f"weight decay {trial.tried.weight_decay:.0e}"
    return f"{trial.tried.learning_rate:.1e}"
