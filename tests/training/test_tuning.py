"""Learning rate, epochs and views that a run chooses within its budget."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kmcl.errors import InputError
from kmcl.models.folder import build_classifier, load_model
from kmcl.runs.folder import RunFolder
from kmcl.runs.recipes import CHOSEN_BY_RUN
from kmcl.runs.resolution import read_settings, resolve_settings
from kmcl.runs.settings import TrainingSettings
from kmcl.serving import load
from kmcl.training import pipeline, tuning
from kmcl.training.lightning import Callback
from kmcl.training.plan import plan_of
from kmcl.training.states import Clock, Decisions
from kmcl.training.tuning import (
    EPOCH_LIMITS,
    LEAST_GAIN,
    EpochLimit,
    ShortTrainings,
    TrialResult,
    TrialSettings,
    best_of,
    choose_views,
)
from settings_runs import resume, train
from tiny_runs import TINY_CACHED


@pytest.mark.parametrize(
    ("planned", "seconds", "views"),
    [(4, 0.0, 1), (4, 9.9, 1), (4, 10.0, 2), (4, 35.0, 4), (2, 1e9, 2), (3, -5, 1)],
)
def test_as_many_views_as_there_is_time_for(planned: int, seconds: float, views: int):
    assert choose_views(planned, num_train=100, seconds_per_image=0.1, seconds=seconds) == views


def test_training_leaves_time_for_what_follows():
    clock = Clock(600, time.monotonic() - 100)
    assert 420 < clock.left_for_training < 435


@pytest.mark.parametrize(
    ("trained", "epochs"),
    [
        ("images", [12, 15, 23, 120]),
        ("cached features", [6, 7, 10, 50]),
        ("cached features, more stages", [6, 6, 6, 30]),
    ],
)
def test_the_fewer_stages_are_frozen_the_fewer_epochs_of_cached_features(trained: str, epochs: list[int]):
    assert [EPOCH_LIMITS[trained].for_steps(num_steps) for num_steps in (400, 82, 54, 10)] == epochs


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def limited_to(patch: pytest.MonkeyPatch, epochs: int) -> None:
    patch.setattr(tuning, "EPOCH_LIMITS", dict.fromkeys(EPOCH_LIMITS, EpochLimit(epochs, 1)))


def settings_with(cache: Path, **changes: object) -> TrainingSettings:
    values = TINY_CACHED | {"cache_dir": cache, "recipe": "cached"} | changes
    return resolve_settings("digits", flags=values)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("chosen")
    console = Console(file=io.StringIO(), width=200)
    settings = settings_with(  # time for all epochs on a busy machine too
        folder / "cache", budget="200s", to_choose=CHOSEN_BY_RUN
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEWEST_TRIAL_STEPS", 1)
        limited_to(patch, epochs=4)
        train(settings, folder / "run", console)
    assert isinstance(console.file, io.StringIO)
    return folder, console.file.getvalue()


def test_what_was_chosen_is_saved_and_told(chosen: tuple[Path, str]):
    folder, told = chosen
    settings = read_settings(folder / "run" / "settings.yaml")
    assert settings.recipe.to_choose == ()
    assert settings.optimisation.epochs >= 1
    ratio = settings.optimisation.learning_rate / TINY_CACHED["learning_rate"]
    assert any(abs(ratio - factor) < 1e-9 for factor in (1 / 3, 1, 3))
    assert f"{settings.optimisation.learning_rate:.1e}" in told
    assert f"{settings.optimisation.epochs} epoch" in told
    assert "first model" in told
    assert "val mAP of short trainings" in told
    assert "with weight decay 1e-03" in told
    assert "with the head alone" in told


def test_the_saved_settings_repeat_the_run(chosen: tuple[Path, str]):
    folder, _ = chosen
    train(read_settings(folder / "run" / "settings.yaml"), folder / "again")
    first, second = (load_model(folder / name / "model")[0].state_dict() for name in ("run", "again"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_there_is_a_usable_model_before_the_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It predicts better than chance, with thresholds and calibration, from the folder as it is left."""
    monkeypatch.setattr("kmcl.training.pipeline.fit", interrupt)
    settings = settings_with(tmp_path / "cache", to_choose=("learning_rate",), data_options={"size": 400})
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", console)
    predictor = load(tmp_path / "run")
    assert predictor.rules.thresholds is not None
    assert predictor.rules.temperatures is not None
    assert list(predictor.classifier.posthoc) == ["frozen_gp"]
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    val_map = float(said.split("val mAP ")[1].split(",")[0])
    assert val_map > 25


