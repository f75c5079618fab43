"""Trainings killed at random moments (kill -9, SIGTERM, Ctrl-C), resumed, compared with one left alone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from processes import Process, start_fresh, start_prepared
from tally import Tally, arguments

STATUSES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
HANG_SECONDS = 900
MOST_KILLS = 12
COMMON = """
data: {spec: digits, options: {size: 100}, augmentation: light, workers: 0}
"""
STAGES = ("before the folder", "start", "features", "first model and search", "epochs", "final passes")


class Kind(NamedTuple):
    """A configuration of trainings.

    settings: its file of settings
    epochs:   that it has; None where each training chooses them for its budget, so that it is compared with
              one of the settings that it chose
    stages:   in which it is interrupted, the first ones of `STAGES` among them
    """

    name: str
    settings: str
    epochs: int | None
    stages: tuple[str, ...]


KINDS = (
    Kind(
        "cached features",
        "encoder: {name: test_resnet, weights: none, image_size: 32, frozen_stages: 2, cached_views: 2}\n"
        "optimisation: {learning_rate: 0.002, batch_size: 5, epochs: 10}\n"
        "recipe: {name: cached, to_choose: [learning_rate]}\n",
        10,
        STAGES,
    ),
    Kind(
        "a budget",
        "encoder: {name: test_resnet, weights: none, image_size: 32, frozen_stages: 2, cached_views: 3}\n"
        "optimisation: {learning_rate: 0.002, batch_size: 5}\n"
        "recipe: {name: cached, budget: 12s, "
        "to_choose: [cached_views, learning_rate, weight_decay, head_epochs, epochs]}\n",
        None,
        STAGES,
    ),
    Kind(
        "images",
        "encoder: {name: test_resnet, weights: none, image_size: 32}\n"
        "optimisation: {learning_rate: 0.002, batch_size: 20, epochs: 4}\n",
        4,
        ("before the folder", "start", "epochs", "final passes"),
    ),
)


class Trainings:
    """Trainings of one kind, each with the output of its processes in a file."""

    def __init__(self, kind: Kind, tally: Tally, rng: random.Random) -> None:
        self._kind, self._tally, self._rng = kind, tally, rng
        self._folder = tally.folder / kind.name.replace(" ", "-")
        self._folder.mkdir(parents=True)
        self._settings = self._folder / "settings.yaml"
        self._settings.write_text(COMMON + kind.settings)
        self._whole = self._folder / "whole"
        if not self._run_to_end(self._whole, fresh=True):
            raise SystemExit(f"the training of {kind.name} that is left alone failed; see {self._folder}")
        begin = time.monotonic()
        again = self._folder / "again"
        if not self._run_to_end(again):
            raise SystemExit(f"a second training of {kind.name} failed; see {self._folder}")
        self.seconds = time.monotonic() - begin
        if not self._is_same(again):
            raise SystemExit(f"two trainings of {kind.name} that are left alone differ; see {self._folder}")

    def attack(self, number: int) -> None:
        """One training, interrupted up to twelve times, compared with the one left alone."""
        run = self._folder / f"run{number}"
        self._tally.count("trainings")
        for _ in range(self._rng.randint(1, MOST_KILLS)):
            if not self._interrupt(run):
                return
            if (run / "metrics.json").is_file():
                break
        if self._run_to_end(run, fresh=number % 10 == 9) and self._is_same(run):
            self._tally.count("resumed to the same bytes")
            if self._kind.epochs is None:
                self._tally.count(f"of {self._kind.name}, resumed with {_saved_epochs(run)} epochs")
            for training in (run, *run.parent.glob(f"{run.name}-left-alone")):
                shutil.rmtree(training)
                shutil.rmtree(_cache_of(training), ignore_errors=True)  # trainings on images have none

    def _start(self, run: Path, settings: Path, *, fresh: bool = False) -> Process:
        has_begun = (run / "plan.yaml").is_file()
        new = ["--config", str(settings), "--output", str(run)]
        command = ["train", *(["--resume", str(run)] if has_begun else new)]
        environment = {"KMCL_CACHE": str(_cache_of(run))}
        return (start_fresh if fresh else start_prepared)(command, environment, run.with_suffix(".txt"))

    def _interrupt(self, run: Path) -> bool:
        """Start or resume, and send a signal at a random moment of a random stage; False after a failure."""
        process = self._start(run, self._settings)
        wanted = STAGES.index(self._rng.choice(self._kind.stages))
        while process.poll() is None and self._stage(run) < wanted:
            time.sleep(0.05)
        time.sleep(self._rng.uniform(0, self.seconds / 6))
        sign = self._rng.choice(
            (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
        )
        stage = self._stage(run)
        process.send_signal(sign)
        status = self._wait(process, run)
        if status == STATUSES[sign]:
            self._tally.count("kill -9" if sign == signal.SIGKILL else f"stopped by {sign.name}")
            if sign == signal.SIGKILL:
                name = STAGES[min(stage, len(STAGES) - 1)]
                name = name if name in self._kind.stages else "epochs"
                self._tally.count(f"kill -9 of {self._kind.name}: {name}")
        elif status == -sign:
            self._tally.count(f"ended by {sign.name} before it had a handler")
        elif status == 0:
            self._tally.count("finished before the signal")
        else:
            self._tally.fail(f"{run}: status {status} after {sign.name}")
            return False
        return self._is_quiet(run)

    def _stage(self, run: Path) -> int:
        """Where a run is, as an index of `STAGES`; beyond them when it is done."""
        if (run / "metrics.json").is_file():
            return len(STAGES)
        num_lines = _num_lines(run / "epochs.csv")
        if num_lines and num_lines > (self._kind.epochs or _saved_epochs(run)):
            return STAGES.index("final passes")
        if (run / "checkpoints" / "last.ckpt").is_file():
            return STAGES.index("epochs")
        if (run / "model" / "model.json").is_file():
            return STAGES.index("first model and search")
        if any(_cache_of(run).rglob("*.features*")):
            return STAGES.index("features")
        return STAGES.index("start" if (run / "plan.yaml").is_file() else "before the folder")

    def _run_to_end(self, run: Path, settings: Path | None = None, *, fresh: bool = False) -> bool:
        status = self._wait(self._start(run, settings or self._settings, fresh=fresh), run)
        if status:
            self._tally.fail(f"{run}: status {status} of the last resume")
        return not status and self._is_quiet(run)

    def _wait(self, process: Process, run: Path) -> int:
        status = process.wait(HANG_SECONDS)
        if status is None:
            self._tally.fail(f"{run}: hangs")
            process.send_signal(signal.SIGKILL)
            return process.wait(HANG_SECONDS) or 0
        return status

    def _is_quiet(self, run: Path) -> bool:
        output = run.with_suffix(".txt")  # not there if it was killed before all else
        if output.exists() and b"Traceback" in output.read_bytes():
            self._tally.fail(f"{run}: a traceback in {output}")
            return False
        return True

    def _is_same(self, run: Path) -> bool:
        whole = self._whole
        if self._kind.epochs is None:
            whole = run.with_name(f"{run.name}-left-alone")
            if not self._run_to_end(whole, run / "settings.yaml", fresh=True):
                return False
        for split in ("val", "test"):
            with (
                np.load(run / "predictions" / f"{split}.npz") as ours,
                np.load(whole / "predictions" / f"{split}.npz") as theirs,
            ):
                same = ours.files == theirs.files and all(
                    ours[name].tobytes() == theirs[name].tobytes() for name in ours.files
                )
            if not same:
                self._tally.fail(f"{run}: predictions of {split} differ from those of {whole}")
                return False
        return True


def _saved_epochs(run: Path) -> int:
    """The epochs in a run's settings, which are those it has chosen once it trains."""
    settings = run / "settings.yaml"
    chosen = settings if settings.is_file() else run / "plan.yaml"
    epochs: int = yaml.safe_load(chosen.read_text())["optimisation"]["epochs"]
    return epochs


def _cache_of(run: Path) -> Path:
    return run.with_suffix(".cache")


def _num_lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def main() -> None:
    seed, seconds, folder = arguments()
    tally, rng = Tally(seconds, folder), random.Random(seed)
    trainings = [Trainings(kind, tally, rng) for kind in KINDS]
    number = 0
    while tally.time_left > 0:
        trainings[number % len(trainings)].attack(number)
        number += 1
    tally.finish()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
