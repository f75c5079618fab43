"""Demonstration on the embedded data: train KMCL and ASL on drawn scenes, compare them, look at predictions.

    python examples/demo.py [--seeds 0,1] [--output runs/demo]

It runs commands that you could type yourself, and prints each. Both methods have the same recipe: an encoder
with ImageNet weights from a package, its first stages frozen and their features computed once, and the same
images, augmentation, schedule and seed. They are trained at the same time. It takes a few minutes on two
cores; the same command again continues where it was stopped. For your own images: `kmcl train labels.csv`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from kmcl.cli.app import main as run_program

METHODS = ("kmcl", "asl")
IMAGE_SIZE = "160"
"""Smaller than the 224 px of other comparisons, so that the demonstration takes less than three minutes."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0", help="of the trainings, as in 0,1,2")
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="folder of everything")
    parser.add_argument("--option", action="append", default=[], help="of the dataset, as in size=100")
    given = parser.parse_args()
    folder: Path = given.output
    seed = given.seeds.split(",")[0]
    runs = [folder / "members" / f"{method}-seed{seed}" for method in METHODS]
    options = [word for option in given.option for word in ("--option", option)]
    methods = ("--methods", ",".join(METHODS), "--reference", METHODS[-1])
    recipe = ("--image-size", IMAGE_SIZE, "--seeds", given.seeds, "--jobs", len(METHODS))
    run("compare", "scenes", *methods, *recipe, *options, "--output", folder)
    run("report", *runs, "--output", folder / "report")
    run("figure", "predictions", runs[0], "--output", folder)
    print(
        "\nOpen these files:\n"
        f"  {folder / 'predictions.png'}  six test images: saliency, probabilities with intervals\n"
        f"  {folder / 'report' / 'report.html'}  everything about both models\n"
    )


def run(*arguments: object) -> None:
    """Run a command as a user would, and stop where it fails; in this process, which loads torch once."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ kmcl {shlex.join(words)}", flush=True)
    sys.argv = ["kmcl", *words]
    try:
        run_program()
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    main()
