"""Car, bus, bicycle, boat and airplane."""

from __future__ import annotations

import math
from random import Random

from kmcl.data.scenes.pen import BLACK, GLASS, METAL, RUBBER, WHITE, Pen, arc, paint, shaded, varied

LAMP, TAIL_LAMP = (255.0, 236.0, 170.0), (214.0, 40.0, 36.0)


def _wheel(pen: Pen, x: float, radius: float) -> None:
    pen.ellipse(x, radius, radius, radius, RUBBER)
    pen.ellipse(x, radius, 0.55 * radius, 0.55 * radius, METAL)
    pen.ellipse(x, radius, 0.2 * radius, 0.2 * radius, RUBBER)


def draw_car(pen: Pen, rng: Random) -> None:
    body = paint(rng)
    glass = varied(rng, GLASS)
    nose, roof = rng.uniform(0.92, 1.1), rng.uniform(0.45, 0.62)
    if rng.random() < 0.3:  # an estate car
        cabin = [(-0.95, 0.55), (-0.85, 0.98), (0.25, 1.0), (roof, 0.58)]
    else:
        cabin = [(-0.72, 0.55), (-0.42, 0.98), (0.2, 1.0), (roof, 0.58)]
    pen.polygon(cabin, shaded(body, 0.9))
    middle = rng.uniform(-0.2, -0.05)
    back = cabin[1][0]
    pen.polygon([(cabin[0][0] + 0.14, 0.6), (back + 0.05, 0.91), (middle, 0.92), (middle, 0.6)], glass)
    pen.polygon([(middle + 0.06, 0.6), (middle + 0.06, 0.92), (0.17, 0.92), (roof - 0.1, 0.6)], glass)
    pen.polygon(
        [(-1.05, 0.17), (-1.08, 0.5), (-0.95, 0.6), (roof, 0.6), (nose, 0.48), (nose + 0.05, 0.17)], body
    )
    pen.box(-1.06, 0.17, nose + 0.05, 0.26, shaded(body, 0.65))
    pen.line([(middle + 0.03, 0.58), (middle + 0.03, 0.27)], 0.02, shaded(body, 0.65))
    pen.box(middle - 0.16, 0.47, middle - 0.05, 0.5, shaded(body, 0.5))
    pen.ellipse(nose - 0.03, 0.4, 0.06, 0.07, LAMP)
    pen.box(-1.08, 0.38, -1.0, 0.5, TAIL_LAMP)
    for x in (-0.62, 0.64):
        pen.ellipse(x, 0.22, 0.27, 0.27, shaded(body, 0.45))
        _wheel(pen, x, 0.21)


def draw_bus(pen: Pen, rng: Random) -> None:
    body, stripe = paint(rng), paint(rng)
    glass = varied(rng, GLASS)
    pen.polygon(
        [(-1.15, 0.1), (-1.15, 0.94), (-1.1, 1.0), (1.08, 1.0), (1.15, 0.9), (1.17, 0.45), (1.15, 0.1)], body
    )
    pen.box(-1.15, 0.36, 1.16, 0.44, stripe)
    pen.box(-1.15, 0.1, 1.15, 0.16, shaded(body, 0.6))
    floors = ((0.5, 0.8),) if rng.random() < 0.75 else ((0.2, 0.33), (0.56, 0.82))
    count = rng.randint(4, 6)
    for bottom, top in floors:
        for number in range(count):
            left = -1.06 + number * 1.7 / count
            pen.box(left, bottom, left + 1.45 / count, top, glass)
    pen.box(0.72, 0.14, 0.92, 0.8, shaded(glass, 0.85))
    pen.line([(0.82, 0.14), (0.82, 0.8)], 0.015, shaded(body, 0.6))
    pen.polygon([(1.0, 0.46), (1.0, 0.84), (1.13, 0.84), (1.16, 0.46)], glass)
    pen.box(0.4, 0.86, 0.95, 0.95, BLACK)
    pen.box(0.46, 0.885, 0.46 + rng.uniform(0.2, 0.42), 0.925, (250, 190, 60))
    pen.ellipse(1.12, 0.24, 0.03, 0.04, LAMP)
    for x in (-0.68, 0.6):
        _wheel(pen, x, 0.14)


