"""Plant faults in kernels, losses and evaluation, one at a time, and count those that the tests find.

    make mutants                      # 150 of them, 50 of each package, with seed 1
    make mutants SAMPLE=300 SEED=7
    python tests/mutants --package losses --sample 0    # all of one package
    python tests/mutants --only 1f2e3d4c,5b6a7988       # those again
    python tests/mutants --explained --sample 0         # the explained ones: all must survive

Of the tests of the three packages those that run the mutated lines are run, the quickest first, until one
fails. Mutants in `explained.toml` change nothing that a test should notice; they are not counted.

Not mutmut or cosmic-ray: mutmut leaves out functions with decorators, the three losses and all
properties among them; cosmic-ray starts a process for each mutant, which takes longer to load torch than the
tests take; neither drops a call or draws a sample.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import bounded_threads  # noqa: E402, F401  sets the environment before torch is loaded
from mutants import forked_tests as tests  # noqa: E402
from mutants.faults import Mutant, mutants_of  # noqa: E402
from mutants.selection import choose, limit, recorded, say  # noqa: E402

PACKAGES = ("kernels", "losses", "evaluation")
TESTS = [*(f"tests/{package}" for package in PACKAGES), "tests/test_shapes.py"]
HEAVY = ("torch", "numpy", "scipy.stats", "sklearn.metrics", "sklearn.linear_model", "pandas")
EXPLAINED = Path(__file__).with_name("explained.toml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="how many, of each package as many; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", choices=PACKAGES, action="append", help="default: all three")
    parser.add_argument("--only", type=lambda text: set(text.split(",")), help="the mutants of these numbers")
    parser.add_argument(
        "--explained", action="store_true", help="the explained mutants instead of the others"
    )
    given = parser.parse_args()
    packages = tuple(given.package or PACKAGES)
    mutants = []
    for package in packages:
        found = mutants_in(package, explained=given.explained)
        if given.only:
            found = [mutant for mutant in found if mutant.identity in given.only]
        random.Random(given.seed).shuffle(found)
        mutants += found[: math.ceil(given.sample / len(packages)) or None]
    mutants = [mutant for mutant in mutants if mutant.compiles]
    with tempfile.TemporaryDirectory(prefix="kmcl-mutants-") as folder:
        outcomes = run(mutants, Path(folder))
    return report(mutants, outcomes, packages)


def mutants_in(package: str, *, explained: bool) -> list[Mutant]:
    """The explained mutants of a package, or all others, which are counted."""
    known = {(each["file"], each["before"], each["after"]) for each in explanations()}
    return [
        mutant
        for path in sorted((ROOT / "src/kmcl" / package).glob("*.py"))
        for mutant in mutants_of(f"{package}/{path.name}", path.read_bytes())
        if ((mutant.file, mutant.before, mutant.after) in known) == explained
    ]


def explanations() -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads(EXPLAINED.read_text()).get("mutant", [])
    return found


def run(mutants: list[Mutant], folder: Path) -> dict[str, str]:
    """The outcome of each mutant by its identity."""
    shutil.copytree(ROOT / "src", folder / "src")
    source = folder / "src/kmcl"
    # Bytecode would outlive a change within the same second.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(folder / "src")
    sys.path.insert(0, str(folder / "src"))
    os.chdir(ROOT)
    for name in HEAVY:
        __import__(name)
    _set_up_hypothesis()
    outcomes: dict[str, str] = {}
    log = folder / "outcomes.txt"
    records = folder / "record.json"

    def on_collected(items: list[tests.pytest.Item]) -> None:
        found = recorded(items, source, folder, ROOT)
        records.write_text(json.dumps(found))
        functions = tests.functions_by_file(source)
        tests.gc.freeze()
        by_name = {item.nodeid: item for item in items}
        for mutant in mutants:
            chosen = choose(mutant, found)
            outcome = (
                test_in_place(
                    mutant,
                    [by_name[name] for name in chosen],
                    source,
                    functions.get(mutant.file, []),
                    limit(chosen, found),
                )
                if mutant.first
                else None
            )
            with log.open("a") as lines:
                lines.write(f"{mutant.identity} {outcome or 'import'}\n")
            if outcome:
                show(mutant, outcome)

    collector = os.fork()
    if collector == 0:
        try:
            os._exit(tests.collect(TESTS, folder, on_collected))
        except BaseException as error:
            say(f"{type(error).__name__}: {error}")
            os._exit(3)
    _, status = os.waitpid(collector, 0)
    if status:
        raise SystemExit("the tests could not be run")
    for line in log.read_text().splitlines():
        identity, outcome = line.split()
        outcomes[identity] = outcome
    found = json.loads(records.read_text())
    for mutant in mutants:
        if outcomes[mutant.identity] == "import":
            outcomes[mutant.identity] = test_imported_anew(mutant, source, folder, found)
            show(mutant, outcomes[mutant.identity])
    return outcomes


def test_in_place(
    mutant: Mutant,
    items: list[tests.pytest.Item],
    source: Path,
    functions: list[tests.FunctionType],
    seconds: float,
) -> str | None:
    """None if the mutant needs a new import."""
    original = (source / mutant.file).read_bytes()

    def work() -> int:
        if not tests.replace_code(mutant, original, functions):
            return tests.NOT_APPLICABLE
        return 0 if tests.passes(items) else 1

    with tests.planted(mutant, source):
        status = tests.forked(work, seconds)
    return None if status == tests.NOT_APPLICABLE else outcome_of(status)


def test_imported_anew(mutant: Mutant, source: Path, folder: Path, record: tests.Record) -> str:
    chosen = choose(mutant, record)
    if not chosen:
        return tests.SURVIVED
    order = {name: place for place, name in enumerate(chosen)}
    files = sorted({name.split("::")[0] for name in chosen})

    def on_collected(items: list[tests.pytest.Item]) -> None:
        items = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        os._exit(0 if len(items) == len(order) and tests.passes(items) else 1)

    with tests.planted(mutant, source):
        return outcome_of(
            tests.forked(lambda: tests.collect(files, folder, on_collected) or 1, limit(chosen, record) + 60)
        )


def outcome_of(status: int | None) -> str:
    if status is None:
        return tests.TIMEOUT
    return tests.SURVIVED if status == 0 else tests.KILLED


def show(mutant: Mutant, outcome: str) -> None:
    if outcome == tests.SURVIVED:
        place = f"src/kmcl/{mutant.file}:{mutant.line}"
        say(f"survived {mutant.identity} {place}\n  - {mutant.before}\n  + {mutant.after}")
    elif os.environ.get("MUTANTS_VERBOSE"):
        say(f"{outcome} {mutant.identity} {mutant.file}:{mutant.line}")


def report(mutants: list[Mutant], outcomes: dict[str, str], packages: tuple[str, ...]) -> int:
    say(f"{len(explanations())} explained mutants are not counted")
    for package in (*packages, ""):
        found = [outcomes[mutant.identity] for mutant in mutants if mutant.file.startswith(package)]
        if found:
            killed, survived, timeouts = map(found.count, (tests.KILLED, tests.SURVIVED, tests.TIMEOUT))
            say(
                f"{package or 'together'}: {len(found)} mutants, {killed} killed, {timeouts} timeouts, "
                f"{survived} survived: {100 * (1 - survived / len(found)):.1f} %"
            )
    return 0


def _set_up_hypothesis() -> None:
    """The same examples for every mutant; a failing one is not made smaller."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")


if __name__ == "__main__":
    sys.exit(main())
