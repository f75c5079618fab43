"""How often `kmcl monitor` gives an alarm: where nothing has changed, and where a shift was planted.

    python benchmarks/drift.py RUN [--draws 200]

RUN is a run with predictions of val and test. Each draw takes a random half of test as the new images. A
planted shift replaces a share of them by images with a label (its rate rises) or by unfamiliar ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from kmcl.evaluation import Predictions
from kmcl.evaluation.drift import FALSE_ALARM_RATE, PredictedImages, find_drift
from kmcl.models.folder import read_description
from kmcl.reports.monitor import predicted_images
from kmcl.training.run_folder import RunFolder

SHARES = (0.02, 0.05, 0.1, 0.2)
MOST_UNFAMILIAR = 0.999


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    folder = RunFolder(arguments.run)
    rules = read_description(folder.model).rules
    val, test = (
        predicted_images(Predictions.load(folder.predictions_file(name)), rules) for name in ("val", "test")
    )
    halves = [
        np.random.default_rng(draw).permutation(len(test.present))[: len(test.present) // 2]
        for draw in range(arguments.draws)
    ]
    print(f"alarms of {arguments.draws} draws of {len(halves[0])} images, bound {FALSE_ALARM_RATE:g}\n")
    print("| planted | share | draws with an alarm |\n|---|---|---|")
    print(f"| nothing | | {alarms(rules.labels, val, [rows(test, half) for half in halves])} |", flush=True)
    rarest = int(np.argmin(np.where(test.present.sum(axis=0) >= 20, test.present.mean(axis=0), np.inf)))
    for share in SHARES:
        planted = [with_label(test, half, rarest, share) for half in halves]
        print(f"| {rules.labels[rarest]} | {share:g} | {alarms(rules.labels, val, planted)} |", flush=True)
    for share in SHARES if test.unfamiliarity is not None else ():
        planted = [with_unfamiliar(rows(test, half), share) for half in halves]
        print(f"| unfamiliar images | {share:g} | {alarms(rules.labels, val, planted)} |", flush=True)


def alarms(labels: tuple[str, ...], val: PredictedImages, batches: list[PredictedImages]) -> str:
    found = sum(bool(find_drift(labels, val, new).found) for new in batches)
    return f"{100 * found / len(batches):.1f} %"


def rows(images: PredictedImages, kept: np.typing.NDArray[np.int64]) -> PredictedImages:
    return PredictedImages(*(None if array is None else array[kept] for array in images))  # type: ignore[arg-type]


def with_label(
    test: PredictedImages, half: np.typing.NDArray[np.int64], label: int, share: float
) -> PredictedImages:
    """So many of the images replaced by ones in which the label was predicted, drawn with replacement."""
    number = round(share * len(half))
    having = np.flatnonzero(test.present[:, label])
    drawn = np.random.default_rng(int(half[0])).choice(having, number)
    return rows(test, np.concatenate([half[number:], drawn]))


def with_unfamiliar(images: PredictedImages, share: float) -> PredictedImages:
    """So many of the images get an unfamiliarity that almost no image of val has; labels stay."""
    if images.unfamiliarity is None:
        raise ValueError("the run has no unfamiliarity")
    changed = images.unfamiliarity.copy()
    changed[: round(share * len(changed))] = MOST_UNFAMILIAR
    return images._replace(unfamiliarity=changed)


if __name__ == "__main__":
    main()
