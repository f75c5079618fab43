"""How many epochs, and which of them val should choose: judged on folds of train and val.

    python benchmarks/epochs.py DATA OUT [--epochs 3,6,12,24] [--groups '[0-9]{8}'] [--folds 4] [--part 0/2]
    python benchmarks/epochs.py DATA OUT --table

    [--method kmcl] [--encoder lite2] [--image-size 224] [--views 4] [--frozen-stages 6]

Networks are trained on folds as by `ablation.py`, for each number of epochs. After each epoch the network and
its moving average score val and the images that are judged, alone and with the Gaussian process, which is
tuned on val. Rules choose among them: the best mAP on val, the best mean AUC on val (alone, or with the
process), the last moving average. mAP / mean AUC of the judged images, means over folds, and the standard
error of the difference to the first rule with the first number of epochs. Test is not opened.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ablation import FROZEN_STAGES, VARIANTS, Images, Network, Part, Parts, Rows, predictions_of, scores_of
from kmcl.evaluation.ranking import mean_area_under_roc, mean_average_precision
from kmcl.posthoc.frozen_gp import FrozenFeatureGP
from kmcl.training.calibration import auc_of_logits

Figures = npt.NDArray[np.float64]


class Judged(NamedTuple):
    """mAP and mean AUC of a network on val and on the judged images, alone and with the process."""

    val: Figures
    val_with_process: Figures
    judged: Figures
    judged_with_process: Figures


RULES: dict[str, Callable[[list[Judged]], Judged]] = {
    "best mAP": lambda found: max(found, key=lambda one: one.val[0]),
    "best mAP with the process": lambda found: max(found, key=lambda one: one.val_with_process[0]),
    "best AUC": lambda found: max(found, key=lambda one: one.val[1]),
    "best AUC with the process": lambda found: max(found, key=lambda one: one.val_with_process[1]),
    "last average": lambda found: found[-1],
}
"""Of the network and its average after each epoch, in this order."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", default="3,6,12,24")
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--method", default="kmcl", choices=list(VARIANTS))
    parser.add_argument("--encoder", default="lite2")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--frozen-stages", type=int, default=FROZEN_STAGES)
    parser.add_argument("--part", default="0/1", help="which of several processes this is")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    numbers = [int(text) for text in arguments.epochs.split(",")]
    if arguments.table:
        print_table(arguments.out, numbers)
        return
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    images = Images(
        arguments.data,
        arguments.image_size,
        arguments.views,
        arguments.groups,
        with_test=False,
        encoder=arguments.encoder,
        frozen_stages=arguments.frozen_stages,
    )
    index, number = map(int, arguments.part.split("/"))
    for fold, part in list(enumerate(images.folds(arguments.folds)))[index::number]:
        parts = Parts(images, part, images.targets)
        for epochs in numbers:
            file = arguments.out / f"{epochs} {fold}.npy"
            if not file.is_file():
                found = train(images, part, parts, arguments.method, epochs, fold)
                np.save(file, np.array(found))
                print(f"fold {fold}, {epochs} epochs: {RULES['best mAP'](found)}", flush=True)


def train(images: Images, part: Part, parts: Parts, method: str, epochs: int, fold: int) -> list[Judged]:
    network = Network(images, part, VARIANTS[method], images.targets, fold)
    found = []
    for candidates in network.epochs(epochs):
        for candidate in candidates:
            logits = [scores_of(candidate, images, rows).logits.double() for rows in (part.val, part.judged)]
            corrected = with_process(images, part, parts, *logits)
            of_both = [
                [figures(images, rows, one) for rows, one in zip((part.val, part.judged), pair, strict=True)]
                for pair in (logits, corrected)
            ]
            (val, judged), (val_with_process, judged_with_process) = of_both
            found.append(Judged(val, val_with_process, judged, judged_with_process))
    return found


def with_process(
    images: Images, part: Part, parts: Parts, on_val: Tensor, on_judged: Tensor
) -> tuple[Tensor, Tensor]:
    process = parts.process
    assert isinstance(process, FrozenFeatureGP)
    score = auc_of_logits(predictions_of(images, part.val, on_val))
    corrected = process.tune(images.statistics[part.val], on_val, score)
    return corrected, on_judged + process(images.statistics[part.judged])


def figures(images: Images, rows: Rows, logits: Tensor) -> Figures:
    predictions = predictions_of(images, rows, logits)
    return 100 * np.array([mean_average_precision(predictions), mean_area_under_roc(predictions)])


def print_table(folder: Path, numbers: list[int]) -> None:
    print("| epochs | val chooses by | alone | with the process | difference of mAP |\n|---|---|---|---|---|")
    first: Figures | None = None
    for epochs in numbers:
        files = sorted(folder.glob(f"{epochs} *.npy"))
        folds = [[Judged(*one) for one in np.load(file)] for file in files]
        for name, choose in RULES.items():
            chosen = [choose(found) for found in folds]
            alone = np.array([one.judged for one in chosen])
            corrected = np.array([one.judged_with_process for one in chosen])
            first = corrected if first is None else first
            differences = (corrected - first)[:, 0]
            error = differences.std(ddof=1) / math.sqrt(len(files)) if len(files) > 1 else math.nan
            cells = [" / ".join(f"{value:.2f}" for value in one.mean(axis=0)) for one in (alone, corrected)]
            print(f"| {epochs} | {name} | {' | '.join(cells)} | {differences.mean():+.2f} ± {error:.2f} |")


if __name__ == "__main__":
    main()
