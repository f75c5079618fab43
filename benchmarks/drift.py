"""How often `kmcl monitor` gives an alarm: where nothing has changed, and where a shift was planted.

    python benchmarks/drift.py RUN [--draws 200]
    python benchmarks/drift.py RUN --changed blur=1.5,dark=0.7 [--draws 200]
    python benchmarks/drift.py RUN --groups '[0-9]{8}' [--draws 200]

RUN is a run with predictions of val and test. In each draw as many images as val has, and as many new ones as
half of test, are drawn from both splits together, so that nothing differs but chance. A planted shift then
replaces a share of the new ones by images with a label (its rate rises) or by unfamiliar ones. In the row
"fitted anew" thresholds, calibration and the scale of the unfamiliarity are those of the redrawn val, as they
are those of val in a run.

--changed needs the images of the run. In each draw 100 or 500 images of val are changed and predicted:
blurred with that deviation in pixels where the longer side has 256, or made darker by that factor. They are
compared with the other images of val. "nothing" leaves them as they are. The last columns count draws in
which a check of the features showed drift, and draws with an alarm where these checks are left out.

--groups draws whole groups (patients), half of them as val and half as new images, so that nothing differs
but chance: all images compared, and one of each group, as by `kmcl monitor --group`.

Without these options the first row compares val itself with random halves of test: these draws have val in
common, and are not independent. Two lines say what that row means: whether the targets of val and test
differ, which no model has a part in, and how many redrawn vals give as many alarms against halves of the
other images.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from kmcl.data import open_dataset
from kmcl.evaluation import Predictions
from kmcl.evaluation.drift import (
    FALSE_ALARM_RATE,
    PredictedImages,
    find_drift,
    holm,
    one_of_each_group,
    predicted_images,
)
from kmcl.models.folder import read_description
from kmcl.runs.folder import RunFolder
from kmcl.serving.loading import load_in_torch
from uncertainty import rules_of

SHARES = (0.02, 0.05, 0.1)
MOST_UNFAMILIAR = 0.999
BATCHES = (100, 500)
HALVES = 10
"""Of each redrawn val, where its own rate of alarms is wanted."""

Pair = tuple[PredictedImages, PredictedImages]
Pixels = npt.NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    parser.add_argument("--changed", default="", metavar="NAME=AMOUNT,...", help="blur or dark")
    arguments = parser.parse_args()
    folder = RunFolder(arguments.run)
    rules = read_description(folder.model).rules
    of_val, of_test = (Predictions.load(folder.predictions_file(name)) for name in ("val", "test"))
    val, test = predicted_images(of_val, rules), predicted_images(of_test, rules)
    both = PredictedImages(*(_stacked(*pair) for pair in zip(val, test, strict=True)))
    if arguments.changed:
        changed = {"nothing": val} | {
            name: predict_changed(arguments.run, *name.split("=")) for name in arguments.changed.split(",")
        }
        print_changed(rules.labels, val, changed, arguments.draws)
        return
    if arguments.groups:
        print_grouped(rules.labels, both, arguments.groups, arguments.draws)
        return
    num_new = len(test.present) // 2
    print(f"alarms of draws of {num_new} new images, bound {100 * FALSE_ALARM_RATE:g} %\n")
    print("| planted | share | draws | with an alarm |\n|---|---|---|---|")
    halves = [
        (val, test.take(np.random.default_rng(draw).permutation(len(test.present))[:num_new]))
        for draw in range(arguments.draws)
    ]
    against_val = alarms(rules.labels, halves)
    print_row("nothing, halves of test against val", "", against_val)
    draws = [redrawn(both, len(val.present), num_new, draw) for draw in range(arguments.draws)]
    print_row("nothing", "", alarms(rules.labels, draws))
    pool = Predictions.concat([of_val, of_test])
    anew = [fitted_anew(pool, both, len(val.present), num_new, draw) for draw in range(arguments.draws)]
    print_row("nothing, fitted anew", "", alarms(rules.labels, anew))
    few = draws[: arguments.draws // 4]
    rates = both.present.mean(axis=0)
    label = int(np.argsort(rates)[len(rates) // 2])
    for share in SHARES:
        planted = [(old, with_label(new, both, label, share)) for old, new in few]
        print_row(f"images with {rules.labels[label]}", f"{share:g}", alarms(rules.labels, planted))
    for share in SHARES if both.unfamiliarity is not None else ():
        planted = [(old, with_unfamiliar(new, share)) for old, new in few]
        print_row("unfamiliar images", f"{share:g}", alarms(rules.labels, planted))
    print("\n" + compare_targets(of_val, of_test))
    rate = float(np.mean(against_val))
    rates = [
        rate_of_halves(rules.labels, both, len(val.present), num_new, draw)
        for draw in range(arguments.draws // 4)
    ]
    as_many = float(np.mean(np.array(rates) >= rate))
    print(
        f"{100 * as_many:.1f} % of {len(rates)} redrawn vals give alarms in at least {100 * rate:.1f} % "
        f"of the halves of the other images; mean {100 * np.mean(rates):.1f} %"
    )


def _stacked(one: Any, other: Any) -> Any:
    return None if one is None or other is None else np.concatenate([one, other])


def redrawn(both: PredictedImages, num_val: int, num_new: int, seed: int) -> Pair:
    """Another val and new images, of the images of both splits."""
    order = np.random.default_rng(seed).permutation(len(both.present))
    return both.take(order[:num_val]), both.take(order[num_val : num_val + num_new])


def fitted_anew(pool: Predictions, both: PredictedImages, num_val: int, num_new: int, seed: int) -> Pair:
    """As `redrawn`, with what a run fits on val fitted on the redrawn one, which is nothing of features."""
    order = np.random.default_rng(seed).permutation(len(pool))
    parts = order[:num_val], order[num_val : num_val + num_new]
    rules = rules_of(pool.take(parts[0]))
    found = [predicted_images(pool.take(part), rules) for part in parts]
    found = [one._replace(features=both.take(part).features) for one, part in zip(found, parts, strict=True)]
    if both.unfamiliarity is None:
        return found[0], found[1]
    of_val = np.sort(both.unfamiliarity[parts[0]])
    shares = [np.searchsorted(of_val, both.unfamiliarity[part]) / (num_val + 1) for part in parts]
    return found[0]._replace(unfamiliarity=shares[0]), found[1]._replace(unfamiliarity=shares[1])


def compare_targets(val: Predictions, test: Predictions) -> str:
    """The label whose frequency differs most clearly between the splits, by Fisher's exact test."""
    from scipy.stats import fisher_exact

    p_values = [
        fisher_exact([[one.positive[:, k].sum(), one.negative[:, k].sum()] for one in (val, test)]).pvalue
        for k in range(val.num_labels)
    ]
    k = int(np.argmin(p_values))
    shares = [100 * one.positive[:, k].sum() / one.evaluated[:, k].sum() for one in (val, test)]
    return (
        f"targets: {val.labels[k]} is on {shares[0]:.1f} % of val and {shares[1]:.1f} % of test, p = "
        f"{p_values[k]:.3f}, adjusted for {val.num_labels} labels {holm(p_values)[k]:.2f}"
    )


