"""Are objects noticed that no training image shows? Models of a table without some labels, judged on test.

    python benchmarks/left_out_labels.py TABLE OUT --labels 'airplane,dog;train,bird'

TABLE is a CSV with the columns image and split and one of 0 and 1 for each label, such as `kmcl data convert`
writes. For each group of --labels a model is trained on the images of train and val that have none of them,
without their columns: EfficientNet-Lite0 at 160 px, six stages frozen, two views, four epochs. The test
images with a label of the group are then the others, and those with none of the group the known ones. The
columns are those of `unfamiliar.py`. A model that is in OUT is not trained again.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kmcl.models.folding import fold_batch_norms
from kmcl.serving.loading import load_in_torch
from unfamiliar import Pixels, decoded, files_with, fit_gaussian, print_table, score_all

IMAGE_SIZE = 160
OPTIONS = (
    "--encoder tf_efficientnet_lite0 --recipe cached --frozen-stages 6 --cached-views 2 --epochs 4 "
    f"--image-size {IMAGE_SIZE} --learning-rate 3e-3 --posthoc frozen_gp,unfamiliarity,kernel_vote"
).split()
KNOWN_TO_FIT = 1500
"""Training images for the Mahalanobis distance."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--labels", required=True, help="groups separated by semicolons")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(arguments.labels.split(";")):
        left_out = group.split(",")
        table, run = arguments.out / f"without-{number}.csv", arguments.out / f"run-{number}"
        write_without(arguments.table, left_out, table)
        if not (run / "metrics.json").is_file():
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "kmcl",
                    "train",
                    f"table:{table}",
                    "--output",
                    run,
                    "-o",
                    "allow_outside=true",
                    *OPTIONS,
                ],
                check=True,
            )
        judge(arguments.table, table, left_out, run)


def write_without(source: Path, left_out: list[str], target: Path) -> None:
    """The rows that have none of the labels, without their columns."""
    with source.open(newline="", encoding="utf-8") as file, target.open("w", newline="") as written:
        rows = csv.DictReader(file)
        names = [name for name in rows.fieldnames or () if name not in left_out]
        writer = csv.DictWriter(written, names, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            if all(row[label] == "0" for label in left_out):
                writer.writerow(row | {"image": (source.parent / row["image"]).resolve()})


def judge(source: Path, table: Path, left_out: list[str], run: Path) -> None:
    predictor = load_in_torch(run)
    predictor.classifier = fold_batch_norms(predictor.classifier)

    def images(files: list[Path], most: int | None = None) -> Iterator[Pixels]:
        return decoded(files, len(files) if most is None else most, IMAGE_SIZE)

    gaussian = fit_gaussian(predictor, images(files_in(table, "train"), KNOWN_TO_FIT))
    found = {"known": score_all(predictor, gaussian, images(files_in(table, "test")))}
    for label in left_out:
        found[label] = score_all(predictor, gaussian, images(files_with(str(source), label, "test")))
    print_table(found)


def files_in(table: Path, split: str) -> list[Path]:
    with table.open(newline="", encoding="utf-8") as file:
        return [Path(row["image"]) for row in csv.DictReader(file) if row["split"] == split]


if __name__ == "__main__":
    main()
