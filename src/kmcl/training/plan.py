"""The plan of a training: complete settings, but for what the run chooses itself, and their data."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from kmcl.cores import available_cores
from kmcl.data import Dataset
from kmcl.data.vectors import feature_dim
from kmcl.encoders.timm_encoder import TimmEncoders
from kmcl.encoders.weights import default_weights
from kmcl.features.runtime import FrozenRuntimes
from kmcl.runs.dataset import absolute_paths, open_whole, take_part
from kmcl.runs.launcher import is_first_process, with_launched_processes
from kmcl.runs.planning import Facts, Machine
from kmcl.runs.recipes import choose_settings
from kmcl.runs.resolution import Given, with_changes
from kmcl.runs.settings import TrainingSettings
from kmcl.training.machine import ThisMachine, check_accelerator, device_of
from kmcl.training.sharding import check_sharding
from kmcl.training.tracking import check_tracking


@dataclass(frozen=True)
class Plan:
    """A training that can begin.

    settings: complete, but for `settings.recipe.to_choose`
    facts:    about the data, with the part of train that is trained on
    reason:   what the recipe chose and why
    runtimes: what runs frozen stages, as it was timed
    began:    in `time.monotonic()`, when its budget began
    """

    settings: TrainingSettings
    facts: Facts
    reason: str = ""
    runtimes: FrozenRuntimes = field(default_factory=FrozenRuntimes)
    began: float = field(default_factory=time.monotonic)

    @property
    def dataset(self) -> Dataset:
        return self.facts.dataset


def make_plan(given: Given, machine: Machine | None = None, dataset: Dataset | None = None) -> Plan:
    """Check what was given, then open the data, then let the recipe choose the rest.

    machine: is measured, and must have what was given; without one the plan is the same everywhere, and
             leaves nothing to the run
    dataset: where it is already open
    """
    began = time.monotonic()
    start = (_plan_anywhere if machine is None else plan_of)(given.checked, dataset)
    choice = choose_settings(given.values, start.facts, machine)
    settings = given.complete(start.settings, choice.values)
    runtimes = machine.runtimes if isinstance(machine, ThisMachine) else FrozenRuntimes()
    return Plan(settings, start.facts, choice.reason, runtimes, began)


def plan_of(settings: TrainingSettings, dataset: Dataset | None = None) -> Plan:
    """The plan of complete settings, such as those of a run.

    dataset: instead of opening the one that they name
    """
    settings = with_launched_processes(settings)
    check_machine(settings)
    return _plan_anywhere(settings, dataset)


def _plan_anywhere(settings: TrainingSettings, dataset: Dataset | None) -> Plan:
    # Predictions, reports and stored features know images by these names.
    settings = with_changes(settings, absolute_paths(settings))
    return Plan(settings, Facts(take_part(settings, open_whole(settings, dataset)), TimmEncoders()))


def check_machine(settings: TrainingSettings) -> None:
    """Refuse an accelerator, tracker or strategy that is not there, before anything is computed."""
    check_accelerator(settings.machine.accelerator, settings.machine.devices)
    check_tracking(settings)
    check_sharding(settings)


def print_header(console: Console, plan: Plan, folder: Path) -> None:
    """What is about to be trained, on what, and where the results will be."""
    if not is_first_process():
        return
    settings, device = plan.settings, device_of(plan.settings)
    encoder = settings.encoder
    weights = encoder.weights or (default_weights(encoder.name) if ":" not in encoder.name else "none")
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {available_cores()} cores"
    size = f" at {encoder.image_size} px" if encoder.image_size else ""
    model = f"{encoder.name}{size}, weights: {weights}"
    noun, width = "images", feature_dim(plan.dataset)
    if width is not None:
        noun, model = "rows", f"feature vectors of {width:,} numbers"
    splits = ", ".join(f"{len(split)} {name}" for name, split in plan.dataset.splits.items())
    rows = {
        "data": f"{plan.dataset.name}: {splits} {noun}, {len(plan.dataset.labels)} labels",
        "method": f"{settings.method.name} on {model}",
        "device": where,
        "folder": str(folder),
    }
    for name, text in [*rows.items(), *(("note", note) for note in plan.dataset.notes)]:
        console.print(f"{name:<8}{text}", highlight=False, soft_wrap=True, markup=False)
    console.print(plan.reason, highlight=False)
