"""Person and umbrella: carried, or as a parasol on the beach."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from kmcl.data.scenes.pen import SKIN, Colour, Pen, Point, arc, paint, shaded, varied

HAIR = ((40, 30, 26), (90, 60, 36), (200, 165, 95), (150, 70, 40), (190, 190, 190))
HAND: Point = (0.2, 0.6)


def draw_person(pen: Pen, rng: Random, carries_umbrella: bool = False) -> None:
    skin, hair = varied(rng, rng.choice(SKIN), 8), rng.choice(HAIR)
    top, bottom = paint(rng), paint(rng, (0.2, 0.6), (0.15, 0.6))
    stride = rng.uniform(0.02, 0.13)
    wears_skirt = rng.random() < 0.35
    legs = skin if wears_skirt else bottom
    for side, colour in ((-1, shaded(legs, 0.82)), (1, legs)):
        pen.line([(0.03 * side, 0.46), (side * stride * 0.7, 0.24), (side * stride, 0.03)], 0.085, colour)
        pen.line([(side * stride, 0.02), (side * stride + 0.06, 0.02)], 0.045, (40, 36, 40))
    if wears_skirt:
        pen.polygon([(-0.08, 0.52), (0.08, 0.52), (0.15, 0.28), (-0.15, 0.28)], bottom)
    swing = rng.uniform(-0.1, 0.1)
    pen.line([(-0.08, 0.77), (-0.13, 0.62), (-0.12 - swing, 0.48)], 0.06, shaded(top, 0.8))
    pen.polygon(
        [(-0.12, 0.79), (-0.05, 0.83), (0.05, 0.83), (0.12, 0.79), (0.1, 0.62), (0.1, 0.46), (-0.1, 0.46)],
        top,
    )
    hand = HAND if carries_umbrella else (0.13 + swing, 0.48)
    pen.line([(0.1, 0.77), (0.15, 0.62), hand], 0.06, shaded(top, 0.92))
    pen.ellipse(*hand, 0.033, 0.033, skin)
    pen.line([(0, 0.82), (0, 0.87)], 0.06, skin)
    pen.ellipse(0, 0.92, 0.075, 0.085, skin)
    pen.polygon(arc(-0.008, 0.93, 0.085, 0.09, 20, 205), hair)
    if rng.random() < 0.4:
        pen.polygon([(-0.085, 0.95), (-0.03, 0.95), (-0.05, 0.78), (-0.1, 0.78)], hair)


def draw_carried_umbrella(pen: Pen, rng: Random) -> None:
    """Over the head of a person at the same place and scale."""
    x = HAND[0] - 0.05
    pen.line([(HAND[0], HAND[1]), (x, 1.16)], 0.022, (70, 60, 60))
    _draw_canopy(pen, rng, x, 1.0, 0.44, 0.26)


def draw_parasol(pen: Pen, rng: Random) -> None:
    pen.line([(0, 0), (0.02, 0.95)], 0.04, (225, 215, 200))
    _draw_canopy(pen, rng, 0.02, 0.62, 0.66, 0.36)


def _draw_canopy(pen: Pen, rng: Random, x: float, y: float, width: float, height: float) -> None:
    """Gores in two colours under a dome."""
    first = paint(rng, (0.5, 0.95), (0.6, 1.0))
    second: Colour = rng.choice((shaded(first, 0.8), (240.0, 236.0, 226.0), paint(rng)))
    edges = (-1.0, -0.62, -0.22, 0.22, 0.62, 1.0)
    outline = arc(0, 0, 1, 1, 0, 180)
    pen.polygon([(x + width * a, y + height * b) for a, b in outline], first)
    for number in (1, 3):
        left, right = edges[number], edges[number + 1]
        pen.polygon(
            [
                *((x + width * left, y), (x + width * left * 0.86, y + height * 0.5), (x, y + height)),
                *((x + width * right * 0.86, y + height * 0.5), (x + width * right, y)),
            ],
            second,
        )
    for left, right in pairwise(edges):  # the scalloped rim
        middle, half = (left + right) / 2, (right - left) / 2
        pen.ellipse(x + width * middle, y, width * half, height * 0.1, shaded(first, 0.7))
    pen.line([(x, y + height), (x, y + 1.12 * height)], 0.02, (70, 60, 60))
