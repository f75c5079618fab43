"""How often `kmcl monitor` gives an alarm: where nothing has changed, and where a shift was planted.

    python benchmarks/drift.py RUN [--draws 200]

RUN is a run with predictions of val and test. In each draw as many images as val has, and as many new ones as
half of test, are drawn from both splits together, so that nothing differs but chance. A planted shift then
replaces a share of the new ones by images with a label (its rate rises) or by unfamiliar ones. The first row
compares val itself with random halves of test: these draws have val in common, and are not independent.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from kmcl.evaluation import Predictions
from kmcl.evaluation.drift import FALSE_ALARM_RATE, PredictedImages, find_drift
from kmcl.models.folder import read_description
from kmcl.reports.monitor import predicted_images
from kmcl.training.run_folder import RunFolder

SHARES = (0.02, 0.05, 0.1)
MOST_UNFAMILIAR = 0.999

Pair = tuple[PredictedImages, PredictedImages]


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
    both = PredictedImages(*(_stacked(*pair) for pair in zip(val, test, strict=True)))
    num_new = len(test.present) // 2
    print(f"alarms of draws of {num_new} new images, bound {100 * FALSE_ALARM_RATE:g} %\n")
    print("| planted | share | draws | with an alarm |\n|---|---|---|---|")
    halves = [
        (val, rows(test, np.random.default_rng(draw).permutation(len(test.present))[:num_new]))
        for draw in range(arguments.draws)
    ]
    print_row("nothing, halves of test against val", "", alarms(rules.labels, halves))
    draws = [redrawn(both, len(val.present), num_new, draw) for draw in range(arguments.draws)]
    print_row("nothing", "", alarms(rules.labels, draws))
    few = draws[: arguments.draws // 4]
    rates = both.present.mean(axis=0)
    label = int(np.argsort(rates)[len(rates) // 2])
    for share in SHARES:
        planted = [(old, with_label(new, both, label, share)) for old, new in few]
        print_row(f"images with {rules.labels[label]}", f"{share:g}", alarms(rules.labels, planted))
    for share in SHARES if both.unfamiliarity is not None else ():
        planted = [(old, with_unfamiliar(new, share)) for old, new in few]
        print_row("unfamiliar images", f"{share:g}", alarms(rules.labels, planted))


def _stacked(one: Any, other: Any) -> Any:
    return None if one is None or other is None else np.concatenate([one, other])


def redrawn(both: PredictedImages, num_val: int, num_new: int, seed: int) -> Pair:
    """Another val and new images, of the images of both splits."""
    order = np.random.default_rng(seed).permutation(len(both.present))
    return rows(both, order[:num_val]), rows(both, order[num_val : num_val + num_new])


def print_row(planted: str, share: str, found: list[bool]) -> None:
    print(f"| {planted} | {share} | {len(found)} | {100 * np.mean(found):.1f} % |", flush=True)


def alarms(labels: tuple[str, ...], pairs: list[Pair]) -> list[bool]:
    return [bool(find_drift(labels, val, new).found) for val, new in pairs]


def rows(images: PredictedImages, kept: np.typing.NDArray[np.int64]) -> PredictedImages:
    return PredictedImages(*(None if array is None else array[kept] for array in images))  # type: ignore[arg-type]


def with_label(new: PredictedImages, both: PredictedImages, label: int, share: float) -> PredictedImages:
    """So many of the images replaced by ones in which the label was predicted, drawn with replacement."""
    number = round(share * len(new.present))
    having = np.flatnonzero(both.present[:, label])
    drawn = rows(both, np.random.default_rng(0).choice(having, number))
    kept = rows(new, np.arange(number, len(new.present)))
    return PredictedImages(*(_stacked(*pair) for pair in zip(kept, drawn, strict=True)))


def with_unfamiliar(images: PredictedImages, share: float) -> PredictedImages:
    """So many of the images get an unfamiliarity that almost no image of val has; labels stay."""
    if images.unfamiliarity is None:
        raise ValueError("the run has no unfamiliarity")
    changed = images.unfamiliarity.copy()
    changed[: round(share * len(changed))] = MOST_UNFAMILIAR
    return images._replace(unfamiliarity=changed)


if __name__ == "__main__":
    main()
