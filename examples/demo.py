"""Demonstration on the embedded data: train KMCL and ASL on scenes of handwritten digits and compare them.

    python examples/demo.py [--epochs N]

Both have the same budget: a small encoder without pretrained weights, images, augmentation, schedule and
seed. It takes two to four minutes on two cores. For your own photographs, `kmcl train table:labels.csv`
starts from ImageNet weights.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np
from rich.console import Console

import kmcl
from kmcl.evaluation import compare_map
from kmcl.reports import print_metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs
    console = Console()
    folder = Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    runs = {}
    for method in ("kmcl", "asl"):
        console.print(
            f"[bold]{method}[/bold] on digits: 3,000 scenes of 64 x 64 pixels, 10 labels, {epochs} epochs"
        )
        runs[method] = kmcl.train(
            "digits",
            method=method,
            encoder="small_convnet",
            output=folder / method,
            augmentation="light",
            learning_rate=5e-3,
            epochs=epochs,
        )
    print_metrics(console, {method: run.metrics for method, run in runs.items()})
    first, second = (run.predictions("test") for run in runs.values())
    difference = compare_map(first, second, np.random.default_rng(0)).difference
    console.print(
        f"KMCL minus ASL: {100 * difference.estimate:+.2f} mAP, 95 % interval {100 * difference.low:+.2f} to "
        f"{100 * difference.high:+.2f} over test images. "
        "One seed only: another seed changes either method by several points."
    )
    page = runs["kmcl"].report(runs["asl"], output=folder / "report")
    console.print(
        f"\nOpen {page}, or see more figures: kmcl evaluate {folder}/kmcl {folder}/asl", soft_wrap=True
    )


if __name__ == "__main__":
    main()
