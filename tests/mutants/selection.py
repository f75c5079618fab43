"""Which tests are run on a mutant: those that run its lines, the quickest first."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from mutants import forked_tests as tests
from mutants.faults import Mutant

GENERAL = ("tests/test_shapes.py", "tests/evaluation/test_public_names.py")
"""Tests of what all packages have in common."""
STARTING_PROCESSES = "tests/losses/test_distributed.py"
"""Its tests run the losses in other processes, whose lines are not recorded."""
IN_OTHER_PROCESSES = "losses/distributed.py"


def recorded(items: list[tests.pytest.Item], source: Path, folder: Path, root: Path) -> tests.Record:
    """The record of the tests; those of a file are run again when it, its helpers or the package changed."""
    records = root / "build/mutants"
    shared = digest(*sorted([*(root / "src/kmcl").rglob("*.py"), *(root / "tests").glob("*.py")]))
    kept = {item.path: records / f"{shared}-{digest(item.path)}.json" for item in items}
    started = time.monotonic()
    missing = {item.path for item in items if not kept[item.path].exists()}
    records.mkdir(parents=True, exist_ok=True)
    for path in sorted(missing):  # one after the other, so that what is recorded outlives an interruption
        fresh = folder / "fresh.json"
        of_file = [item for item in items if item.path == path]
        tests.forked(partial(tests.record, of_file, source, fresh), 3600, wall_seconds=36000)
        shutil.move(fresh, kept[path])
    if missing:
        say(f"recorded {len(missing)} of {len(set(kept))} files in {time.monotonic() - started:.0f} s")
    everything: tests.Record = {}
    for path in set(kept.values()):
        everything |= json.loads(path.read_text())
    for name in [name for name, test in everything.items() if not test["passed"]]:
        say(f"fails without a fault, left out: {name}")
        del everything[name]
    return everything


def digest(*paths: Path) -> str:
    total = hashlib.sha1()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def choose(mutant: Mutant, record: tests.Record) -> list[str]:
    """The tests that run a mutant's lines, for what runs at import those of its file, the quickest first."""
    lines = range(mutant.first, mutant.last + 1) if mutant.first else range(10**6)
    package = mutant.file.split("/")[0]
    chosen = [
        name
        for name, test in record.items()
        if any(number in lines for number in test["lines"].get(mutant.file, ()))
        or (not mutant.first and name.startswith((f"tests/{package}/", *GENERAL)))
        or (mutant.file == IN_OTHER_PROCESSES and name.startswith(STARTING_PROCESSES))
    ]
    return sorted(chosen, key=lambda name: (name.startswith(STARTING_PROCESSES), record[name]["seconds"]))


def limit(chosen: list[str], record: tests.Record) -> float:
    """Processor seconds after which a mutant does not end."""
    return 20 + 5 * sum(record[name]["seconds"] for name in chosen)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
