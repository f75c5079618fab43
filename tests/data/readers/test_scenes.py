"""The drawn scenes: labels that go together, things that can be seen, one seed one set of pixels."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import time
from random import Random

import numpy as np
import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.scenes.composition import (
    CHANCES,
    MOST_HIDDEN,
    MOST_LABELS,
    SCENE_LABELS,
    SHAPES,
    Scene,
    compose,
)
from kmcl.data.scenes.drawing import DRAWINGS, SIDE, draw_scene

NUM_COMPOSED = 1500


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return open_dataset("scenes", size=300)


@pytest.fixture(scope="module")
def composed() -> list[Scene]:
    rng = Random(0)
    return [compose(rng) for _ in range(NUM_COMPOSED)]


def test_shapes_labels_and_sizes(dataset: Dataset) -> None:
    assert dataset.labels == SCENE_LABELS
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sizes == {"train": 300, "val": 60, "test": 150}
    train = dataset.splits["train"]
    assert train.targets.shape == (300, 12)
    assert set(train.targets.sum(axis=1).tolist()) == set(range(1, MOST_LABELS + 1))
    image = train.images.load(5)
    assert (image.shape, image.dtype) == ((SIDE, SIDE, 3), np.uint8)
    assert image.flags.writeable
    assert image.std() > 10


def test_labels_go_together_by_place_and_by_rule(composed: list[Scene]) -> None:
    targets = np.array([[label in scene.labels for label in SCENE_LABELS] for scene in composed])
    share = targets.mean(axis=0)
    assert (share > 0.08).all()
    assert (share < 0.5).all()

    def lift(first: str, second: str) -> float:
        a, b = SCENE_LABELS.index(first), SCENE_LABELS.index(second)
        return float((targets[:, a] & targets[:, b]).mean() / (share[a] * share[b]))

    for pair in (
        ("traffic light", "car"),
        ("boat", "bird"),
        ("umbrella", "person"),
        ("bus", "traffic light"),
    ):
        assert lift(*pair) > 1.3, pair
    for pair in (("cat", "dog"), ("boat", "car"), ("boat", "traffic light"), ("boat", "cat")):
        assert lift(*pair) == 0, pair
    for scene in composed:
        assert scene.labels <= {*CHANCES[scene.place], "person"}
        assert scene.place == "sea" or "umbrella" not in scene.labels or "person" in scene.labels


def test_every_label_is_shown_by_a_thing_and_no_other_is(composed: list[Scene]) -> None:
    for scene in composed:
        shown = {thing.kind for thing in scene.things} & set(SCENE_LABELS)
        shown |= {"umbrella"} if any(thing.has_umbrella for thing in scene.things) else set()
        assert shown == scene.labels


def test_things_lie_in_the_picture_and_are_seldom_hidden(composed: list[Scene]) -> None:
    hidden = []
    for scene in composed:
        for place, thing in enumerate(scene.things):
            half = thing.height * SHAPES[thing.kind].aspect / 2
            assert 0.6 * half <= thing.x <= 1 - 0.6 * half or half > 0.8
            assert 0 < thing.foot - 0.2 * thing.height < 1
            if thing.kind in SCENE_LABELS:
                nearer = scene.things[place + 1 :]
                hidden.append(max((thing.hidden_by(other) for other in nearer), default=0.0))
    assert np.mean(np.array(hidden) > MOST_HIDDEN) < 0.05
    assert np.mean(np.array(hidden) > 0.05) > 0.1


@pytest.mark.parametrize("kind", SCENE_LABELS)
def test_a_thing_changes_the_pixels_where_it_stands(composed: list[Scene], kind: str) -> None:
    """The same scene with and without it, drawn with the same random numbers."""
    assert kind in DRAWINGS
    scene = next(scene for scene in composed if scene.things[-1].kind == kind)
    thing = scene.things[-1]
    bare = scene._replace(things=scene.things[:-1])
    images = [draw_scene(one, Random(3)).astype(int) for one in (scene, bare)]
    difference = np.abs(images[0] - images[1]).mean(axis=2)
    half = thing.height * SHAPES[kind].aspect / 2
    rows = slice(max(0, int(SIDE * (thing.foot - thing.height))), int(SIDE * thing.foot))
    columns = slice(max(0, int(SIDE * (thing.x - half))), int(SIDE * (thing.x + half)))
    assert difference[rows, columns].mean() > difference.mean() + 5


def test_seed_decides_and_more_scenes_continue_the_fewer(dataset: Dataset) -> None:
    smaller = open_dataset("scenes", size=30).splits["train"]
    other = open_dataset("scenes", size=30, seed=1).splits["train"]
    train = dataset.splits["train"]
    assert np.array_equal(smaller.targets, train.targets[:30])
    assert np.array_equal(smaller.images.load(29), train.images.load(29))
    assert not np.array_equal(other.targets, smaller.targets)
    assert not np.array_equal(train.targets[:100], dataset.splits["test"].targets[:100])


def test_a_dataset_has_targets_of_its_own(dataset: Dataset) -> None:
    again = open_dataset("scenes", size=300)
    again.splits["val"].targets[:] = -1
    assert (open_dataset("scenes", size=300).splits["val"].targets == dataset.splits["val"].targets).all()
    assert dataset.splits["val"].targets.min() == 0


def test_pixels_are_the_same_in_another_process(dataset: Dataset) -> None:
    images = dataset.splits["test"].images
    code = (
        "import hashlib; from kmcl.data import open_dataset;"
        "images = open_dataset('scenes', size=300).splits['test'].images;"
        "print(hashlib.sha256(images.load(7).tobytes()).hexdigest())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == hashlib.sha256(images.load(7).tobytes()).hexdigest()
    copied = pickle.loads(pickle.dumps(images))
    assert np.array_equal(copied.load(7), images.load(7))


def test_a_thousand_scenes_take_seconds(dataset: Dataset) -> None:
    images = dataset.splits["train"].images
    images.load(0)
    start = time.process_time()
    for index in range(100):
        images.load(index)
    assert time.process_time() - start < 3
