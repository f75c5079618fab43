"""Trainings killed at random moments (kill -9, SIGTERM, Ctrl-C), resumed, compared with one left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tally import Tally, arguments

FLAGS = {
    "encoder": "test_resnet",
    "weights": "none",
    "image-size": 32,
    "augmentation": "light",
    "learning-rate": 2e-3,
    "batch-size": 20,
    "epochs": 6,
    "workers": 0,
    "frozen-stages": 2,
    "cached-views": 2,
    "option": "size=120",
}
STATUSES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
HANG_SECONDS = 600
MOST_KILLS = 4


class Trainings:
    """Trainings of one configuration, each with the output of its processes in a file."""

    def __init__(self, tally: Tally, rng: random.Random) -> None:
        self._tally, self._rng = tally, rng
        self._whole = tally.folder / "whole"
        begin = time.monotonic()
        if not self._run_to_end(self._whole):
            raise SystemExit("the training that is left alone failed")
        self._seconds = time.monotonic() - begin

    def attack(self, number: int) -> None:
        """One training with up to four kills, compared with the one left alone."""
        run = self._tally.folder / f"run{number}"
        self._tally.count("trainings")
        for _ in range(self._rng.randint(1, MOST_KILLS)):
            if not self._interrupt(run):
                return
        if self._run_to_end(run):
            self._compare(run)

    def _start(self, run: Path) -> subprocess.Popen[bytes]:
        how = ["--resume", str(run)] if (run / "settings.yaml").is_file() else self._new(run)
        with run.with_suffix(".txt").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "kmcl", "train", *how],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"KMCL_CACHE": str(run.with_suffix(".cache")), "OMP_NUM_THREADS": "1"},
            )

    def _new(self, run: Path) -> list[str]:
        flags = [f"--{name}={value}" for name, value in FLAGS.items()]
        return ["digits", *flags, "--output", str(run)]

    def _interrupt(self, run: Path) -> bool:
        """Start or resume, and send a signal at a random moment; False after a failure."""
        process = self._start(run)
        sign = self._rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        # A signal before the program has installed its handlers ends it like any program.
        earliest = 0.0 if sign == signal.SIGKILL else 0.5 * self._seconds
        try:
            status = process.wait(self._rng.uniform(earliest, self._seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(sign)
            self._tally.count("kills" if sign == signal.SIGKILL else "signals")
            status = self._wait(process)
            if status not in (0, STATUSES[sign], -sign):
                self._tally.fail(f"{run}: status {status} after {sign.name}")
                return False
        else:
            if status:
                self._tally.fail(f"{run}: status {status}")
                return False
        return self._is_quiet(run)

    def _run_to_end(self, run: Path) -> bool:
        status = self._wait(self._start(run))
        if status:
            self._tally.fail(f"{run}: status {status} of the last resume")
        return not status and self._is_quiet(run)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _is_quiet(self, run: Path) -> bool:
        if b"Traceback" in run.with_suffix(".txt").read_bytes():
            self._tally.fail(f"{run}: a traceback in {run.with_suffix('.txt')}")
            return False
        return True

    def _compare(self, run: Path) -> None:
        for split in ("val", "test"):
            with (
                np.load(run / "predictions" / f"{split}.npz") as ours,
                np.load(self._whole / "predictions" / f"{split}.npz") as theirs,
            ):
                same = ours.files == theirs.files and all(
                    ours[name].tobytes() == theirs[name].tobytes() for name in ours.files
                )
            if not same:
                self._tally.fail(f"{run}: predictions of {split} differ from those of {self._whole}")
                return
        self._tally.count("resumed to the same bytes")


def main() -> None:
    seed, seconds, folder = arguments()
    tally = Tally(seconds, folder)
    trainings = Trainings(tally, random.Random(seed))
    number = 0
    while tally.time_left > 0:
        trainings.attack(number)
        number += 1
    tally.finish()


if __name__ == "__main__":
    main()
