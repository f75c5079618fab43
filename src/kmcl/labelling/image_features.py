"""What an encoder sees in each image: statistics of its feature maps, from the feature cache where it can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from kmcl.data.augmentation import resize
from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader, LoaderSettings, make_eval_loader
from kmcl.data.normalisation import IDENTITY
from kmcl.encoders import Encoder, EncoderFeatures, open_encoder
from kmcl.encoders.stages import statistics_of
from kmcl.encoders.timm_encoder import TimmEncoders
from kmcl.encoders.weights import PACKAGES
from kmcl.errors import InputError
from kmcl.features.store import FeatureCache
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.options import read_options
from kmcl.posthoc.frozen_gp import MainDirections, main_directions
from kmcl.progress import WorkProgress
from kmcl.runs.planning import installed_runtime
from kmcl.runs.recipes import default_frozen_stages

WEIGHTS = "lite0-pypi"
IMAGE_SIZE = 224
ROWS = 64

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ImageFeatures:
    """Of N images that could be read.

    rows:       N places in the split
    statistics: N x S, mean and deviation of each channel of several maps
    widths:     how many of them each map has, in order
    unreadable: place in the split -> why the image could not be read
    """

    rows: npt.NDArray[np.int64]
    statistics: Floats
    widths: tuple[int, ...]
    unreadable: dict[int, str]

    @cached_property
    def main_directions(self) -> MainDirections:
        return main_directions(torch.from_numpy(self.statistics), self.widths)

    @cached_property
    def directions(self) -> Floats:
        """N x D unit vectors: the statistics on their main directions, as `FrozenFeatureGP` compares them."""
        return self.directions_of(self.statistics)

    def directions_of(self, statistics: Floats) -> Floats:
        """The unit vectors of other images."""
        directions: Floats = self.main_directions.unit_vectors(torch.from_numpy(statistics)).numpy()
        return directions


class FeatureExtractor:
    """Describes images by the maps of an encoder: a pretrained one, or that of a trained model.

    The features of frozen stages go through the feature cache, which trainings share.
    """

    def __init__(self, classifier: Classifier, console: Console) -> None:
        if classifier.encoder.num_frozen_stages:
            classifier.encoder = classifier.encoder.with_taps()
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._classifier = classifier.eval().to(self._device)
        self._console = console

    def describe(
        self, split: Split, name: str, on_batch: Callable[[EncoderFeatures], object] | None = None
    ) -> ImageFeatures:
        """The features of every image of a split.

        name:     for messages
        on_batch: called with what the encoder gives for each batch
        """
        loader = self._loader(split, name)
        seen, indices = [], []
        with WorkProgress(self._console, f"maps of {name}", len(split)) as progress, torch.inference_mode():
            progress.start(len(split))
            for batch in loader:
                from_rows = batch.images.dtype == torch.float16
                encode = self._classifier.encode_rows if from_rows else self._classifier.encode
                encoded = encode(batch.images.to(self._device))
                seen.append(torch.cat(_statistics(encoded), dim=1))
                if on_batch is not None:
                    on_batch(encoded)
                indices.append(batch.indices)
                progress.advance(len(batch.indices))
        if not seen:
            reasons = list(loader.bad_images.values())
            raise InputError(f"no image of {name} can be read: {reasons[0] if reasons else 'it is empty'}")
        return ImageFeatures(
            torch.cat(indices).numpy(), torch.cat(seen).numpy(), self._widths, dict(loader.bad_images)
        )

    @torch.inference_mode()
    def describe_pixels(self, images: Sequence[Pixels]) -> Floats:
        """The statistics of images in memory, each height x width x 3."""
        side = self._classifier.encoder.input_size
        described = []
        for start in range(0, len(images), ROWS):
            resized = [resize(image, side, side) for image in images[start : start + ROWS]]
            batch = torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2)
            described.append(torch.cat(_statistics(self._classifier.encode(batch.to(self._device))), dim=1))
        statistics: Floats = torch.cat(described).numpy()
        return statistics

    def _loader(self, split: Split, name: str) -> BatchLoader:
        encoder = self._classifier.encoder
        loading = LoaderSettings(
            batch_size=ROWS, image_size=encoder.input_size, augmentation="none", skip_bad_images=True
        )
        if not encoder.num_frozen_stages or encoder.takes_vectors:
            return make_eval_loader(split, loading)
        runtime = installed_runtime()
        cache = FeatureCache(self._classifier, loading, 1, self._console, self._device, runtime)
        return cache.eval_loader(split, name, ROWS)

    @property
    def _widths(self) -> tuple[int, ...]:
        encoder = self._classifier.encoder
        of_stages = encoder.statistic_widths if encoder.num_frozen_stages else ()
        return (*of_stages, 2 * encoder.spatial_dim)


def pretrained_extractor(
    console: Console, weights: str = WEIGHTS, image_size: int = IMAGE_SIZE
) -> FeatureExtractor:
    """With the weights of a package, none of whose stages has seen the labels."""
    name = PACKAGES[weights].encoder
    encoder = open_encoder(
        name, weights, image_size=image_size, frozen_stages=default_frozen_stages(name, TimmEncoders())
    )
    return _untrained(encoder, console)


def vector_extractor(console: Console, feature_dim: int) -> FeatureExtractor:
    """For data that are feature vectors of so many numbers already."""
    return _untrained(open_encoder(IDENTITY, in_channels=feature_dim, frozen_stages=1), console)


def _untrained(encoder: Encoder, console: Console) -> FeatureExtractor:
    head = find_method("bce").build_head(encoder, 1, read_options({"name": "bce"}).for_model())
    return FeatureExtractor(Classifier(encoder, head), console)  # whose head is not used


def _statistics(encoded: EncoderFeatures) -> list[Tensor]:
    of_stages = () if encoded.taps is None else encoded.taps.statistics
    return [statistics.float().cpu() for statistics in (*of_stages, statistics_of(encoded.spatial))]
