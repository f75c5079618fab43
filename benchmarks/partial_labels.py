"""What treatments of unknown labels are worth where only one label of each training image is known.

    python benchmarks/partial_labels.py table:PATH/labels.csv --split val     (to choose rates and shares)
    python benchmarks/partial_labels.py table:PATH/labels.csv --split test    (once)

Of every training image one present label is kept, drawn with the seed; nothing else is known. Val and test
are fully labelled. A linear head on frozen features is trained with the loss of --method; every treatment has
the same epochs and the same learning rates to choose from. The choice, of the rate and (where there is one)
of the share of large losses, is made on val, for each seed by its own val mAP; the figure is mAP on --split,
mean and standard deviation over the seeds. The first row has all labels of the training images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from frozen_statistics import Images, read_splits
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.methods import find_method, read_options
from kmcl.methods.output import HeadOutput
from kmcl.training.unknown_labels import UnknownLabels

EPOCHS, BATCH = 8, 128
RATES = (3e-3, 1e-2, 3e-2)
SHARES = (0.04, 0.1)
TREATMENTS: dict[str, tuple[str, tuple[float, ...]]] = {
    "all labels known": ("ignore", (0.0,)),
    "ignore": ("ignore", (0.0,)),
    "negative": ("negative", (0.0,)),
    "weak_negative": ("weak_negative", (0.0,)),
    "ll_r": ("ll_r", SHARES),
    "ll_ct": ("ll_ct", SHARES),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--method", default="bce", choices=["bce", "asl"])
    parser.add_argument("--treatments", nargs="+", default=list(TREATMENTS), choices=list(TREATMENTS))
    parser.add_argument("--seeds", default="0:3", metavar="FROM:TO")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--keep", type=Path, required=True, help="folder for the features")
    arguments = parser.parse_args()
    wanted = tuple(dict.fromkeys(["train", "val", arguments.split]))
    _, splits = read_splits(arguments.data, wanted, arguments.image_size, arguments.keep)
    print(f"| {arguments.method} | val | {arguments.split} | chosen |\n|---|---|---|---|")
    for name in arguments.treatments:
        found = [
            best_of(splits, name, arguments.method, arguments.split, seed)
            for seed in range(*map(int, arguments.seeds.split(":")))
        ]
        val, judged = (np.array([run[place] for run in found]) for place in (0, 1))
        chosen = "; ".join(run[2] for run in found)
        print(f"| {name} | {spread(val)} | {spread(judged)} | {chosen} |", flush=True)


def best_of(
    splits: dict[str, Images], name: str, method: str, judged: str, seed: int
) -> tuple[float, float, str]:
    """mAP on val and on the judged split of the setting that is best on val, and the setting."""
    treatment, shares = TREATMENTS[name]
    targets = splits["train"].targets
    if name != "all labels known":
        targets = one_positive_each(targets, seed)
    found = []
    for share in shares:
        for rate in RATES:
            unknown = UnknownLabels(treatment, share)  # type: ignore[arg-type]
            head = train(splits["train"].directions, targets, unknown, method, rate, seed)
            figures = [100 * judge(head, splits[split]) for split in ("val", judged)]
            found.append((figures[0], figures[1], f"{rate:g}" + (f", {share:g}" if share else "")))
    return max(found)


def one_positive_each(targets: npt.NDArray[np.int8], seed: int) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(seed)
    drawn = np.where(targets == 1, rng.random(targets.shape), -1.0).argmax(axis=1)
    rows = np.flatnonzero((targets == 1).any(axis=1))
    kept = np.full_like(targets, -1)
    kept[rows, drawn[rows]] = 1
    return kept


def train(
    directions: Tensor,
    targets: npt.NDArray[np.int8],
    unknown: UnknownLabels,
    method: str,
    rate: float,
    seed: int,
) -> nn.Linear:
    torch.manual_seed(seed)
    head = nn.Linear(directions.shape[1], targets.shape[1])
    optimiser = torch.optim.AdamW(head.parameters(), lr=rate)
    steps = EPOCHS * (len(directions) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    compute, options = find_method(method).compute_loss, read_options({"name": method})
    vectors, known = directions * directions.shape[1] ** 0.5, torch.from_numpy(targets)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(vectors))
        for rows in order.split(BATCH)[: len(vectors) // BATCH]:
            output = HeadOutput(head(vectors[rows]), vectors[rows], None)
            terms = unknown.loss(compute, output, known[rows], options, epoch / (EPOCHS - 1))
            optimiser.zero_grad()
            terms.total.backward()
            optimiser.step()
            schedule.step()
    return head


@torch.no_grad()
def judge(head: nn.Linear, images: Images) -> float:
    scores = head(images.directions * images.directions.shape[1] ** 0.5).sigmoid().numpy()
    labels = tuple(map(str, range(images.targets.shape[1])))
    names = tuple(map(str, range(len(scores))))
    return mean_average_precision(Predictions(labels, names, scores, images.targets))


def spread(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


if __name__ == "__main__":
    main()