def test_a_resumed_run_keeps_the_epochs_it_chose(chosen: tuple[Path, str], tmp_path: Path):
    """Stopped among its short trainings, and resumed where an epoch takes a thousand times as long."""
    folder, _ = chosen
    settings = settings_with(tmp_path / "cache", budget="200s", to_choose=CHOSEN_BY_RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEWEST_TRIAL_STEPS", 1)
        limited_to(patch, epochs=4)
        with pytest.MonkeyPatch.context() as stopping:
            stopping.setattr(ShortTrainings, "_search", interrupt)
            with pytest.raises(KeyboardInterrupt):
                train(settings, tmp_path / "run")
        patch.setattr(ShortTrainings, "seconds_per_epoch", lambda self: 1000.0)
        resume(tmp_path / "run")
    assert read_settings(tmp_path / "run" / "settings.yaml").optimisation.epochs == 4
    whole, resumed = (
        load_model(path / "model")[0].state_dict() for path in (folder / "run", tmp_path / "run")
    )
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_run_of_the_version_before_is_resumed(chosen: tuple[Path, str], tmp_path: Path):
    """It rewrote settings.yaml with each choice, and had no plan.yaml."""
    folder, _ = chosen
    settings = settings_with(tmp_path / "cache", budget="200s", to_choose=CHOSEN_BY_RUN)
    run = RunFolder(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEWEST_TRIAL_STEPS", 1)
        limited_to(patch, epochs=4)
        with pytest.MonkeyPatch.context() as stopping:
            stopping.setattr(ShortTrainings, "_search", interrupt)
            with pytest.raises(KeyboardInterrupt):
                train(settings, run.path)
        run.write_settings(run.read_settings())
        run.budget_file.write_text('{"used_seconds": 3.0}')
        run.plan_file.unlink()
        assert run.read_settings().recipe.to_choose == ("learning_rate", "weight_decay", "head_epochs")
        resume(run.path)
    whole, resumed = (load_model(path / "model")[0].state_dict() for path in (folder / "run", run.path))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_resumed_run_has_what_is_left_of_its_budget(tmp_path: Path):
    """Stopped before anything is chosen, after 190 seconds by its clock, of which all others are used up."""
    settings = settings_with(tmp_path / "cache", budget="200s", to_choose=("cached_views", "epochs"))
    file = tmp_path / "run" / "budget.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_choose_views", interrupt)
        plan = replace(plan_of(settings), began=time.monotonic() - 190)
        with pytest.raises(KeyboardInterrupt):
            pipeline.train(plan, tmp_path / "run")
    assert 190 <= RunFolder(tmp_path / "run").used_seconds() < 200
    with pytest.MonkeyPatch.context() as patch:
        limited_to(patch, epochs=4)
        resume(tmp_path / "run")
    assert read_settings(tmp_path / "run" / "settings.yaml").optimisation.epochs == 1
    assert not file.exists()


def test_the_clock_of_a_killed_run_is_right_to_a_second(tmp_path: Path):
    run = RunFolder(tmp_path)
    decisions = Decisions(run, Clock(600, time.monotonic() - 100))
    decisions.write({"epochs": 3})
    with decisions.kept():
        first = run.used_seconds()
        while run.used_seconds() == first:
            time.sleep(0.05)
        assert 100 <= first < run.used_seconds()
    assert run.read_decisions() == {"epochs": 3}
    assert not [thread for thread in threading.enumerate() if thread.name == "clock"]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"used_seconds": "much"}'])
def test_a_damaged_clock_is_a_message(tmp_path: Path, content: str):
    (tmp_path / "budget.json").write_text(content)
    with pytest.raises(InputError, match=r"budget\.json: has no used_seconds; remove it"):
        RunFolder(tmp_path).used_seconds()


