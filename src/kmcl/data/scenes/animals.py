"""Dog, cat and bird."""

from __future__ import annotations

from random import Random

from kmcl.data.scenes.pen import BLACK, WHITE, Colour, Pen, arc, shaded, varied

DOG_FURS = ((150, 100, 60), (205, 165, 110), (60, 48, 42), (225, 215, 200), (120, 110, 105), (170, 80, 40))
CAT_FURS = ((60, 60, 66), (225, 140, 60), (150, 150, 155), (235, 230, 222), (120, 90, 70))
BIRD_FEATHERS = ((245, 245, 245), (50, 50, 58), (120, 95, 75), (70, 110, 170), (190, 70, 55), (240, 190, 60))


def draw_dog(pen: Pen, rng: Random) -> None:
    fur = varied(rng, rng.choice(DOG_FURS), 14)
    dark, ear = shaded(fur, 0.78), shaded(fur, rng.choice((0.5, 0.7, 0.85)))
    step = rng.uniform(-0.06, 0.12)
    for x, lean, colour in (
        *((-0.42, -step, dark), (0.3, step, dark)),
        *((-0.52, step, fur), (0.38, -step, fur)),
    ):
        pen.line([(x, 0.42), (x + lean, 0.04)], 0.11, colour)
        pen.ellipse(x + lean + 0.04, 0.03, 0.09, 0.04, colour)
    pen.line([(-0.6, 0.58), (-0.78, 0.7), (-0.86, rng.uniform(0.78, 0.98))], 0.075, fur)
    pen.polygon(
        [
            *((-0.66, 0.52), (-0.6, 0.64), (-0.35, 0.67), (0.1, 0.65), (0.3, 0.72), (0.42, 0.82)),
            *((0.58, 0.74), (0.52, 0.5), (0.4, 0.32), (0.2, 0.32), (-0.15, 0.38), (-0.45, 0.34), (-0.6, 0.4)),
        ],
        fur,
    )
    pen.ellipse(0.55, 0.82, 0.19, 0.17, fur)
    pen.polygon([(0.6, 0.92), (0.88, 0.82), (0.9, 0.72), (0.6, 0.68)], fur)
    pen.ellipse(0.88, 0.79, 0.05, 0.05, BLACK)
    pen.line([(0.66, 0.72), (0.84, 0.72)], 0.02, BLACK)
    pen.ellipse(0.61, 0.87, 0.032, 0.036, BLACK)
    if rng.random() < 0.6:  # a hanging ear
        pen.polygon([(0.4, 0.96), (0.52, 0.96), (0.5, 0.66), (0.38, 0.62), (0.32, 0.76)], ear)
    else:
        pen.polygon([(0.4, 0.92), (0.42, 1.1), (0.56, 0.96)], ear)
    pen.line([(0.36, 0.62), (0.54, 0.66)], 0.05, (200, 50, 50))


def draw_cat(pen: Pen, rng: Random) -> None:
    fur = varied(rng, rng.choice(CAT_FURS), 12)
    stripe, belly = shaded(fur, 0.68), shaded(fur, 1.45)
    if rng.random() < 0.55:
        pen.line([(-0.28, 0.07), (-0.5, 0.1), (-0.58, 0.28), (-0.46, 0.42)], 0.085, fur)
        pen.polygon(
            [
                *((-0.34, 0.0), (-0.36, 0.22), (-0.24, 0.45), (-0.12, 0.62), (0.16, 0.64)),
                *((0.24, 0.4), (0.27, 0.0)),
            ],
            fur,
        )
        pen.ellipse(0.1, 0.36, 0.1, 0.2, belly)
        for x in (0.05, 0.19):
            pen.line([(x, 0.3), (x, 0.04)], 0.09, fur)
            pen.ellipse(x + 0.02, 0.03, 0.07, 0.04, belly)
        _draw_cat_head(pen, rng, 0.06, 0.76, fur)
        for y in (0.3, 0.42):
            pen.line([(-0.32 + 0.4 * y, y), (-0.12, y + 0.03)], 0.03, stripe)
        return
    pen.line([(-0.55, 0.55), (-0.7, 0.66), (-0.7, 0.86), (-0.6, 0.98)], 0.08, fur)
    for x, lean, colour in (
        *((-0.42, 0.05, stripe), (0.26, -0.05, stripe)),
        *((-0.5, -0.04, fur), (0.34, 0.06, fur)),
    ):
        pen.line([(x, 0.4), (x + lean, 0.03)], 0.09, colour)
    pen.polygon([*arc(-0.1, 0.46, 0.52, 0.18, 0, 180), *arc(-0.1, 0.44, 0.52, 0.13, 180, 360)], fur)
    for x in (-0.35, -0.18, -0.01, 0.16):
        pen.line([(x, 0.62), (x + 0.02, 0.5)], 0.035, stripe)
    _draw_cat_head(pen, rng, 0.5, 0.66, fur)


