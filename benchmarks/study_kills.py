"""A study of many members whose processes are killed at random: does it end complete, none trained twice?

    python benchmarks/study_kills.py --members 200 --kills 10

Two processes run the same study of vectors, as two hosts with a shared folder would. At random moments
a member or one of the two gets kill -9; what has ended before the study is complete is started again, as a
job manager would. A member counts as trained twice if its metrics were written again after they were there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NUM_RUNNERS = 2


def write_vectors(path: Path, count: int = 400, width: int = 16, num_labels: int = 4) -> Path:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((count, width)).astype(np.float32)
    targets = (vectors[:, :num_labels] + rng.standard_normal((count, num_labels)) > 0.5).astype(np.int8)
    labels = np.array([f"label {number}" for number in range(num_labels)])
    np.savez(path, features=vectors, targets=targets, labels=labels)
    return path


class Study:
    """The runners of a study, and what is seen of its members."""

    def __init__(self, folder: Path, data: Path, num_members: int) -> None:
        self.folder, self.num_members = folder, num_members
        seeds = ",".join(map(str, range(num_members // 2)))
        self._command = [
            *(sys.executable, "-m", "kmcl", "compare", f"features:{data}", "--methods", "bce,asl"),
            *("--seeds", seeds, "--output", str(folder), "--epochs", "2", "--posthoc", "none"),
            *("--learning-rate", "1e-3", "--log", "csv"),
        ]
        self._runners: list[subprocess.Popen[str]] = []
        self._written: dict[str, int] = {}
        self.trained_twice: set[str] = set()
        self.num_starts = self.num_kills = 0

    @property
    def num_finished(self) -> int:
        return len(self._written)

    def look(self) -> None:
        """Note the moment at which each member's metrics were written."""
        for path in self.folder.glob("members/*/metrics.json"):
            moment = path.stat().st_mtime_ns
            if self._written.setdefault(path.parent.name, moment) != moment:
                self.trained_twice.add(path.parent.name)

    def keep_running(self) -> None:
        self._runners = [runner for runner in self._runners if runner.poll() is None]
        while len(self._runners) < NUM_RUNNERS and self.num_finished < self.num_members:
            log = (self.folder.parent / f"runner-{self.num_starts}.txt").open("w")
            self._runners.append(
                subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, text=True)
            )
            self.num_starts += 1
            time.sleep(1)

    def kill(self, rng: random.Random) -> str:
        """Kill a member, or in one of four cases a runner; returns what was killed."""
        owners = []
        for path in self.folder.glob("locks/*.owner"):
            name, owner = path.stem, int(path.read_text())
            if name not in self._written and self._is_ours(owner):
                owners.append((f"member {name}", owner))
        runners = [(f"runner {runner.pid}", runner.pid) for runner in self._runners]
        if not owners and not runners:
            return ""
        what, process = rng.choice(owners if owners and rng.random() < 0.75 else runners)
        os.kill(process, signal.SIGKILL)
        self.num_kills += 1
        return what

    def _is_ours(self, process: int) -> bool:
        """Whether a process descends from a runner: the number of one that has ended may be given again."""
        ours = {runner.pid for runner in self._runners}
        while process > 1 and process not in ours:
            try:
                status = Path(f"/proc/{process}/status").read_text()
            except OSError:
                return False
            process = int(status.partition("PPid:")[2].split()[0])
        return process in ours

    def wait(self) -> int:
        """Wait for the runners; run the command once more, and return its status."""
        for runner in self._runners:
            runner.wait()
        return subprocess.run(self._command, stdout=subprocess.DEVNULL).returncode


def run(study: Study, num_kills: int, seed: int) -> int:
    """Run the study to its end, with kills after random numbers of finished members; returns the status."""
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(1, study.num_members - 1), num_kills))
    while study.num_finished < study.num_members:
        study.keep_running()
        study.look()
        due = bool(moments) and study.num_finished >= moments[0]
        if due and (killed := study.kill(rng)):
            moments.pop(0)
            print(f"{study.num_finished} members finished: killed {killed}", flush=True)
        time.sleep(0.05)
    status = study.wait()
    study.look()
    return status


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        study = Study(root / "study", write_vectors(root / "vectors.npz"), arguments.members)
        began = time.perf_counter()
        status = run(study, arguments.kills, arguments.seed)
        print(
            f"{study.num_finished} of {arguments.members} members, {study.num_kills} kills, "
            f"{study.num_starts} starts of the study, last status {status}, trained twice: "
            f"{sorted(study.trained_twice) or 'none'}; {time.perf_counter() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
