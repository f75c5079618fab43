"""Runs of complete settings, which no recipe chooses: trained and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from kmcl.data import Dataset
from kmcl.runs.settings import TrainingSettings
from kmcl.training import pipeline
from kmcl.training.lightning import Callback
from kmcl.training.plan import plan_of
from kmcl.training.states import RunIO


def train(
    settings: TrainingSettings,
    folder: Path,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    dataset: Dataset | None = None,
    encoder: nn.Module | None = None,
    **io: Any,
) -> dict[str, Any]:
    """Train in a new folder; returns the metrics."""
    talking = RunIO(console or Console(quiet=True), callbacks, encoder, **io)
    return pipeline.train(plan_of(settings, dataset), folder, talking)


def resume(
    folder: Path,
    console: Console | None = None,
    *,
    dataset: Dataset | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    **io: Any,
) -> dict[str, Any]:
    """Continue an interrupted run; returns the metrics."""
    talking = RunIO(console or Console(quiet=True), **io)
    return pipeline.resume(folder, talking, dataset=dataset, devices=devices, nodes=nodes)
