"""Tree and traffic light, and what has no label: bush, lamp, fence, rock, bench, buoy."""

from __future__ import annotations

from random import Random

from kmcl.data.scenes.pen import BLACK, METAL, WHITE, Colour, Pen, arc, paint, shaded, varied

LEAVES = ((70, 130, 60), (95, 150, 60), (50, 105, 65), (190, 140, 50), (175, 90, 45), (120, 160, 80))
BARK = (104.0, 76.0, 54.0)


def draw_tree(pen: Pen, rng: Random) -> None:
    leaves = varied(rng, rng.choice(LEAVES), 14)
    bark = varied(rng, BARK)
    if rng.random() < 0.35:  # a fir
        pen.box(-0.035, 0, 0.035, 0.2, bark)
        for bottom, width in ((0.12, 0.34), (0.34, 0.27), (0.56, 0.2)):
            peak = bottom + 0.42
            pen.polygon([(-width, bottom), (width, bottom), (0, peak)], shaded(leaves, 0.8))
            pen.polygon([(-width, bottom), (width * 0.3, bottom), (0, peak)], shaded(leaves, 0.92))
        return
    pen.polygon([(-0.06, 0), (0.06, 0), (0.035, 0.5), (-0.035, 0.5)], bark)
    pen.line([(0, 0.38), (0.12, 0.52)], 0.035, bark)
    puffs = [(rng.uniform(-0.24, 0.24), rng.uniform(0.48, 0.84), rng.uniform(0.14, 0.21)) for _ in range(7)]
    for x, y, radius in puffs:
        pen.ellipse(x, y - 0.03, radius, radius, shaded(leaves, 0.75))
    for x, y, radius in puffs:
        pen.ellipse(x - 0.02, y + 0.02, 0.85 * radius, 0.85 * radius, leaves)
    for x, y, radius in puffs[:4]:
        pen.ellipse(x - 0.05, y + 0.06, 0.4 * radius, 0.35 * radius, shaded(leaves, 1.15))


def draw_palm(pen: Pen, rng: Random) -> None:
    leaves = varied(rng, (70, 140, 70), 16)
    lean = rng.uniform(0.05, 0.22)
    pen.line([(0, 0), (0.35 * lean, 0.4), (lean, 0.8)], 0.06, varied(rng, (150, 115, 80)))
    for side in (-1, 1):
        for reach, rise in ((0.42, -0.12), (0.45, 0.05), (0.3, 0.18)):
            tip = (lean + side * reach, 0.8 + rise)
            middle = (lean + side * 0.55 * reach, 0.86 + rise * 0.9)
            pen.polygon(
                [(lean, 0.83), middle, tip, (middle[0], middle[1] - 0.08)], shaded(leaves, 0.8 + 0.2 * rise)
            )
    for x in (-0.03, 0.04):
        pen.ellipse(lean + x, 0.78, 0.035, 0.035, (110, 75, 45))


def draw_traffic_light(pen: Pen, rng: Random) -> None:
    housing: Colour = rng.choice((BLACK, (50, 56, 50), (225, 180, 50)))
    pen.box(-0.022, 0, 0.022, 0.66, shaded(METAL, 0.6))
    if rng.random() < 0.3:  # two heads
        pen.line([(0, 0.64), (0.2, 0.64)], 0.02, shaded(METAL, 0.6))
        _draw_signal(pen, rng, 0.2, 0.52, 0.24, housing)
    _draw_signal(pen, rng, 0, 0.6, 0.4, housing)


def _draw_signal(pen: Pen, rng: Random, x: float, bottom: float, height: float, housing: Colour) -> None:
    half = 0.21 * height
    pen.box(x - 1.25 * half, bottom, x + 1.25 * half, bottom + height, shaded(housing, 0.6))
    pen.box(x - half, bottom + 0.02 * height, x + half, bottom + 0.98 * height, housing)
    lit = rng.choice((0, 0, 1, 2, 2))
    colours = ((40.0, 205.0, 90.0), (255.0, 190.0, 40.0), (240.0, 50.0, 40.0))
    for number, colour in enumerate(colours):
        y = bottom + height * (0.2 + 0.3 * number)
        if number == lit:
            pen.glow(x, y, 0.13 * height, colour)
        else:
            pen.ellipse(x, y, 0.13 * height, 0.13 * height, shaded(colour, 0.3))


def draw_bush(pen: Pen, rng: Random) -> None:
    leaves = varied(rng, rng.choice(LEAVES[:3]), 16)
    for shade, rise in ((0.7, 0.0), (0.9, 0.08)):
        for _ in range(5):
            x, radius = rng.uniform(-0.7, 0.7), rng.uniform(0.3, 0.48)
            pen.polygon(arc(x, rise, radius, 1.6 * radius, 0, 180), shaded(leaves, shade))


def draw_lamp(pen: Pen, rng: Random) -> None:
    pole = shaded(METAL, 0.55)
    pen.box(-0.02, 0, 0.02, 0.94, pole)
    pen.line([(0, 0.92), (0.05, 0.98), (0.2, 0.98)], 0.025, pole)
    pen.glow(0.2, 0.955, 0.035, (255, 232, 160))


def draw_fence(pen: Pen, rng: Random) -> None:
    wood = varied(rng, rng.choice(((190, 150, 110), WHITE, (120, 95, 75))))
    for y in (0.3, 0.7):
        pen.line([(-1.8, y), (1.8, y)], 0.1, shaded(wood, 0.85))
    for number in range(8):
        x = -1.75 + 0.5 * number
        pen.polygon([(x - 0.08, 0), (x - 0.08, 0.9), (x, 1.0), (x + 0.08, 0.9), (x + 0.08, 0)], wood)


def draw_bench(pen: Pen, rng: Random) -> None:
    wood = varied(rng, (150, 100, 60))
    for x in (-0.7, 0.7):
        pen.line([(x, 0), (x, 0.9)], 0.08, (60, 60, 64))
    for y in (0.45, 0.7, 0.88):
        pen.line([(-0.9, y), (0.9, y)], 0.1, wood)


def draw_rock(pen: Pen, rng: Random) -> None:
    stone = varied(rng, (128, 124, 120))
    pen.polygon([(-0.8, 0), (-0.6, 0.5), (-0.15, 0.85), (0.35, 0.7), (0.75, 0.3), (0.85, 0)], stone)
    pen.polygon([(-0.6, 0.5), (-0.15, 0.85), (0.35, 0.7), (-0.1, 0.45)], shaded(stone, 1.2))


def draw_buoy(pen: Pen, rng: Random) -> None:
    colour = paint(rng, (0.7, 0.95), (0.7, 0.95))
    pen.polygon([(-0.4, 0), (0.4, 0), (0.12, 0.8), (-0.12, 0.8)], colour)
    pen.polygon([(-0.3, 0.28), (0.3, 0.28), (0.2, 0.52), (-0.2, 0.52)], WHITE)
    pen.ellipse(0, 0.88, 0.12, 0.12, colour)
