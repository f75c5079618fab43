"""Attack the program for a given time: kills, damaged inputs, the service under load and abuse.

    make attack MINUTES=60
    python tests/attack --minutes 2
    python tests/attack --minutes 2 --only inputs --seed 7

The three parts run at the same time, each in a process of its own. Counts are printed at the end. The exit
status is 1 after a traceback, a hang, a 5xx, a wrong answer or lost data; what caused it is then in the
folder of the attack, which is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARTS = ("kills", "inputs", "service")
SLACK_SECONDS = 1800
"""A part finishes what it has begun: the last training, the shutdown of the service."""
LONGEST_FAILURE = 1000
"""Characters of a failure that are printed; `result.json` of its part has all."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--folder", type=Path, default=None, help="default: a temporary folder")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kmcl-attack-"))
    print(f"attack for {given.minutes:g} minutes with seed {seed} in {folder}", flush=True)
    parts = {name: start(name, seed, 60 * given.minutes, folder / name) for name in given.only or PARTS}
    deadline = time.monotonic() + 60 * given.minutes + SLACK_SECONDS
    num_failures = sum(report(name, process, deadline, folder / name) for name, process in parts.items())
    print(f"{num_failures} failures" if num_failures else "no failure")
    return 1 if num_failures else 0


def start(name: str, seed: int, seconds: float, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name(f"{name}.py")
    with (folder / "output.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, str(script), str(seed), str(seconds), str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def report(name: str, process: subprocess.Popen[bytes], deadline: float, folder: Path) -> int:
    """Print the counts of a part; returns the number of its failures."""
    try:
        status = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        print(f"{name}: hangs; see {folder}")
        return 1
    try:
        result = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        print(f"{name}: ended with status {status} and no result; see {folder}")
        return 1
    print(f"{name}: " + ", ".join(f"{what} {count:,}" for what, count in sorted(result["counts"].items())))
    for failure in result["failures"][:20]:
        print(f"  FAILURE {failure[:LONGEST_FAILURE]}")
    return len(result["failures"])


if __name__ == "__main__":
    sys.exit(main())
