"""What a scene shows: its place, the labels that occur there together, and where each thing stands.

Labels go together through their places, and directly:

    by place    boat and parasol at the sea, traffic light, car and bus in the city, tree in the meadow
    together    an umbrella in town or meadow has a person under it; rain brings umbrellas, people bring dogs
    exclusive   cat and dog; boat and what belongs in traffic

The nearer a thing, the lower it stands in the picture and the larger it is; nearer things hide a part of
farther ones.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

SCENE_LABELS = (
    *("airplane", "bicycle", "bird", "boat", "bus", "car"),
    *("cat", "dog", "person", "traffic light", "tree", "umbrella"),
)

PLACE_WEIGHTS = {"street": 0.3, "night": 0.18, "sea": 0.24, "meadow": 0.28}
RAIN = 0.15

CHANCES = {
    "street": {
        **{"car": 0.5, "bus": 0.26, "bicycle": 0.24, "person": 0.32, "traffic light": 0.36, "tree": 0.25},
        **{"dog": 0.14, "cat": 0.1, "bird": 0.12, "airplane": 0.1, "umbrella": 0.08},
    },
    "night": {
        **{"car": 0.5, "bus": 0.26, "bicycle": 0.12, "person": 0.28, "traffic light": 0.45, "tree": 0.1},
        **{"dog": 0.06, "cat": 0.22, "umbrella": 0.14, "airplane": 0.06},
    },
    "sea": {
        **{"boat": 0.75, "bird": 0.4, "airplane": 0.16, "person": 0.26, "umbrella": 0.3, "tree": 0.14},
        **{"dog": 0.16, "bicycle": 0.08},
    },
    "meadow": {
        **{"tree": 0.55, "dog": 0.26, "cat": 0.22, "bird": 0.3, "person": 0.28, "bicycle": 0.24},
        **{"airplane": 0.18, "car": 0.1, "umbrella": 0.08, "bus": 0.04},
    },
}
"""How likely a label is in each place, before the rules of `_draw_labels`; not listed is never."""

MOST_LABELS = 5
RAIN_FOR_UMBRELLAS = 4.0
PERSON_FOR_DOGS = 1.8
MOST_OF_A_KIND = {"car": 3, "bird": 3, "tree": 3, "person": 2, "boat": 2, "bicycle": 2}


class Shape(NamedTuple):
    """Range of heights in fractions of the picture, width over height, height relative to a person's."""

    smallest: float
    largest: float
    aspect: float
    of_person: float = 1.0


SHAPES = {
    "airplane": Shape(0.08, 0.24, 2.4),
    "bicycle": Shape(0.13, 0.34, 1.8, 0.62),
    "bird": Shape(0.07, 0.18, 1.5, 0.3),
    "boat": Shape(0.13, 0.42, 1.5, 3.0),
    "bus": Shape(0.18, 0.38, 2.3, 1.5),
    "car": Shape(0.11, 0.3, 2.2, 0.75),
    "cat": Shape(0.11, 0.28, 1.2, 0.36),
    "dog": Shape(0.11, 0.3, 1.7, 0.45),
    "person": Shape(0.17, 0.5, 0.4),
    "traffic light": Shape(0.3, 0.7, 0.3, 1.9),
    "tree": Shape(0.24, 0.62, 0.9, 2.2),
    "umbrella": Shape(0.18, 0.36, 1.3, 1.2),
    # without a label
    "bush": Shape(0.06, 0.18, 2.0, 0.5),
    "lamp": Shape(0.4, 0.8, 0.2, 2.4),
    "fence": Shape(0.08, 0.16, 3.6, 0.5),
    "bench": Shape(0.08, 0.16, 1.9, 0.45),
    "rock": Shape(0.04, 0.14, 1.7, 0.35),
    "buoy": Shape(0.04, 0.1, 0.8, 1.2),
}
UNLABELLED = {
    "street": ("lamp", "bench", "bush", "fence"),
    "night": ("lamp", "bench", "bush"),
    "sea": ("rock", "buoy", "rock"),
    "meadow": ("bush", "fence", "rock", "bench"),
}
IN_THE_AIR, ON_WATER = ("airplane", "bird"), ("boat", "buoy")
MOST_HIDDEN = 0.5
MOST_OUTSIDE = 0.2