def rate_of_halves(
    labels: tuple[str, ...], both: PredictedImages, num_val: int, num_new: int, seed: int
) -> float:
    """How often a redrawn val gives an alarm against random halves of the images that are not in it."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(both.present))
    val, others = both.take(order[:num_val]), order[num_val:]
    halves = [both.take(generator.permutation(others)[:num_new]) for _ in range(HALVES)]
    return float(np.mean(alarms(labels, [(val, half) for half in halves])))


def predict_changed(run: Path, kind: str, amount: str) -> PredictedImages:
    """What the model says of the images of val, changed."""
    predictor, settings = load_in_torch(run), RunFolder(run).read_settings()
    val = open_dataset(settings.data.spec, **settings.data.options).splits["val"].images
    images = (
        CHANGES[kind](val.load(row, min_side=predictor.image_size), float(amount)) for row in range(len(val))
    )
    found = list(predictor.predict_each(images))
    probabilities = np.array([[label.probability for label in one.labels] for one in found])
    return PredictedImages(
        probabilities,
        np.array([[label.present for label in one.labels] for one in found]),
        np.array([one.unfamiliarity for one in found], dtype=np.float64),
        np.array([one.feature_summary for one in found], dtype=np.float64),
    )


def blurred(image: Pixels, deviation: float) -> Pixels:
    radius = deviation * max(image.shape[:2]) / 256
    return np.array(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


CHANGES: dict[str, Callable[[Pixels, float], Pixels]] = {
    "blur": blurred,
    "dark": lambda image, factor: (factor * image).astype(np.uint8),
}


def print_changed(
    labels: tuple[str, ...], val: PredictedImages, changed: dict[str, PredictedImages], num_draws: int
) -> None:
    print("| changed | new images | draws | with an alarm | by the features | without their checks |")
    print("|---|---|---|---|---|---|")
    for name, images in changed.items():
        for number in BATCHES:
            found = []
            for seed in range(num_draws):
                order = np.random.default_rng(seed).permutation(len(val.present))
                drift = find_drift(labels, val.take(order[number:]), images.take(order[:number]))
                others = [one.p_value for one in drift.checks if not one.what.startswith("mean")]
                by_features = any(one.what.startswith("mean") for one in drift.found)
                found.append((bool(drift.found), by_features, holm(others).min() <= FALSE_ALARM_RATE))
            cells = [f"{100 * rate:.1f} %" for rate in np.mean(found, axis=0)]
            print("| " + " | ".join([name, str(number), str(num_draws), *cells]) + " |", flush=True)


def print_grouped(labels: tuple[str, ...], both: PredictedImages, pattern: str, num_draws: int) -> None:
    assert both.names is not None
    groups = np.array([re.findall(pattern, Path(name).name)[0] for name in both.names])
    found = []
    for seed in range(num_draws):
        drawn = np.random.default_rng(seed).permutation(np.unique(groups))
        in_val = np.isin(groups, drawn[: len(drawn) // 2])
        sides = [both.take(np.flatnonzero(side)) for side in (in_val, ~in_val)]
        thinned = [one_of_each_group(side, pattern) for side in sides]
        found.append([bool(find_drift(labels, *pair).found) for pair in (sides, thinned)])
    print("| compared | draws | with an alarm |\n|---|---|---|")
    for name, rate in zip(("all images", "one of each group"), np.mean(found, axis=0), strict=True):
        print(f"| {name} | {num_draws} | {100 * rate:.1f} % |")


def print_row(planted: str, share: str, found: list[bool]) -> None:
    print(f"| {planted} | {share} | {len(found)} | {100 * np.mean(found):.1f} % |", flush=True)


def alarms(labels: tuple[str, ...], pairs: list[Pair]) -> list[bool]:
    return [bool(find_drift(labels, val, new).found) for val, new in pairs]


def with_label(new: PredictedImages, both: PredictedImages, label: int, share: float) -> PredictedImages:
    """So many of the images replaced by ones in which the label was predicted, drawn with replacement."""
    number = round(share * len(new.present))
    having = np.flatnonzero(both.present[:, label])
    drawn = both.take(np.random.default_rng(0).choice(having, number))
    kept = new.take(np.arange(number, len(new.present)))
    return PredictedImages(*(_stacked(*pair) for pair in zip(kept, drawn, strict=True)))


def with_unfamiliar(images: PredictedImages, share: float) -> PredictedImages:
    """So many of the images get an unfamiliarity that almost no image of val has; labels stay."""
    if images.unfamiliarity is None:
        raise ValueError("the run has no unfamiliarity")
    changed = images.unfamiliarity.copy()
    changed[: round(share * len(changed))] = MOST_UNFAMILIAR
    return images._replace(unfamiliarity=changed)


if __name__ == "__main__":
    main()
