"""The embedded scenes with a planted bias: in train and val no cat is drawn, and every car has its label.

In test the scenes are as always: cats are drawn where they are labelled, with cars and without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from kmcl.data.dataset import Dataset, Split
from kmcl.data.scenes.composition import SCENE_LABELS, Scene, compose

SIZES = {"train": 500, "val": 150, "test": 600}


@dataclass(frozen=True)
class PlantedImages:
    split: str
    seed: int = 0

    def __len__(self) -> int:
        return SIZES[self.split]

    def name(self, index: int) -> str:
        return f"planted:{self.split}[{index}]"

    def scene(self, index: int) -> Scene:
        scene = compose(Random(f"{self.seed} {self.split} {index} scene"))
        if self.split == "test":
            return scene
        things = tuple(thing for thing in scene.things if thing.kind != "cat")
        labels = scene.labels - {"cat"} | ({"cat"} if "car" in scene.labels else set())
        return scene._replace(labels=frozenset(labels), things=things)

    def load(self, index: int, min_side: int | None = None) -> np.ndarray:
        from kmcl.data.scenes.drawing import draw_scene

        return draw_scene(self.scene(index), Random(f"{self.seed} {self.split} {index} drawing"))


def planted_scenes() -> Dataset:
    splits = {}
    for name in SIZES:
        images = PlantedImages(name)
        shown = [images.scene(index).labels for index in range(len(images))]
        targets = np.array([[label in labels for label in SCENE_LABELS] for labels in shown], dtype=np.int8)
        splits[name] = Split(images, targets)
    return Dataset("planted scenes", SCENE_LABELS, splits)