class Thing(NamedTuple):
    """x and foot: where it stands, in fractions of the picture from its top left; flies: is in the air."""

    kind: str
    x: float
    foot: float
    height: float
    mirrored: bool
    flies: bool = False
    has_umbrella: bool = False

    def hidden_by(self, nearer: Thing) -> float:
        """The share of its box that another one's covers."""
        width, other = (one.height * SHAPES[one.kind].aspect for one in (self, nearer))
        across = min(self.x + width / 2, nearer.x + other / 2) - max(self.x - width / 2, nearer.x - other / 2)
        down = min(self.foot, nearer.foot) - max(self.foot - self.height, nearer.foot - nearer.height)
        return max(across, 0) * max(down, 0) / (width * self.height)


class Scene(NamedTuple):
    """things: the farthest first, as they are drawn."""

    place: str
    is_rainy: bool
    horizon: float
    shore: float
    labels: frozenset[str]
    things: tuple[Thing, ...]


def compose(rng: Random) -> Scene:
    """A random scene."""
    place = rng.choices(list(PLACE_WEIGHTS), list(PLACE_WEIGHTS.values()))[0]
    is_rainy = rng.random() < RAIN
    horizon = rng.uniform(0.3, 0.5)
    shore = rng.uniform(0.68, 0.9) if place == "sea" else 1.0
    labels = _draw_labels(rng, place, is_rainy)
    view = _View(place, horizon, shore, rng.uniform(0.8, 1.25))
    things: list[Thing] = []
    for label in sorted(labels):
        if label == "umbrella" and place != "sea":
            continue  # a person carries it
        for number in range(rng.randint(1, MOST_OF_A_KIND.get(label, 1))):
            carried = label == "person" and number == 0 and place != "sea" and "umbrella" in labels
            things.append(_put(rng, label, view, things)._replace(has_umbrella=carried))
    for _ in range(rng.choice((0, 1, 1, 2))):
        things.append(_put(rng, rng.choice(UNLABELLED[place]), view, things))
    things.sort(key=lambda thing: (not thing.flies, thing.foot))
    return Scene(place, is_rainy, horizon, shore, frozenset(labels), tuple(things))


def _draw_labels(rng: Random, place: str, is_rainy: bool) -> set[str]:
    chances = dict(CHANCES[place])
    if is_rainy:
        chances["umbrella"] = min(0.7, RAIN_FOR_UMBRELLAS * chances["umbrella"])
    labels: set[str] = set()
    order = rng.sample(sorted(chances), len(chances))
    while not labels:
        for label in order:
            chance = chances[label]
            if label == "dog" and "person" in labels:
                chance *= PERSON_FOR_DOGS
            if {label, *labels} >= {"cat", "dog"} or len(labels) >= MOST_LABELS - 1:
                continue
            if rng.random() < chance:
                labels.add(label)
    if "umbrella" in labels and place != "sea":
        labels.add("person")
    return labels


class _View(NamedTuple):
    """zoom: how fast things grow towards the viewer."""

    place: str
    horizon: float
    shore: float
    zoom: float


def _put(rng: Random, kind: str, view: _View, others: list[Thing]) -> Thing:
    """The thing at the place, out of a few, where it hides least and is hidden least."""
    best, least = _place(rng, kind, view), math.inf
    for _ in range(12):
        thing = _place(rng, kind, view)
        hidden = 0.0
        for other in others:
            nearer, farther = (thing, other) if thing.foot > other.foot else (other, thing)
            hidden = max(hidden, farther.hidden_by(nearer))
        if hidden < least:
            best, least = thing, hidden
        if least <= MOST_HIDDEN * rng.random():
            break
    return best


def _place(rng: Random, kind: str, view: _View) -> Thing:
    shape = SHAPES[kind]
    height = math.exp(rng.uniform(math.log(shape.smallest), math.log(shape.largest)))
    half = height * shape.aspect / 2
    margin = half * (1 - 2 * MOST_OUTSIDE)
    x = rng.uniform(min(margin, 0.5), max(1 - margin, 0.5))
    mirrored = rng.random() < 0.5
    flies = kind == "airplane" or (kind == "bird" and rng.random() < 0.6)
    if flies:
        foot = rng.uniform(height + 0.02, max(view.horizon - 0.02, height + 0.03))
        return Thing(kind, x, foot, height, mirrored, flies)
    # A person's height grows linearly from 0.05 at the horizon.
    depth = (height / shape.of_person / view.zoom - 0.05) / 0.6
    nearest, farthest = 0.98, view.horizon + 0.04
    if view.place == "sea":
        on_water = kind in ON_WATER
        nearest, farthest = (view.shore - 0.02, farthest) if on_water else (0.99, view.shore + 0.03)
    foot = view.horizon + (1 - view.horizon) * depth + rng.uniform(-0.03, 0.03)
    return Thing(kind, x, min(nearest, max(farthest, foot)), height, mirrored)
