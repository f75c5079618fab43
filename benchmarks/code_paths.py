"""How many modules a command runs, how often it changes package on its way, and what it does more than once.

    python benchmarks/code_paths.py

Modules and changes of package are counted in the order in which a function of each module first runs, so that
they say what somebody reads who follows the command. Modules beside the packages, such as `kmcl.registry`,
are no change. A member of a comparison has a process of its own; what runs there counts too. Tracing slows
the commands down, and what is measured to choose settings with it: the settings are given here, but for those
of `train`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import kmcl

SOURCE = Path(kmcl.__file__).parent
TRACER = Path(__file__).parent / "code_path_tracer"
DATA = ("digits", "-o", "size=400")
TRAIN = (
    *("train", *DATA, "--encoder", "tf_efficientnet_lite0", "--image-size", "64", "--budget", "40s"),
    *("--output", "run", "--log", "csv"),
)
COMPARE = (
    *("compare", *DATA, "--methods", "asl,kmcl", "--seeds", "0,1", "--encoder", "small_convnet"),
    *("--epochs", "1", "--output", "study", "--log", "csv"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": TRAIN,
    "predict": ("predict", "run", "photo.png"),
    "evaluate": ("evaluate", "run"),
    "report": ("report", "run"),
    "compare": COMPARE,
}
"""In this order: those after `train` use its run."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _write_photo(Path(folder) / "photo.png")
        for name, arguments in COMMANDS.items():
            print(_line(name, traced(arguments, Path(folder))), flush=True)


def traced(arguments: tuple[str, ...], folder: Path) -> list[str]:
    """The lines that the tracer wrote while the command ran."""
    log = folder / "trace"
    log.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TRACER), str(SOURCE.parent)]),
        "KMCL_CODE_PATHS": str(log),
        "KMCL_CODE_PATHS_SOURCE": f"{SOURCE}{os.sep}",
        "KMCL_CACHE": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "kmcl", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return log.read_text(encoding="utf-8").splitlines()


def _line(name: str, lines: list[str]) -> str:
    modules = list(dict.fromkeys(line.removeprefix("runs ") for line in lines if line.startswith("runs ")))
    packages = [Path(module).parts[0] for module in modules if len(Path(module).parts) > 1]
    changes = sum(one != other for one, other in pairwise(packages))
    counts = Counter(line.removeprefix("counts ") for line in lines if line.startswith("counts "))
    counted = "; ".join(f"{what} {number} x" for what, number in sorted(counts.items()))
    return f"{name:<9}{len(modules):>4} modules, {changes:>3} changes of package; {counted}"


def _write_photo(path: Path) -> None:
    from PIL import Image

    Image.effect_noise((96, 96), 64).convert("RGB").save(path)


if __name__ == "__main__":
    main()