def draw_bicycle(pen: Pen, rng: Random) -> None:
    frame = paint(rng)
    wheel, width = 0.36, 0.05
    rear, front, pedals, seat, head = (-0.55, wheel), (0.6, wheel), (-0.05, 0.34), (-0.22, 0.82), (0.42, 0.86)
    for x, y in (rear, front):
        for turn in range(3):
            angle = turn * math.pi / 3
            a, b = 0.9 * wheel * math.cos(angle), 0.9 * wheel * math.sin(angle)
            pen.line([(x - a, y - b), (x + a, y + b)], 0.012, METAL)
        pen.ring(x, y, wheel, width, RUBBER)
    pen.line([rear, pedals, (0.4, 0.76), (-0.17, 0.68), rear], width, frame)
    pen.line([pedals, seat], width, frame)
    pen.line([front, head], width, frame)
    pen.line([(-0.36, 0.86), (-0.1, 0.86)], 0.08, RUBBER)
    pen.line([head, (0.3, 1.0), (0.46, 1.0)], 0.05, RUBBER)
    pen.ellipse(*pedals, 0.09, 0.09, METAL)
    pen.line([(-0.12, 0.22), (0.02, 0.46)], 0.04, RUBBER)
    if rng.random() < 0.4:
        pen.box(0.46, 0.62, 0.76, 0.84, (170, 120, 70))


def draw_boat(pen: Pen, rng: Random) -> None:
    hull = paint(rng) if rng.random() < 0.6 else WHITE
    deck = [(-0.62, 0.24), (0.7, 0.27), (0.52, 0.0), (-0.5, 0.0)]
    kind = rng.random()
    if kind < 0.6:  # a sailing boat
        sail = varied(rng, WHITE, 10) if rng.random() < 0.6 else paint(rng, (0.3, 0.8), (0.7, 1))
        pen.line([(0.05, 0.2), (0.05, 1.0)], 0.025, (110, 80, 60))
        pen.polygon([(0.08, 0.97), (0.08, 0.32), (0.62, 0.34)], shaded(sail, 0.93))
        pen.polygon([(0.02, 0.9), (0.02, 0.3), (-0.55, 0.33)], sail)
    elif kind < 0.85:  # a motor boat
        deck = [(-0.85, 0.34), (0.95, 0.42), (0.6, 0.0), (-0.78, 0.0)]
        pen.polygon([(-0.45, 0.36), (-0.42, 0.72), (0.2, 0.72), (0.38, 0.38)], WHITE)
        for left in (-0.36, -0.1):
            pen.box(left, 0.46, left + 0.18, 0.64, GLASS)
        pen.polygon([(0.14, 0.46), (0.14, 0.64), (0.18, 0.64), (0.28, 0.46)], GLASS)
        pen.line([(-0.3, 0.72), (-0.3, 1.0)], 0.025, METAL)
        pen.polygon([(-0.3, 1.0), (-0.3, 0.88), (-0.55, 0.94)], paint(rng))
    else:  # a steamer
        deck = [(-1.05, 0.34), (1.1, 0.38), (0.85, 0.0), (-0.95, 0.0)]
        pen.box(-0.7, 0.34, 0.6, 0.52, WHITE)
        pen.box(-0.5, 0.52, 0.4, 0.66, WHITE)
        for number in range(6):
            pen.ellipse(-0.6 + 0.21 * number, 0.43, 0.035, 0.035, GLASS)
        for left in (-0.3, 0.05):
            pen.box(left, 0.66, left + 0.18, 1.0, paint(rng))
            pen.box(left, 0.92, left + 0.18, 1.0, BLACK)
    pen.polygon(deck, hull)
    (left, high), (right, bow), (low_right, _), (low_left, _) = deck
    pen.polygon([(left, high), (right, bow), (right - 0.04, bow - 0.07), (left + 0.02, high - 0.07)], WHITE)
    pen.polygon([(low_left, 0), (low_right, 0), (low_right + 0.05, 0.07), (low_left - 0.03, 0.07)], TAIL_LAMP)


def draw_airplane(pen: Pen, rng: Random) -> None:
    body, accent = varied(rng, WHITE, 14), paint(rng)
    pen.polygon([(-0.1, 0.5), (0.22, 0.5), (-0.15, 0.95), (-0.32, 0.95)], shaded(body, 0.78))
    pen.polygon([(-1.05, 0.58), (-0.72, 0.6), (-0.95, 1.0), (-1.18, 1.0)], accent)
    pen.polygon(
        [
            *((-1.2, 0.6), (-1.05, 0.44), (-0.5, 0.38), (0.85, 0.38)),
            *arc(0.9, 0.5, 0.28, 0.12, -90, 90),
            *((0.8, 0.62), (-0.5, 0.62)),
        ],
        body,
    )
    pen.line([(-1.0, 0.44), (0.95, 0.42)], 0.04, accent)
    for number in range(9):
        pen.ellipse(-0.6 + 0.15 * number, 0.53, 0.025, 0.025, (70, 100, 130))
    pen.polygon([(0.92, 0.54), (0.95, 0.6), (1.1, 0.55)], GLASS)
    pen.polygon([(-0.15, 0.44), (0.3, 0.44), (-0.25, 0.02), (-0.48, 0.02)], shaded(body, 0.88))
    pen.polygon([(-1.15, 0.56), (-0.85, 0.56), (-1.1, 0.36), (-1.26, 0.36)], shaded(body, 0.8))
    pen.ellipse(0.08, 0.26, 0.17, 0.07, shaded(accent, 0.8))
