"""The main job on the embedded data: train KMCL and ASL on scenes of handwritten digits and compare them.

    python examples/demo.py [--epochs N]

Both get the same budget: a small encoder trained from nothing, images, augmentation, schedule and seed. Two
to four minutes on two cores. Your photographs start from ImageNet weights: `kmcl train table:labels.csv`.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np
from rich.console import Console

from kmcl.cli.tables import print_metrics
from kmcl.evaluation.bootstrap import compare_map
from kmcl.evaluation.predictions import Predictions
from kmcl.reports import write_report
from kmcl.training.settings import resolve_settings
from kmcl.training.train import train


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs
    console = Console()
    folder = Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    metrics = {}
    for method in ("kmcl", "asl"):
        console.print(
            f"[bold]{method}[/bold] on digits: 3,000 scenes of 64 x 64 pixels, 10 labels, {epochs} epochs"
        )
        settings = resolve_settings(
            "digits",
            flags={
                "method": method,
                "encoder": "small_convnet",
                "augmentation": "light",
                "learning_rate": 5e-3,
                "epochs": epochs,
            },
        )
        metrics[method] = train(settings, folder / method, console)
    print_metrics(console, metrics)
    kmcl, asl = (Predictions.load(folder / method / "predictions" / "test.npz") for method in ("kmcl", "asl"))
    difference = compare_map(kmcl, asl, np.random.default_rng(0)).difference
    console.print(
        f"KMCL minus ASL: {100 * difference.estimate:+.2f} mAP, 95 % interval {100 * difference.low:+.2f} to "
        f"{100 * difference.high:+.2f} over test images. "
        "One seed: another moves either method by several points."
    )
    page = write_report([folder / "kmcl", folder / "asl"], folder / "report")
    console.print(f"\nLook at {page}, or closer: kmcl evaluate {folder}/kmcl {folder}/asl", soft_wrap=True)


if __name__ == "__main__":
    main()
