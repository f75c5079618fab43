"""Run a command and measure it: wall time, and the largest memory of its processes together (Linux)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 5.0
"""Seconds: adding up the pages of a large process takes a tenth of one."""


@dataclass(frozen=True)
class Measured:
    """seconds: from start to end of the process. peak_bytes: shared pages counted once. peak_rss: in each."""

    returncode: int
    seconds: float
    peak_bytes: int
    peak_rss: int


def run_measured(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Measured:
    """Run to the end, output into `log`; memory is looked at every few seconds.

    Data workers share most pages with the process that started them. Its memory is therefore the sum of
    proportional sizes (PSS); the sum of resident sizes, which counts such pages in every process, is kept
    beside it.
    """
    started, peak, peak_rss = time.monotonic(), 0, 0
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                sizes = [memory_of(number) for number in process_tree(process.pid)]
                peak = max(peak, sum(proportional for proportional, _ in sizes))
                peak_rss = max(peak_rss, sum(resident for _, resident in sizes))
                try:
                    process.wait(INTERVAL)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
    return Measured(process.returncode, time.monotonic() - started, peak, peak_rss)


def process_tree(root: int) -> list[int]:
    """The process and all below it, by the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):  # ended meanwhile
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for number in found:
        found += children.get(number, [])
    return found


def memory_of(number: int) -> tuple[int, int]:
    """Proportional and resident size in bytes; zeros for a process that has ended."""
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:] if line.endswith("kB")}
    return sizes.get("Pss", 0), sizes.get("Rss", 0)


def own_environment(**changes: str) -> dict[str, str]:
    """The variables of this process with some replaced."""
    return {**os.environ, **changes}
