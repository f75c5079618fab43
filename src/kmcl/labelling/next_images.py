"""Which images of a folder to label next, for a trained model."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from kmcl.data import Dataset, Split
from kmcl.data.files import ImageFiles
from kmcl.encoders import EncoderFeatures
from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values
from kmcl.labelling.image_features import FeatureExtractor, Floats, ImageFeatures
from kmcl.labelling.strategies import STRATEGIES, Candidates, entropies, variances_given_labelled
from kmcl.serving.predictor import Predictor


@dataclass(frozen=True)
class ChosenImage:
    """An image to label.

    probabilities, present: L, of the model
    uncertainty:   sum of the entropies of its labels, in nats
    unfamiliarity: how unlike the training images it is; None for a model without that part
    novelty:       what the labelled images leave open about it, from 0 to 1: its posterior variance
    """

    path: Path
    probabilities: Values
    present: npt.NDArray[np.bool_]
    uncertainty: float
    unfamiliarity: float | None
    novelty: float


@dataclass(frozen=True)
class Chosen:
    """images:     the most wanted first
    unreadable: why images could not be read
    """

    images: tuple[ChosenImage, ...]
    unreadable: tuple[str, ...]


def choose_images(
    predictor: Predictor,
    paths: Sequence[Path],
    labelled: Dataset | None,
    count: int,
    strategy: str,
    console: Console,
    seed: int = 0,
) -> Chosen:
    """Choose `count` of the images.

    labelled: what the model was trained on; None where it is not known, and then all images count as new
    """
    split = _unlabelled(predictor, paths, labelled)
    extractor = FeatureExtractor(predictor.classifier, console)
    outputs: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def score(encoded: EncoderFeatures) -> None:
        output = predictor.classifier.score(encoded)
        unfamiliarity = None if output.unfamiliarity is None else output.unfamiliarity.float().cpu()
        outputs.append((output.logits.float().cpu(), output.probabilities.float().cpu(), unfamiliarity))

    features = extractor.describe(split, "the images", score)
    probabilities = predictor.rules.calibrate(torch.cat([logits for logits, _, _ in outputs]).numpy())
    scores = torch.cat([scores for _, scores, _ in outputs]).numpy()
    found = [one for _, _, one in outputs if one is not None]
    unfamiliarity = torch.cat(found).numpy() if found else None
    known = _labelled_directions(extractor, features, labelled)
    candidates = Candidates(probabilities, features.directions, known)
    order = STRATEGIES[strategy](candidates, count, np.random.default_rng(seed))
    present = predictor.rules.present(scores)
    novelty, _ = variances_given_labelled(candidates)
    images = [
        ChosenImage(
            path=Path(split.images.name(int(features.rows[place]))),
            probabilities=probabilities[place],
            present=present[place],
            uncertainty=float(entropies(probabilities[place]).sum()),
            unfamiliarity=None if unfamiliarity is None else float(unfamiliarity[place]),
            novelty=float(novelty[place]),
        )
        for place in order.tolist()
    ]
    return Chosen(tuple(images), tuple(features.unreadable.values()))


def _unlabelled(predictor: Predictor, paths: Sequence[Path], labelled: Dataset | None) -> Split:
    known = set()
    if labelled is not None:
        for split in labelled.splits.values():
            known |= {Path(split.images.name(row)).absolute() for row in range(len(split))}
    new = [str(path.absolute()) for path in paths if path.absolute() not in known]
    if not new:
        raise InputError(f"all {len(paths)} images are in the dataset of the run already")
    targets = np.full((len(new), len(predictor.labels)), -1, dtype=np.int8)
    return Split(ImageFiles(Path("/"), np.array(new)), targets)


def _labelled_directions(
    extractor: FeatureExtractor, features: ImageFeatures, labelled: Dataset | None
) -> Floats:
    if labelled is None:
        return features.directions[:0]
    return features.directions_of(extractor.describe(labelled.splits["train"], "train").statistics)


def chosen_to_csv(chosen: Chosen, labels: Sequence[str]) -> str:
    """One row per image: what the model finds in it, why it was chosen, and all probabilities."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "image", "predicted", "novelty", "uncertainty", "unfamiliarity", *labels])
    for rank, image in enumerate(chosen.images, start=1):
        predicted = "|".join(label for label, there in zip(labels, image.present, strict=True) if there)
        unfamiliarity = "" if image.unfamiliarity is None else f"{image.unfamiliarity:.3f}"
        numbers = [f"{value:.6g}" for value in image.probabilities]
        cells = [predicted, f"{image.novelty:.3f}", f"{image.uncertainty:.3f}", unfamiliarity]
        writer.writerow([rank, image.path, *cells, *numbers])
    return text.getvalue()
