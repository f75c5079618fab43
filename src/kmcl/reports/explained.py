"""Images with the heat of their predicted labels: chosen, computed, and shown as a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from PIL import Image

from kmcl.data.augmentation import resize
from kmcl.data.files import decode_image
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import Decisions, LabelRules, Reals
from kmcl.evaluation.ranking import Values
from kmcl.explain.saliency import enlarge, label_heat
from kmcl.models.classifier import Classifier
from kmcl.reports.run_parts import RunParts

SHOWN_SIDE = 256
EXPLAINED_SIDE = 448
"""Pixels of the shorter side of a picture that is explained by itself."""

MOST_LABELS = 5

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class NamedImage:
    """truth: the labels it has, None where they are unknown.

    shown: the picture at the size at which it is shown; None: that of a thumbnail
    """

    name: str
    pixels: Pixels
    truth: tuple[str, ...] | None
    shown: Pixels | None = None

    @property
    def picture(self) -> Pixels:
        return self.pixels if self.shown is None else self.shown


@dataclass(frozen=True)
class LabelHeat:
    """One label of one image by one run, as `LabelRules.decide` has it.

    heat: 0 to 1 at the size of the shown image
    """

    label: str
    probability: float
    threshold: float
    present: bool
    heat: Values


@dataclass(frozen=True)
class ExplainedImage:
    """of_runs: for each run, in order, the same labels."""

    image: NamedImage
    of_runs: tuple[tuple[LabelHeat, ...], ...]


def read_images(paths: Sequence[Path], full_size: bool | None = None) -> list[NamedImage]:
    """The images of files; with `full_size`, to be shown large: at EXPLAINED_SIDE (False) or unchanged."""
    if full_size is None:
        return [NamedImage(str(path), decode_image(path, min_side=SHOWN_SIDE), None) for path in paths]
    images = []
    for path in paths:
        pixels = decode_image(path, min_side=None if full_size else EXPLAINED_SIDE)
        shown = pixels if full_size else _with_side(pixels, EXPLAINED_SIDE)
        images.append(NamedImage(str(path), pixels, None, shown))
    return images


def _with_side(pixels: Pixels, side: int) -> Pixels:
    """The image with a shorter side of `side` pixels; a small one is enlarged without smoothing."""
    image = Image.fromarray(pixels)
    scale = side / min(image.size)
    kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    return np.asarray(image.resize((round(image.width * scale), round(image.height * scale)), kind))


def random_images(run: RunParts, count: int, seed: int) -> list[NamedImage]:
    """Random images of the reported split; fewer where some cannot be read."""
    predictions = run.predictions
    if predictions is None or run.images is None:
        return []
    order = np.random.default_rng(seed).permutation(len(predictions))
    return _load(run, [int(row) for row in order], count)


def disagreements(first: RunParts, second: RunParts, count: int) -> list[NamedImage]:
    """The images whose scores differ most between two runs, by the label that differs most."""
    one, other = first.predictions, second.predictions
    if one is None or other is None or one.labels != other.labels or one.names != other.names:
        return []
    gaps = np.abs(one.scores - other.scores).max(axis=1)
    return _load(first, [int(row) for row in np.argsort(-gaps, kind="stable")], count)


def explain(
    classifiers: Sequence[Classifier],
    rules: Sequence[LabelRules],
    images: Sequence[NamedImage],
    wanted: Sequence[str] = (),
) -> list[ExplainedImage]:
    """Heat of the labels that any run predicts for an image, the five highest; or of the `wanted` labels.

    rules: of each classifier, all with the same labels

    If no run predicts any label, the one nearest to its threshold.
    """
    labels = rules[0].labels
    for name in wanted:
        if name not in labels:
            raise InputError(f"the model has no label {name!r}; its labels are {', '.join(labels)}")
    sized = [
        np.stack([resize(image.pixels, *[classifier.encoder.input_size] * 2) for image in images])
        for classifier in classifiers
    ]
    decisions = [
        of_run.decide(*_scored(classifier, of_run, pixels))
        for classifier, of_run, pixels in zip(classifiers, rules, sized, strict=True)
    ]
    fixed = [labels.index(name) for name in wanted]
    chosen = [fixed or choose_labels(decisions, row) for row in range(len(images))]
    rows = [row for row, members in enumerate(chosen) for _ in members]
    flat = [label for members in chosen for label in members]
    heats = [
        label_heat(classifier, pixels, rows, flat)
        for classifier, pixels in zip(classifiers, sized, strict=True)
    ]
    explained: list[list[list[LabelHeat]]] = [[[] for _ in classifiers] for _ in images]
    for pair, (row, label) in enumerate(zip(rows, flat, strict=True)):
        height, width = images[row].picture.shape[:2]
        for run, heat in enumerate(heats):
            explained[row][run].append(
                LabelHeat(
                    labels[label],
                    float(decisions[run].probabilities[row, label]),
                    float(decisions[run].thresholds[label]),
                    bool(decisions[run].present[row, label]),
                    enlarge(heat[pair], height, width),
                )
            )
    return [
        ExplainedImage(image, tuple(tuple(of_run) for of_run in of_image))
        for image, of_image in zip(images, explained, strict=True)
    ]


def choose_labels(of_runs: Sequence[Decisions], row: int) -> list[int]:
    """Labels of an image that any run predicts, by their largest margin; else the nearest one."""
    margins = np.max([found.probabilities[row] - found.thresholds for found in of_runs], axis=0)
    present = np.any([found.present[row] for found in of_runs], axis=0)
    order = [int(label) for label in np.argsort(-margins, kind="stable")]
    return [label for label in order if present[label]][:MOST_LABELS] or order[:1]


def overlay(pixels: Pixels, heat: Values) -> Pixels:
    """The image overlaid with its heat: the hotter, the more opaque."""
    colours = colormaps["inferno"](heat)[..., :3]
    opacity = (0.15 + 0.6 * heat)[..., None]
    mixed = (1 - opacity) * pixels / 255 + opacity * colours
    return np.asarray(np.rint(255 * mixed), dtype=np.uint8)


def _scored(classifier: Classifier, rules: LabelRules, pixels: Pixels) -> tuple[Reals, Values]:
    """The scores of images, and their calibrated probabilities."""
    with torch.inference_mode():
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        output = classifier(images.to(next(classifier.parameters()).device))
    scores = output.probabilities.float().cpu().numpy()
    return scores, rules.calibrate(output.logits.double().cpu().numpy())


def _load(run: RunParts, rows: Sequence[int], count: int) -> list[NamedImage]:
    predictions = run.predictions
    images: list[NamedImage] = []
    for row in rows if predictions is not None else ():
        if len(images) == count or predictions is None:
            break
        pixels = run.load_image(predictions.names[row], SHOWN_SIDE)
        if pixels is not None:
            carried = np.flatnonzero(predictions.targets[row] == 1)
            truth = tuple(predictions.labels[label] for label in carried)
            images.append(NamedImage(predictions.names[row], pixels, truth))
    return images
