"""The backgrounds: a street by day, a city at night, the sea with a beach, a meadow.

Each function paints a whole canvas and returns the light in which things stand there.
"""

from __future__ import annotations

from random import Random

import numpy as np
from PIL import Image, ImageDraw

from kmcl.data.scenes.pen import WHITE, Colour, Light, Pen, arc, paint, shaded, varied

PLAIN = Light((1, 1, 1), WHITE, 0)

SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((105, 165, 225), (200, 225, 240)),
    ((70, 135, 210), (170, 210, 235)),
    ((150, 165, 180), (205, 210, 212)),
    ((120, 130, 175), (250, 190, 140)),
)
GREY_SKY: tuple[Colour, Colour] = ((120, 128, 138), (175, 180, 185))
NIGHT_SKY: tuple[Colour, Colour] = ((14, 18, 44), (52, 50, 86))
LAMPLIGHT: Colour = (250, 215, 140)
WALLS: tuple[Colour, ...] = (
    (190, 150, 120),
    (170, 110, 90),
    (205, 195, 175),
    (140, 140, 150),
    (160, 170, 150),
)


class Canvas:
    """An image that is being painted; positions and lengths are fractions of its side."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.image = Image.new("RGB", (side, side))
        self.draw = ImageDraw.Draw(self.image)

    def pen(
        self, x: float, y: float, height: float, light: Light, mirrored: bool = False, turn: float = 0
    ) -> Pen:
        side = self.side
        return Pen(self.draw, x * side, y * side, height * side, light, mirrored, turn)

    def gradient(self, top: float, bottom: float, first: Colour, last: Colour) -> None:
        """Fill the rows from `top` to `bottom`, from one colour to another."""
        start, end = round(top * self.side), round(bottom * self.side)
        if end <= start:
            return
        share = np.linspace(0, 1, end - start, dtype=np.float32)[:, None]
        rows = np.array(first, dtype=np.float32) * (1 - share) + np.array(last, dtype=np.float32) * share
        column = Image.fromarray(np.clip(rows, 0, 255).astype(np.uint8)[:, None])
        self.image.paste(column.resize((self.side, end - start), Image.Resampling.NEAREST), (0, start))

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        side = self.side
        corners = (left * side, top * side, right * side, max(bottom, top) * side)
        self.draw.rectangle(corners, fill=PLAIN.shine_on(colour))

    def colour_at(self, x: float, y: float) -> Colour:
        last = self.side - 1
        place = (min(last, max(0, round(x * self.side))), min(last, max(0, round(y * self.side))))
        pixel = self.image.getpixel(place)
        if not isinstance(pixel, tuple):
            raise TypeError(f"a canvas is RGB; got the pixel {pixel!r}")
        return float(pixel[0]), float(pixel[1]), float(pixel[2])


def paint_street(canvas: Canvas, rng: Random, horizon: float, rainy: bool) -> Light:
    _paint_sky(canvas, rng, horizon, rainy)
    _paint_houses(canvas, rng, horizon, None)
    pavement = varied(rng, (178, 172, 165))
    kerb = horizon + rng.uniform(0.06, 0.14)
    canvas.gradient(horizon, kerb, shaded(pavement, 0.95), pavement)
    _paint_road(canvas, rng, kerb, varied(rng, (98, 98, 104), 14), (228, 226, 216))
    return _daylight(rng, rainy)


def paint_night(canvas: Canvas, rng: Random, horizon: float, rainy: bool) -> Light:
    canvas.gradient(0, horizon, *NIGHT_SKY)
    for _ in range(rng.randint(5, 25)):
        x, y = rng.random(), rng.uniform(0, 0.7 * horizon)
        canvas.box(x, y, x + 0.004, y + 0.004, (210, 210, 225))
    if rng.random() < 0.6:
        pen = canvas.pen(rng.uniform(0.1, 0.9), rng.uniform(0.06, 0.2), rng.uniform(0.03, 0.06), PLAIN)
        pen.ellipse(0, 0, 1, 1, (238, 234, 205))
        pen.ellipse(0.45, 0.25, 0.85, 0.85, NIGHT_SKY[0])
    _paint_houses(canvas, rng, horizon, (250, 205, 110))
    kerb = horizon + rng.uniform(0.06, 0.14)
    canvas.gradient(horizon, kerb, (62, 60, 74), (74, 70, 82))
    _paint_road(canvas, rng, kerb, (46, 46, 58), (150, 148, 140))
    for _ in range(rng.randint(1, 4)):  # pools of lamplight
        x, y = rng.random(), rng.uniform(kerb, 1)
        pen = canvas.pen(x, y, rng.uniform(0.03, 0.07), PLAIN)
        ground = canvas.colour_at(x, y)
        for size, share in ((3.4, 0.06), (2.6, 0.1), (1.8, 0.14), (1.0, 0.18)):
            red, green, blue = (
                level + share * (warm - level) for level, warm in zip(ground, LAMPLIGHT, strict=True)
            )
            pen.ellipse(0, 0, size, 0.35 * size, (red, green, blue))
    dim = rng.uniform(0.5, 0.75)
    return Light((dim, dim, 1.12 * dim), (30, 30, 54), rng.uniform(0.05, 0.2))


def paint_sea(canvas: Canvas, rng: Random, horizon: float, rainy: bool, shore: float) -> Light:
    _paint_sky(canvas, rng, horizon, rainy)
    if rng.random() < 0.4:
        land = shaded(varied(rng, (90, 120, 120)), 1.2)
        pen = canvas.pen(rng.uniform(0, 1), horizon, rng.uniform(0.04, 0.1), PLAIN)
        pen.polygon([(-4, 0), (-2, 0.6), (-0.5, 0.9), (1, 0.5), (3.5, 0)], land)
    deep, shallow = varied(rng, (35, 95, 150)), varied(rng, (70, 165, 180))
    if rainy:
        deep, shallow = varied(rng, (70, 92, 108)), varied(rng, (110, 135, 142))
    canvas.gradient(horizon, shore, deep, shallow)
    for _ in range(rng.randint(12, 30)):
        y = rng.uniform(horizon + 0.01, shore)
        reach = 0.02 + 0.12 * (y - horizon)
        x = rng.random()
        wave = shaded(canvas.colour_at(0, y), 1.25)
        canvas.box(x, y, x + reach * rng.uniform(0.5, 1.5), y + 0.004, wave)
    if shore < 1:
        sand = varied(rng, (226, 200, 150))
        canvas.gradient(shore, 1, shaded(sand, 0.9), sand)
        canvas.box(0, shore - 0.008, 1, shore + 0.006, (240, 246, 244))
        for _ in range(rng.randint(5, 20)):
            x, y = rng.random(), rng.uniform(shore + 0.02, 1)
            canvas.box(x, y, x + 0.006, y + 0.003, shaded(sand, 0.78))
    return _daylight(rng, rainy)


def paint_meadow(canvas: Canvas, rng: Random, horizon: float, rainy: bool) -> Light:
    _paint_sky(canvas, rng, horizon, rainy)
    grass = varied(rng, rng.choice(((110, 160, 70), (140, 165, 75), (85, 140, 75), (180, 165, 90))))
    for _ in range(rng.randint(1, 3)):
        hill = shaded(varied(rng, (110, 150, 115)), rng.uniform(1.0, 1.25))
        pen = canvas.pen(rng.random(), horizon + 0.002, rng.uniform(0.06, 0.16), PLAIN)
        pen.polygon(arc(0, 0, rng.uniform(2, 5), 1, 0, 180), hill)
    if rng.random() < 0.35:
        _paint_cottage(canvas, rng, horizon)
    canvas.gradient(horizon, 1, shaded(grass, 1.12), shaded(grass, 0.82))
    if rng.random() < 0.35:
        path, end = shaded(varied(rng, (205, 180, 140)), 1.0), rng.uniform(0.2, 0.8)
        pen = canvas.pen(0, 1, 1, PLAIN)
        start = rng.uniform(0.2, 0.8)
        pen.polygon(
            [(start - 0.16, 0), (start + 0.16, 0), (end + 0.015, 1 - horizon), (end - 0.015, 1 - horizon)],
            path,
        )
    for _ in range(rng.randint(10, 40)):
        x, y = rng.random(), rng.uniform(horizon + 0.03, 1)
        size = 0.003 + 0.008 * (y - horizon)
        colour = rng.choice((shaded(grass, 0.7), (240, 240, 230), (230, 200, 70), (215, 90, 110)))
        canvas.box(x, y, x + size, y + size, colour)
    return _daylight(rng, rainy)


def _daylight(rng: Random, rainy: bool) -> Light:
    dim = rng.uniform(0.72, 0.86) if rainy else rng.uniform(0.85, 1.06)
    warm = rng.uniform(0.95, 1.05)
    haze = rng.uniform(0.1, 0.28) if rainy else rng.uniform(0, 0.12)
    return Light((dim * warm, dim, dim / warm), (185, 192, 200), haze)


def _paint_sky(canvas: Canvas, rng: Random, horizon: float, rainy: bool) -> None:
    first, last = GREY_SKY if rainy else rng.choice(SKIES)
    canvas.gradient(0, horizon, varied(rng, first, 12), varied(rng, last, 12))
    if not rainy and rng.random() < 0.4:
        pen = canvas.pen(rng.uniform(0.05, 0.95), rng.uniform(0.04, 0.25), rng.uniform(0.03, 0.06), PLAIN)
        pen.ellipse(0, 0, 1.5, 1.5, shaded(last, 1.3))
        pen.ellipse(0, 0, 1, 1, (255, 236, 160))
    for _ in range(rng.randint(2, 5) if rainy else rng.randint(0, 4)):
        cloud = shaded(last, rng.uniform(0.8, 0.95)) if rainy else shaded(last, rng.uniform(1.4, 1.8))
        pen = canvas.pen(rng.random(), rng.uniform(0.05, 0.8 * horizon), rng.uniform(0.02, 0.06), PLAIN)
        for x, size in ((-1.6, 0.8), (-0.5, 1.2), (0.7, 1.0), (1.7, 0.7)):
            pen.ellipse(x, 0.5 * size, size, size, cloud)
        pen.ellipse(0, 0, 2.6, 0.5, cloud)


def _paint_houses(canvas: Canvas, rng: Random, horizon: float, lit: Colour | None) -> None:
    """A row of fronts; `lit` is the colour of some windows at night."""
    x = rng.uniform(-0.1, 0.0)
    while x < 1:
        width, top = rng.uniform(0.12, 0.28), horizon - rng.uniform(0.1, 0.36)
        wall = varied(rng, rng.choice(WALLS)) if lit is None else varied(rng, (40, 40, 62), 12)
        glass = shaded(wall, 0.65) if lit is None else shaded(wall, 0.7)
        if rng.random() < 0.15 and lit is None:  # a gap with the sky in it
            x += width / 2
            continue
        canvas.box(x, top, x + width, horizon + 0.01, wall)
        canvas.box(x, top, x + width, top + 0.008, shaded(wall, 0.8))
        columns, pitch = rng.randint(2, 4), rng.uniform(0.05, 0.075)
        for row in range(int((horizon - top) / pitch)):
            for column in range(columns):
                left, upper = x + width * (column + 0.25) / columns, top + 0.02 + row * pitch
                shines = lit is not None and rng.random() < 0.4
                colour = lit if shines and lit is not None else glass
                canvas.box(left, upper, left + 0.5 * width / columns, upper + 0.55 * pitch, colour)
        x += width


def _paint_road(canvas: Canvas, rng: Random, kerb: float, road: Colour, marks: Colour) -> None:
    canvas.gradient(kerb, 1, shaded(road, 1.05), shaded(road, 0.9))
    canvas.box(0, kerb - 0.006, 1, kerb + 0.004, shaded(road, 1.5))
    lane = kerb + (1 - kerb) * rng.uniform(0.35, 0.6)
    start = rng.uniform(-0.15, 0)
    if rng.random() < 0.3:  # a crossing
        pen = canvas.pen(rng.uniform(0.2, 0.8), 1, 1, PLAIN)
        for number in range(-3, 4):
            near, far = 0.11 * number, 0.07 * number
            pen.polygon([(near, 0), (near + 0.06, 0), (far + 0.035, 1 - kerb), (far, 1 - kerb)], marks)
        return
    for number in range(7):
        left = start + 0.2 * number
        canvas.box(left, lane, left + 0.1, lane + 0.012, marks)


def _paint_cottage(canvas: Canvas, rng: Random, horizon: float) -> None:
    wall, roof = varied(rng, rng.choice(WALLS)), paint(rng, (0.3, 0.6), (0.4, 0.6))
    pen = canvas.pen(rng.uniform(0.1, 0.9), horizon + 0.01, rng.uniform(0.1, 0.18), PLAIN)
    pen.box(-0.6, 0, 0.6, 0.6, shaded(wall, 1.15))
    pen.polygon([(-0.72, 0.56), (0.72, 0.56), (0.4, 1.0), (-0.4, 1.0)], roof)
    pen.box(-0.1, 0, 0.1, 0.36, shaded(roof, 0.7))
    for left in (-0.45, 0.25):
        pen.box(left, 0.22, left + 0.2, 0.42, (120, 160, 190))
