"""A scene as pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from random import Random

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageFilter

from kmcl.data.scenes.animals import draw_cat, draw_dog, draw_flying_bird, draw_standing_bird
from kmcl.data.scenes.composition import ON_WATER, Scene, Thing
from kmcl.data.scenes.pen import Light, Pen, shaded
from kmcl.data.scenes.people import draw_carried_umbrella, draw_parasol, draw_person
from kmcl.data.scenes.places import PLAIN, Canvas, paint_meadow, paint_night, paint_sea, paint_street
from kmcl.data.scenes.roadside import (
    draw_bench,
    draw_buoy,
    draw_bush,
    draw_fence,
    draw_lamp,
    draw_palm,
    draw_rock,
    draw_traffic_light,
    draw_tree,
)
from kmcl.data.scenes.vehicles import draw_airplane, draw_bicycle, draw_boat, draw_bus, draw_car

SIDE = 160
SAMPLES = 2
"""Pixels are averaged over so many in each direction, for smooth edges."""

BLURS = (0.0, 0.7)
CONTRASTS, EXPOSURES = (0.75, 1.1), (-14.0, 14.0)
GRAINS, GRAIN_SIDE = (2.0, 4.0, 6.0, 8.0), 400
FAR_HAZE = 0.25

Drawing = Callable[[Pen, Random], None]

DRAWINGS: dict[str, Drawing] = {
    "airplane": draw_airplane,
    "bench": draw_bench,
    "bicycle": draw_bicycle,
    "bird": draw_standing_bird,
    "boat": draw_boat,
    "buoy": draw_buoy,
    "bus": draw_bus,
    "bush": draw_bush,
    "car": draw_car,
    "cat": draw_cat,
    "dog": draw_dog,
    "fence": draw_fence,
    "lamp": draw_lamp,
    "person": draw_person,
    "rock": draw_rock,
    "traffic light": draw_traffic_light,
    "tree": draw_tree,
    "umbrella": draw_parasol,
}
PLACES: dict[str, Callable[[Canvas, Random, float, bool], Light]] = {
    "street": paint_street,
    "night": paint_night,
    "meadow": paint_meadow,
}


def draw_scene(scene: Scene, rng: Random) -> npt.NDArray[np.uint8]:
    """SIDE x SIDE x 3 uint8."""
    canvas = Canvas(SIDE * SAMPLES)
    if scene.place == "sea":
        light = paint_sea(canvas, rng, scene.horizon, scene.is_rainy, scene.shore)
    else:
        light = PLACES[scene.place](canvas, rng, scene.horizon, scene.is_rainy)
    # Random numbers of their own, so that neither rain nor camera depends on what a scene shows.
    of_things = Random(rng.getrandbits(64))
    for thing in scene.things:
        _draw_thing(canvas, thing, scene, light, of_things)
    if scene.is_rainy:
        _draw_rain(canvas, rng)
    return np.array(_photograph(canvas.image.reduce(SAMPLES), rng))


def _draw_thing(canvas: Canvas, thing: Thing, scene: Scene, light: Light, rng: Random) -> None:
    depth = (thing.foot - scene.horizon) / (1 - scene.horizon)
    far = FAR_HAZE * max(0.0, 1 - 1.6 * max(depth, 0)) if not thing.flies else 0.05
    light = replace(light, amount=min(0.6, light.amount + far))
    turn = rng.uniform(-0.18, 0.3) if thing.flies else 0.0
    if thing.kind == "boat":
        turn = rng.uniform(-0.06, 0.06)
    pen = canvas.pen(thing.x, thing.foot, thing.height, light, thing.mirrored, turn)
    if not thing.flies:
        _draw_contact(canvas, thing)
    draw = DRAWINGS[thing.kind]
    if thing.kind == "bird" and thing.flies:
        draw = draw_flying_bird
    elif thing.kind == "tree" and scene.place == "sea":
        draw = draw_palm
    if thing.kind == "person":
        draw_person(pen, rng, thing.has_umbrella)
        if thing.has_umbrella:
            draw_carried_umbrella(pen, rng)
        return
    draw(pen, rng)


CONTACT_WIDTHS = {"bus": 1.15, "car": 1.1, "tree": 0.3, "traffic light": 0.12, "lamp": 0.1, "fence": 1.8}


def _draw_contact(canvas: Canvas, thing: Thing) -> None:
    """The shadow on the ground, or the reflection on water."""
    ground = canvas.colour_at(thing.x, thing.foot)
    pen = canvas.pen(thing.x, thing.foot, thing.height, PLAIN)
    if thing.kind in ON_WATER:
        for y, width in ((-0.02, 0.7), (-0.07, 0.5), (-0.12, 0.3)):
            pen.line([(-width, y), (width, y)], 0.025, shaded(ground, 1.3 if y > -0.05 else 0.8))
        return
    width = CONTACT_WIDTHS.get(thing.kind, 0.25 if thing.kind == "person" else 0.6)
    pen.ellipse(0, 0.0, width, 0.1 * width + 0.02, shaded(ground, 0.72))


def _draw_rain(canvas: Canvas, rng: Random) -> None:
    pen = canvas.pen(0, 1, 1, PLAIN)
    slant = rng.uniform(-0.03, 0.03)
    for _ in range(rng.randint(40, 90)):
        x, y, length = rng.random(), rng.random(), rng.uniform(0.02, 0.06)
        pen.line([(x, y), (x + slant, y - length)], 0.002, (198, 206, 216))


@lru_cache(maxsize=1)
def _grain() -> tuple[Image.Image, ...]:
    """Noise around 128, from weak to strong; each scene takes a piece, since new noise would cost more than
    everything else."""
    normal = np.random.default_rng(0).standard_normal((GRAIN_SIDE, GRAIN_SIDE, 3), dtype=np.float32)
    return tuple(
        Image.fromarray(np.clip(np.rint(128 + level * normal), 0, 255).astype(np.uint8)) for level in GRAINS
    )


def _photograph(image: Image.Image, rng: Random) -> Image.Image:
    """Focus, contrast, exposure and grain of a camera."""
    image = image.filter(ImageFilter.BoxBlur(rng.uniform(*BLURS)))
    contrast, exposure = rng.uniform(*CONTRASTS), rng.uniform(*EXPOSURES)
    levels = [min(255, max(0, round(118 + exposure + contrast * (level - 118)))) for level in range(256)]
    left, top = rng.randrange(GRAIN_SIDE - SIDE), rng.randrange(GRAIN_SIDE - SIDE)
    grain = rng.choice(_grain()).crop((left, top, left + SIDE, top + SIDE))
    return ImageChops.add(image.point(levels * 3), grain, 1, -128)