def test_a_given_rate_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    limited_to(monkeypatch, epochs=1)
    console = Console(file=io.StringIO(), width=200)
    settings = settings_with(tmp_path / "cache", budget="6s", to_choose=("epochs",))
    train(settings, tmp_path / "run", console)
    found = read_settings(tmp_path / "run" / "settings.yaml")
    assert found.optimisation.learning_rate == TINY_CACHED["learning_rate"]
    assert isinstance(console.file, io.StringIO)
    assert "short trainings" not in console.file.getvalue()


def test_ctrl_c_keeps_the_best_model_complete_and_resume_gives_the_same(
    chosen: tuple[Path, str], tmp_path: Path
):
    """Interrupted after the first epoch; what is left predicts with its post-hoc parts and label rules."""
    folder, _ = chosen
    settings = read_settings(folder / "run" / "settings.yaml")
    stop_after = InterruptAfter(epochs=1)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(settings, tmp_path / "run", callbacks=[stop_after])
    left = load(tmp_path / "run")
    assert set(left.classifier.posthoc) <= {"frozen_gp", "unfamiliarity"}
    assert left.rules.thresholds is not None
    assert not (tmp_path / "run" / "metrics.json").exists()
    resume(tmp_path / "run")
    first, second = (
        load_model(path / "model")[0].state_dict() for path in (folder / "run", tmp_path / "run")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


class InterruptAfter(Callback):
    """Ctrl-C in the epoch that follows."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_batch_start(self, trainer, *arguments: object) -> None:
        if trainer.current_epoch == self.epochs:
            raise KeyboardInterrupt


def test_a_rate_with_which_training_diverges_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kmcl.training.tuning.FEWEST_TRIAL_STEPS", 1)
    monkeypatch.setattr("kmcl.training.tuning.RATE_FACTORS", (1e30, 1.0))
    settings = settings_with(tmp_path / "cache", epochs=4, to_choose=("learning_rate",))
    train(settings, tmp_path / "run")
    found = read_settings(tmp_path / "run" / "settings.yaml")
    assert found.optimisation.learning_rate == TINY_CACHED["learning_rate"]


def test_the_head_alone_where_that_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last stages keep their weights, and the settings say so."""
    monkeypatch.setattr("kmcl.training.tuning.FEWEST_TRIAL_STEPS", 1)
    monkeypatch.setattr(tuning, "best_of", lambda results: results[-1].settings)
    settings = settings_with(tmp_path / "cache", epochs=4, to_choose=("head_epochs",))
    train(settings, tmp_path / "run")
    found = read_settings(tmp_path / "run" / "settings.yaml")
    assert found.optimisation.head_epochs == found.optimisation.epochs == 4
    trained, description = load_model(tmp_path / "run" / "model")
    torch.manual_seed(settings.optimisation.seed)
    initial = build_classifier(replace(description, posthoc=()), settings.encoder.weights or "none")
    parameters = [dict(classifier.named_parameters()) for classifier in (trained, initial)]
    changed = {name for name, value in parameters[1].items() if not torch.equal(value, parameters[0][name])}
    assert changed
    assert not [name for name in changed if name.startswith("encoder.")]


def trial(
    val_map: float, rate: float = 1e-3, decay: float = 1e-4, *, head_alone: bool = False
) -> TrialResult:
    return TrialResult(TrialSettings(rate, decay, head_alone), val_map)


@pytest.mark.parametrize(
    ("gain", "is_taken"), [(0.5 * LEAST_GAIN, False), (1.5 * LEAST_GAIN, True), (-0.1, False)]
)
@pytest.mark.parametrize("change", [{"decay": 1e-3}, {"head_alone": True}])
def test_another_decay_or_depth_only_where_it_gains_more_than_chance(gain, is_taken, change):
    other = trial(0.6 + gain, 3e-3, **change)
    trials = [trial(0.5), trial(0.6, 3e-3), trial(0.59, 9e-3), other]
    assert best_of(trials) == (other if is_taken else trials[1]).settings


@pytest.mark.parametrize(("gain", "is_taken"), [(0.5 * LEAST_GAIN, False), (1.5 * LEAST_GAIN, True)])
def test_another_rate_only_where_it_gains_more_than_chance(gain, is_taken):
    trials = [trial(0.5, 3e-3), trial(0.5 + gain, 1e-3), trial(0.4, 9e-3)]
    assert best_of(trials) == trials[1 if is_taken else 0].settings
