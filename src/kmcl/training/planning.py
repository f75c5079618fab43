"""From the values that were given to the complete settings of a run, and what is told of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from kmcl.cores import available_cores
from kmcl.data import Dataset
from kmcl.data.vectors import feature_dim
from kmcl.encoders.weights import default_weights
from kmcl.runs.dataset import open_whole, take_part
from kmcl.runs.resolution import Given
from kmcl.runs.settings import TrainingSettings
from kmcl.training.candidates import are_grey
from kmcl.training.launcher import find_launched, is_first_process, with_launched_processes
from kmcl.training.recipes import choose_for_study, choose_settings, with_parts
from kmcl.training.starting import check_machine, with_absolute_paths


@dataclass(frozen=True)
class Plan:
    """A run that can begin.

    line: what the recipe chose, for people
    """

    settings: TrainingSettings
    dataset: Dataset
    line: str


def plan_run(given: Given, dataset: Dataset | None = None) -> Plan:
    """Complete what was given with the recipe.

    dataset: where it is already open
    """
    settings = with_launched_processes(given.check())
    check_machine(settings)
    # As the run will name them: predictions, reports and the feature cache know images by these names.
    dataset = open_whole(with_absolute_paths(settings), dataset)
    part = take_part(settings, dataset)
    if _several_processes(settings):
        # Each process would measure something else.
        grey, line = are_grey(part), "several processes: nothing is measured"
        chosen = with_parts(choose_for_study(given.values, grey=grey), grey=grey)
    else:
        chosen, line = choose_settings(given.values, part, device_of(settings))
    return Plan(given.settings(chosen), dataset, line)


def device_of(settings: TrainingSettings) -> str:
    """The device for computations outside the trainer."""
    accelerated = settings.machine.accelerator in ("auto", "cuda", "gpu")
    return "cuda" if accelerated and torch.cuda.is_available() else "cpu"


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
    console.print(plan.line, highlight=False)


def _several_processes(settings: TrainingSettings) -> bool:
    launched = find_launched()
    if launched is not None:
        return launched.num_processes > 1
    machine = settings.machine
    return "WORLD_SIZE" in os.environ or (machine.devices or 1) * machine.nodes > 1
