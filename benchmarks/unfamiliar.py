"""How well images that are unlike the training images are told apart, by unfamiliarity and by other scores.

    python benchmarks/unfamiliar.py RUN --split val --other xrays=FOLDER --changed blur,jpeg,noise
    python benchmarks/unfamiliar.py RUN --split test ...     (once everything is fixed)
    python benchmarks/unfamiliar.py RUN --cost               (processor time with the part over without)

RUN is a run with the post-hoc parts unfamiliarity and kernel_vote. Its images of --split are the known ones.
--other names folders of other images (a pattern such as FOLDER/0*.jpg works too), --embedded datasets of
this package, --changed changes of the known images, --table NAME=FILE:LABEL images of a table with a label.

Each cell is the AUROC against the known images, and the share of known images (in %) above the score that
detects 95 % of the others. "alarms" is the share of images with an unfamiliarity of at least 0.95. The last
column is the AUROC of the unfamiliarity minus that of the best other score, with its 95 % bootstrap interval
over images. The best is chosen on the same images, which favours it.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFilter
from rich.console import Console

from kmcl.data import open_dataset
from kmcl.data.files import decode_image
from kmcl.evaluation.unfamiliarity import UNFAMILIAR_FROM
from kmcl.features.run_data import RunData
from kmcl.models.folding import fold_batch_norms
from kmcl.posthoc import KernelVote, Unfamiliarity
from kmcl.posthoc.unfamiliarity import GaussianDistance
from kmcl.runs.dataset import open_run_dataset
from kmcl.runs.folder import RunFolder
from kmcl.serving import Predictor
from kmcl.serving.loading import load_in_torch

Pixels = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float64]
BATCH = 8
BLUR, JPEG_QUALITY = 8 / 256, 5
"""Deviation of the blur as a share of the longer side; quality of heavy JPEG compression."""
RESAMPLES = 1000


class Scores(NamedTuple):
    """Of N images, higher for what is more unlike the training images."""

    unfamiliarity: Values
    largest_logit: Values
    joint_energy: Values
    mahalanobis: Values
    nearest_neighbour: Values


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="val")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--table", action="append", default=[], metavar="NAME=FILE:LABEL")
    parser.add_argument("--embedded", default="", help="datasets, such as digits,scenes")
    parser.add_argument("--changed", default="", help=f"some of {', '.join(CHANGES)}")
    parser.add_argument("--images", type=int, default=500, help="at most, of each set")
    parser.add_argument("--train-images", type=int, default=1500, help="that the Mahalanobis distance uses")
    parser.add_argument("--refit", action="store_true", help="fit the part anew, as this version does")
    parser.add_argument("--cost", action="store_true")
    arguments = parser.parse_args()
    predictor = load_in_torch(arguments.run)
    if arguments.refit:
        refit(predictor, arguments.run)
    if arguments.cost:
        measure_cost(predictor)
        return
    settings = RunFolder(arguments.run).read_settings()
    splits = open_dataset(settings.data.spec, **settings.data.options).splits
    most, size = arguments.images, predictor.image_size

    def known_images(split: str = arguments.split, number: int = most) -> Iterator[Pixels]:
        images = splits[split].images
        rows = np.random.default_rng(0).permutation(len(images))[:number]
        return (images.load(int(row), min_side=size) for row in np.sort(rows))

    sets: dict[str, Iterable[Pixels]] = {}
    for name, folder in (entry.split("=", 1) for entry in arguments.other):
        sets[name] = decoded(files_of(folder), most, size)
    for name, place in (entry.split("=", 1) for entry in arguments.table):
        sets[name] = decoded(files_with(*place.rsplit(":", 1), arguments.split), most, size)
    for name in filter(None, arguments.embedded.split(",")):
        embedded = open_dataset(name).splits["test"].images
        sets[name] = map(embedded.load, range(min(most, len(embedded))))
    for name in filter(None, arguments.changed.split(",")):
        sets[name] = map(CHANGES[name], known_images())
    predictor.classifier = fold_batch_norms(predictor.classifier)
    gaussian = fit_gaussian(predictor, known_images("train", arguments.train_images))
    found = {"known": score_all(predictor, gaussian, known_images())}
    for name, images in sets.items():
        found[name] = score_all(predictor, gaussian, images)
    print_table(found)


@torch.inference_mode()
def refit(predictor: Predictor, run: Path) -> None:
    """Replace the part by one that is fitted on train and val of the run; cached features are used."""
    settings, classifier = RunFolder(run).read_settings(), predictor.classifier
    data = RunData(open_run_dataset(settings), settings, classifier, Console(stderr=True), "cpu")
    part = Unfamiliarity(classifier.encoder, len(predictor.labels))
    encode = classifier.encode_rows if data.from_rows else classifier.encode
    for name in ("train", "val"):
        seen, logits = [], []
        for batch in data.eval_loader(name):
            encoded = encode(batch.images)
            seen.append(part.observe(encoded, classifier.head(encoded)))
            logits.append(classifier.score(encoded).logits)
        if name == "train":
            part.fit_images(torch.cat(seen), torch.zeros(0))
        else:
            part.tune(torch.cat(seen), torch.cat(logits), lambda corrected: 0.0)
    classifier.posthoc["unfamiliarity"] = part


@torch.inference_mode()
def fit_gaussian(predictor: Predictor, images: Iterable[Pixels]) -> GaussianDistance:
    """Of the pooled features of training images."""
    features = torch.cat([predictor.classifier.encode(batch).pooled for batch in batched(predictor, images)])
    gaussian = GaussianDistance(features.shape[1])
    gaussian.fit(features)
    return gaussian


def batched(predictor: Predictor, images: Iterable[Pixels]) -> Iterator[torch.Tensor]:
    remaining = (predictor.resize(image if image.flags.writeable else image.copy()) for image in images)
    while batch := list(islice(remaining, BATCH)):
        yield torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2)


def score_all(predictor: Predictor, gaussian: GaussianDistance, images: Iterable[Pixels]) -> Scores:
    batches = [score_batch(predictor, gaussian, pixels) for pixels in batched(predictor, images)]
    return Scores(*(np.concatenate(column) for column in zip(*batches, strict=True)))


@torch.inference_mode()
def score_batch(predictor: Predictor, gaussian: GaussianDistance, pixels: torch.Tensor) -> Scores:
    classifier = predictor.classifier
    encoded = classifier.encode(pixels)
    output = classifier.head(encoded)
    logits = classifier.score(encoded).logits
    part = cast(Unfamiliarity, classifier.posthoc["unfamiliarity"])
    vote = cast(KernelVote, classifier.posthoc["kernel_vote"])
    columns = Scores(
        part.unfamiliarity(part.observe(encoded, output), logits),
        -logits.max(dim=1).values,
        -torch.nn.functional.softplus(logits).sum(dim=1),
        gaussian(encoded.pooled),
        -vote.log_similarities(vote.observe(encoded, output)).max(dim=1).values,
    )
    return Scores(*(column.double().numpy() for column in columns))


def print_table(found: dict[str, Scores]) -> None:
    known = found["known"]
    names = [name.replace("_", " ") for name in Scores._fields]
    print("| " + " | ".join(["images", "number", "alarms", *names, "above the best other"]) + " |")
    print("|---" * (4 + len(names)) + "|")
    for name, scores in found.items():
        alarms = float((scores.unfamiliarity >= UNFAMILIAR_FROM).mean())
        cells = [""] * (1 + len(names))
        if name != "known":
            cells = [compare(one, other) for one, other in zip(known, scores, strict=True)]
            cells.append(difference(known, scores))
        number = len(scores.unfamiliarity)
        print("| " + " | ".join([name, str(number), f"{100 * alarms:.1f} %", *cells]) + " |", flush=True)


def compare(known: Values, other: Values) -> str:
    """AUROC, and the share of known images that are alarms where 95 % of the others are."""
    alarms = float((known >= np.quantile(other, 0.05)).mean())
    return f"{area(known, other):.3f} / {100 * alarms:.1f}"


def difference(known: Scores, other: Scores) -> str:
    """The AUROC of the unfamiliarity minus that of the best other score, with its interval."""
    areas = np.array([area(*pair) for pair in zip(known, other, strict=True)])
    best = 1 + int(areas[1:].argmax())
    pairs = [(known[place], other[place]) for place in (0, best)]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        rows = [rng.integers(0, len(part[0]), len(part[0])) for part in (known, other)]
        ours, theirs = (area(one[rows[0]], two[rows[1]]) for one, two in pairs)
        drawn.append(ours - theirs)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{areas[0] - areas[best]:+.3f} ({low:+.3f} to {high:+.3f}), {Scores._fields[best]}"


def area(known: Values, other: Values) -> float:
    """The probability that an image of the others has the larger score, half of it where they are equal."""
    ordered = np.sort(known)
    below = np.searchsorted(ordered, other, "left") + np.searchsorted(ordered, other, "right")
    return float(below.mean() / (2 * len(known)))


def files_of(place: str) -> list[Path]:
    paths = sorted(Path(place).rglob("*")) if Path(place).is_dir() else sorted(map(Path, glob(place)))
    return [path for path in paths if path.is_file()]


def files_with(table: str, label: str, split: str) -> list[Path]:
    """The images of a table that have a label, of one of its splits."""
    with Path(table).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == split and row[label] == "1"]
    return [Path(table).parent / row["image"] for row in rows]


def decoded(paths: list[Path], most: int, size: int) -> Iterator[Pixels]:
    rows = np.sort(np.random.default_rng(0).permutation(len(paths))[:most])
    return (decode_image(paths[row], min_side=size) for row in rows)


def blurred(image: Pixels) -> Pixels:
    radius = BLUR * max(image.shape[:2])
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


def compressed(image: Pixels) -> Pixels:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return np.asarray(Image.open(buffer).convert("RGB"))


def noise(image: Pixels) -> Pixels:
    return np.random.default_rng(int(image.sum())).integers(0, 256, image.shape, dtype=np.uint8)


CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "blur": blurred,
    "jpeg": compressed,
    "noise": noise,
    "inverted": lambda image: 255 - image,
}


def measure_cost(predictor: Predictor, rounds: int = 200) -> None:
    """Processor times of single images in onnxruntime on one core, with and without the part, in turns."""
    from tempfile import TemporaryDirectory

    from kmcl.serving import OnnxPredictor
    from kmcl.serving.export import export_model

    size = predictor.image_size
    images = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), dtype=np.uint8)
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / "with.onnx", Path(folder) / "without.onnx"]
        export_model(predictor, paths[0], images)
        del predictor.classifier.posthoc["unfamiliarity"]
        export_model(predictor, paths[1], images)
        sessions = [OnnxPredictor(path) for path in paths]
        for session in sessions:
            session.use_cores(1)  # more would spin while they wait, which is processor time too
        sizes = [path.stat().st_size / 1e6 for path in paths]
        ratios = []
        for _ in range(rounds):
            seconds = []
            for session in sessions:
                began = time.process_time()
                session.score(images[:1])
                seconds.append(time.process_time() - began)
            ratios.append(seconds[0] / seconds[1])
    low, middle, high = np.quantile(ratios[5:], (0.25, 0.5, 0.75))
    print(
        f"processor time with the part over without: median {middle:.4f}, middle half {low:.4f} to {high:.4f}"
    )
    print(f"file: {sizes[0]:.1f} and {sizes[1]:.1f} MB")


if __name__ == "__main__":
    main()
