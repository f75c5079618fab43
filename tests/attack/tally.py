"""What a part of the attack has done and found."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

WRITE_SECONDS = 5


class Tally:
    """Counts and failures of one part; threads may share it."""

    def __init__(self, seconds: float, folder: Path) -> None:
        self.folder = folder
        self._end = time.monotonic() + seconds
        self._counts: Counter[str] = Counter()
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._written = time.monotonic()

    @property
    def time_left(self) -> float:
        return self._end - time.monotonic()

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number
            if time.monotonic() > self._written + WRITE_SECONDS:
                self._write()

    def add(self, result: Path) -> None:
        """Count what another process has counted."""
        if result.is_file():
            found = json.loads(result.read_text())
            with self._lock:
                self._counts.update(found["counts"])
                self._failures += found["failures"]
                self._write()

    def fail(self, what: str) -> None:
        with self._lock:
            self._failures.append(what)
            self._write()

    def finish(self) -> None:
        with self._lock:
            self._write()

    def _write(self) -> None:
        result = {"counts": self._counts, "failures": self._failures}
        file = self.folder / "result.json"
        file.with_suffix(".partial").write_text(json.dumps(result, indent=2))
        file.with_suffix(".partial").replace(file)  # whole, whenever the process dies
        self._written = time.monotonic()


def arguments() -> tuple[int, float, Path]:
    """Seed, seconds and folder, as `__main__` gives them."""
    return int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
