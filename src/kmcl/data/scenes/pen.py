"""A pen for a thing in its own coordinates: the foot at (0, 0), x to the right, y upwards, height 1."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from PIL import ImageDraw

Colour = tuple[float, float, float]
"""Red, green and blue from 0 to 255."""
Point = tuple[float, float]

CIRCLE = tuple((math.cos(turn * math.pi / 12), math.sin(turn * math.pi / 12)) for turn in range(24))

BLACK, WHITE = (20.0, 20.0, 24.0), (244.0, 244.0, 240.0)
GLASS, RUBBER, METAL = (150.0, 190.0, 210.0), (38.0, 38.0, 42.0), (140.0, 144.0, 150.0)
SKIN = ((241, 200, 165), (224, 172, 135), (190, 130, 92), (140, 88, 60), (92, 58, 42))


@dataclass(frozen=True)
class Light:
    """How a place changes colours: multiplied by `tint`, then mixed with `haze` by the share `amount`."""

    tint: Colour
    haze: Colour
    amount: float

    def shine_on(self, colour: Colour) -> tuple[int, int, int]:
        (red, green, blue), tint, haze, far = colour, self.tint, self.haze, self.amount
        near = 1 - far
        return (
            min(255, max(0, int(near * red * tint[0] + far * haze[0]))),
            min(255, max(0, int(near * green * tint[1] + far * haze[1]))),
            min(255, max(0, int(near * blue * tint[2] + far * haze[2]))),
        )


@dataclass(frozen=True)
class Pen:
    """Draws at a position of the canvas, at a scale (pixels per unit), mirrored and turned.

    turn: in radians, counter-clockwise.
    """

    draw: ImageDraw.ImageDraw
    left: float
    top: float
    scale: float
    light: Light
    mirrored: bool = False
    turn: float = 0.0

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        self.draw.polygon(self._place(points), fill=self.light.shine_on(colour))

    def ellipse(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """With its middle at (x, y) and these half axes."""
        self.polygon([(x + width * a, y + height * b) for a, b in CIRCLE], colour)

    def box(self, left: float, bottom: float, right: float, top: float, colour: Colour) -> None:
        self.polygon([(left, bottom), (right, bottom), (right, top), (left, top)], colour)

    def line(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        """A line with round ends."""
        pixels = max(1, round(width * self.scale))
        placed = self._place(points)
        fill = self.light.shine_on(colour)
        self.draw.line(placed, fill=fill, width=pixels, joint="curve")
        if pixels > 2:
            half = pixels / 2
            for x, y in (placed[0], placed[-1]):
                self.draw.ellipse((x - half, y - half, x + half, y + half), fill=fill)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour) -> None:
        points = [(x + radius * a, y + radius * b) for a, b in (*CIRCLE, CIRCLE[0])]
        self.line(points, width, colour)

    def glow(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """A lamp: not dimmed by the light of the place."""
        placed = self._place([(x + radius * a, y + radius * b) for a, b in CIRCLE])
        self.draw.polygon(placed, fill=Light((1, 1, 1), BLACK, 0).shine_on(colour))

    def _place(self, points: Sequence[Point]) -> list[Point]:
        cosine, sine = self.scale * math.cos(self.turn), self.scale * math.sin(self.turn)
        side = -1 if self.mirrored else 1
        return [
            (self.left + side * (x * cosine - y * sine), self.top - (x * sine + y * cosine))
            for x, y in points
        ]


def paint(rng: Random, saturation: Point = (0.35, 0.9), value: Point = (0.45, 0.95)) -> Colour:
    """A random colour."""
    red, green, blue = colorsys.hsv_to_rgb(rng.random(), rng.uniform(*saturation), rng.uniform(*value))
    return 255 * red, 255 * green, 255 * blue


def shaded(colour: Colour, factor: float) -> Colour:
    """Darker below 1, towards white above."""
    if factor <= 1:
        return colour[0] * factor, colour[1] * factor, colour[2] * factor
    rest = 2 - factor
    return 255 - (255 - colour[0]) * rest, 255 - (255 - colour[1]) * rest, 255 - (255 - colour[2]) * rest


def varied(rng: Random, colour: Colour, spread: float = 18) -> Colour:
    """A colour near this one."""
    change = rng.uniform(-spread, spread)
    red, green, blue = (level + change + rng.uniform(-spread, spread) / 2 for level in colour)
    return red, green, blue


def arc(x: float, y: float, width: float, height: float, start: float, end: float) -> list[Point]:
    """Points of an ellipse between two angles in degrees, counter-clockwise from the right."""
    steps = 10
    angles = [math.radians(start + (end - start) * step / steps) for step in range(steps + 1)]
    return [(x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles]