def _draw_cat_head(pen: Pen, rng: Random, x: float, y: float, fur: Colour) -> None:
    for side in (-1, 1):
        pen.polygon(
            [(x + side * 0.21, y + 0.04), (x + side * 0.19, y + 0.29), (x + side * 0.03, y + 0.15)], fur
        )
        pen.polygon(
            [(x + side * 0.17, y + 0.1), (x + side * 0.165, y + 0.22), (x + side * 0.09, y + 0.15)],
            (225, 150, 150),
        )
    pen.ellipse(x, y, 0.22, 0.18, fur)
    pen.ellipse(x, y - 0.08, 0.1, 0.07, shaded(fur, 1.4))
    eyes = rng.choice(((120, 180, 70), (220, 180, 50), (90, 150, 190)))
    for side in (-1, 1):
        pen.ellipse(x + side * 0.09, y + 0.02, 0.05, 0.045, eyes)
        pen.ellipse(x + side * 0.09, y + 0.02, 0.018, 0.042, BLACK)
        for rise in (-0.02, 0.03):
            pen.line([(x + side * 0.08, y - 0.08), (x + side * 0.3, y - 0.08 + rise)], 0.008, WHITE)
    pen.polygon([(x - 0.03, y - 0.04), (x + 0.03, y - 0.04), (x, y - 0.08)], (200, 110, 110))


def draw_flying_bird(pen: Pen, rng: Random) -> None:
    feathers = varied(rng, rng.choice(BIRD_FEATHERS), 10)
    dark = shaded(feathers, 0.72)
    lift = rng.uniform(-0.1, 0.35)
    pen.polygon([(0.08, 0.46), (-0.12, 0.48), (-0.5, 0.6 + lift), (-0.95, 0.5 + lift), (-0.45, 0.42)], dark)
    pen.polygon([(-0.3, 0.42), (-0.62, 0.34), (-0.6, 0.5)], dark)
    pen.ellipse(0.0, 0.42, 0.36, 0.12, feathers)
    pen.ellipse(0.36, 0.48, 0.12, 0.1, feathers)
    pen.polygon([(0.45, 0.52), (0.62, 0.46), (0.45, 0.44)], (240, 170, 40))
    pen.ellipse(0.39, 0.5, 0.02, 0.02, BLACK)
    pen.polygon(
        [(0.2, 0.46), (-0.16, 0.45), (-0.3, 0.8 + lift), (-0.62, 1.0 + lift), (0.02, 0.85 + lift)], feathers
    )
    pen.polygon([(-0.3, 0.8 + lift), (-0.62, 1.0 + lift), (-0.24, 0.92 + lift)], dark)


def draw_standing_bird(pen: Pen, rng: Random) -> None:
    feathers = varied(rng, rng.choice(BIRD_FEATHERS), 10)
    legs = (230, 150, 50)
    for x in (-0.06, 0.08):
        pen.line([(x, 0.34), (x, 0.02), (x + 0.1, 0.02)], 0.035, legs)
    pen.polygon([(-0.3, 0.52), (-0.78, 0.38), (-0.72, 0.54), (-0.3, 0.66)], shaded(feathers, 0.62))
    pen.ellipse(0.0, 0.5, 0.4, 0.22, feathers)
    pen.ellipse(0.08, 0.42, 0.26, 0.12, shaded(feathers, 1.35))
    pen.polygon([(0.16, 0.62), (-0.5, 0.46), (-0.1, 0.38), (0.18, 0.46)], shaded(feathers, 0.72))
    pen.line([(0.25, 0.58), (0.32, 0.74)], 0.18, feathers)
    pen.ellipse(0.34, 0.8, 0.16, 0.15, feathers)
    pen.polygon([(0.46, 0.86), (0.68, 0.78), (0.46, 0.74)], legs)
    pen.ellipse(0.39, 0.84, 0.028, 0.028, BLACK)
