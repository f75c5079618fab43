"""This machine: what it trains on, and how fast it computes features and trains, measured on some batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from kmcl.cores import available_cores
from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages
from kmcl.encoders import open_encoder
from kmcl.encoders.weights import default_weights
from kmcl.errors import InputError, suggest
from kmcl.features.runtime import FrozenRuntime, FrozenRuntimes, feature_folder
from kmcl.models.classifier import Classifier
from kmcl.runs.launcher import find_launched
from kmcl.runs.planning import RuntimeName
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import AcceleratorRegistry

SECONDS = 1.5
"""Time for each measurement."""
LOADING = 1.15
"""Time of features in a run over that of stages and decoding alone, measured: 1.07 to 1.2."""
BATCH, TRAINING_BATCH = 16, 32
"""Images of a measurement."""


@dataclass(frozen=True)
class Throughput:
    """Seconds that one image takes on this machine.

    seconds_of_stages: of the frozen stages, by what runs them
    seconds_of_decoding: of reading and resizing it, on one core
    """

    seconds_of_stages: dict[RuntimeName, float]
    seconds_of_decoding: float

    @property
    def runtime(self) -> RuntimeName:
        """The faster one."""
        return min(self.seconds_of_stages, key=lambda name: self.seconds_of_stages[name])

    def seconds_per_image(self, cost: float = 1.0) -> float:
        """For an encoder and image size that need `cost` times the multiplications of the measured ones."""
        # Worker processes decode while the stages run, on the same cores.
        decoding = self.seconds_of_decoding / available_cores()
        return LOADING * (cost * self.seconds_of_stages[self.runtime] + decoding)


@dataclass(frozen=True)
class ThisMachine:
    """Measures this machine, for a plan.

    cache:    folder for exported stages, so that they are exported once; that of the user if not given
    runtimes: what was timed last is open, for the run
    """

    device: str
    cache: Path | None = None
    runtimes: FrozenRuntimes = field(default_factory=FrozenRuntimes)

    @classmethod
    def of(cls, settings: TrainingSettings) -> ThisMachine | None:
        """None where several processes train together: each would measure something else."""
        if _several_processes(settings):
            return None
        return cls(device_of(settings), settings.data.cache_dir)

    def time_features(
        self,
        encoder: str,
        weights: str | None,
        image_size: int | None,
        frozen_stages: int,
        split: Split,
        in_channels: int,
    ) -> Throughput:
        """Time the frozen stages of an encoder with each runtime, and the decoding of some images."""
        opened = open_encoder(
            encoder,
            weights or default_weights(encoder),
            in_channels=in_channels,
            image_size=image_size,
            frozen_stages=frozen_stages,
        )
        classifier = Classifier(opened, nn.Identity()).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        size = opened.input_size
        images = torch.randint(0, 256, (BATCH, 3, size, size), generator=torch.Generator().manual_seed(0))
        pixels = images.to(torch.uint8)
        seconds: dict[RuntimeName, float] = {}
        names: tuple[RuntimeName, ...] = ("torch", "onnxruntime")
        opened_before: FrozenRuntime | None = None
        for name in names:
            runtime = self.runtimes.open(name, classifier, self.device, self.cache or feature_folder())
            if opened_before is not None and type(runtime) is type(opened_before):
                continue  # there is no onnxruntime for it
            opened_before = runtime
            some = pixels if name == "onnxruntime" else pixels[:4]  # the slower one need not take long
            seconds[name] = _time(lambda run=runtime, some=some: run(some)) / len(some)  # type: ignore[misc]
        return Throughput(seconds, _seconds_of_decoding(split, size))

    def time_training(
        self, encoder: str, weights: str | None, image_size: int | None, split: Split, in_channels: int
    ) -> float:
        """Seconds that one image takes when all stages are trained, loading included."""
        opened = open_encoder(
            encoder, weights or default_weights(encoder), in_channels=in_channels, image_size=image_size
        )
        network = opened.to(self.device).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        size = opened.input_size
        images = torch.rand(TRAINING_BATCH, in_channels, size, size, device=self.device)

        def step() -> float:
            network.zero_grad()
            network(images).pooled.sum().backward()
            return float(next(network.parameters()).grad.sum())  # waits for the device

        # Worker processes load images while an accelerator computes.
        loading = _seconds_of_decoding(split, size) / available_cores()
        return max(_time(step) / TRAINING_BATCH, loading)


def device_of(settings: TrainingSettings) -> str:
    """The device for computations outside the trainer."""
    accelerated = settings.machine.accelerator in ("auto", "cuda", "gpu")
    return "cuda" if accelerated and torch.cuda.is_available() else "cpu"


def _several_processes(settings: TrainingSettings) -> bool:
    launched = find_launched()
    if launched is not None:
        return launched.num_processes > 1
    machine = settings.machine
    return "WORLD_SIZE" in os.environ or (machine.devices or 1) * machine.nodes > 1


def _seconds_of_decoding(split: Split, size: int) -> float:
    source = DecodedImages(split.images, size)
    rows = np.arange(min(len(split), BATCH))
    return _time(lambda: source.rows(rows)) / len(rows)


def _time(work: Callable[[], Any]) -> float:
    """Seconds of one call: the fastest of those made in `SECONDS`; others may slow the machine for a moment.

    With `LOADING`, this predicts the features of a run to a twentieth; the median was a fifth too slow.
    """
    work()
    times: list[float] = []
    began = time.perf_counter()
    while not times or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


CHOICES = {"auto": (), "gpu": ("cuda", "mps")}
"""Names that stand for one of several accelerators; every machine has what `auto` falls back on."""


def check_accelerator(name: str, num_devices: int | None) -> None:
    """Raise InputError for an unknown accelerator, one that this machine lacks, or too few devices of it.

    num_devices: wanted on this machine; None for all there are
    """
    known = [*CHOICES, *AcceleratorRegistry.available_accelerators()]
    if name not in known:
        raise InputError(
            f"--accelerator must be one of {', '.join(known)}; got {name!r}{suggest(name, known)}"
        )
    kinds = CHOICES.get(name, (name,))
    if not kinds:
        return
    found = [kind for kind in (AcceleratorRegistry.get(kind) for kind in kinds) if kind.is_available()]
    if not found:
        raise InputError(
            f"--accelerator {name}: torch finds no such device on this machine; use --accelerator cpu, or "
            "auto for what there is"
        )
    available = found[0].auto_device_count()
    if name != "cpu" and num_devices is not None and num_devices > available:
        raise InputError(f"--devices {num_devices}: this machine has {available} of --accelerator {name}")
