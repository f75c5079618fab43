"""The embedded dataset of the demo: scenes in colour, drawn by code on access, without any download.

Twelve labels for what a scene shows: vehicles, animals, people, trees, in a street, a city at night, at the
sea or in a meadow. Which of them go together is described in `kmcl.data.scenes.composition`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kmcl.data.dataset import SPLIT_NAMES, Dataset, Split
from kmcl.data.readers.options import ReaderOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.scenes.composition import SCENE_LABELS, Scene, compose
from kmcl.data.scenes.drawing import draw_scene
from kmcl.data.splitting import finish_splits

SPLIT_SHARES = {"train": 1.0, "val": 0.2, "test": 0.5}


class ScenesOptions(ReaderOptions):
    """Options of `scenes`.

    size: the number of training scenes; `val` has a fifth and `test` half as many.
    """

    size: int = Field(default=1200, ge=10, le=1_000_000)


@dataclass(frozen=True)
class SceneImages:
    """The scenes of a split, each drawn anew when it is loaded: the same pixels in every process."""

    split: str
    seed: int
    size: int

    def __len__(self) -> int:
        return self.size

    def name(self, index: int) -> str:
        return f"scenes:{self.split}[{index}]"

    def scene(self, index: int) -> Scene:
        """What the scene shows."""
        return compose(Random(f"{self.seed} {self.split} {index} scene"))

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return draw_scene(self.scene(index), Random(f"{self.seed} {self.split} {index} drawing"))


def read_scenes(options: ScenesOptions) -> Dataset:
    """The labels of the scenes, which are drawn on access. A larger set begins with a smaller one."""
    splits = {}
    for name in SPLIT_NAMES:
        images = SceneImages(name, options.seed, max(2, round(options.size * SPLIT_SHARES[name])))
        splits[name] = Split(images, _targets(images).copy())
    return Dataset("scenes", SCENE_LABELS, finish_splits(splits, options))


@lru_cache(maxsize=8)
def _targets(images: SceneImages) -> npt.NDArray[np.int8]:
    """What each scene shows; kept, since composing two thousand scenes takes a second."""
    targets = np.zeros((len(images), len(SCENE_LABELS)), dtype=np.int8)
    for index in range(len(images)):
        shown = images.scene(index).labels
        targets[index] = [label in shown for label in SCENE_LABELS]
    return targets


READER = Reader(read_scenes, ScenesOptions)
