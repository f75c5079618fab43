"""`kmcl monitor`: drift between val and new predictions, as a page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from kmcl.data.groups import units_of_rows
from kmcl.data.image_paths import GivenPaths, path_texts
from kmcl.evaluation.drift import (
    FALSE_ALARM_RATE,
    Check,
    Drift,
    PredictedImages,
    find_drift,
    one_of_each_group,
    predicted_images,
)
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.models.folder import read_description
from kmcl.reports.blocks import Missing, Picture, Section, Table, Text, percent
from kmcl.reports.drawing import dot_look, figure_style, legend_below, line_look, new_axes, shorten
from kmcl.reports.page import write_page
from kmcl.reports.prediction_files import read_predictions
from kmcl.runs.folder import RunFolder
from kmcl.storage.atomic import write_json

FILE_NAME = "monitor.html"
JSON_NAME = "monitor.json"
NO_UNFAMILIARITY = (
    "Unfamiliar images are not compared: the model, its predictions of val, or the new files have no "
    "unfamiliarity."
)
NO_FEATURES = (
    "Feature means are not compared: the model, its predictions of val, or the new files do not have them. "
    "kmcl predict --features writes them, and kmcl train those of val."
)

SEVERAL_OF_A_GROUP = (
    "Val has several images of a group (a patient or a scene), which are not independent, so expect false "
    "alarms. --group PATTERN compares one image of each group."
)


def compare_with_val(
    run: Path, files: Sequence[Path], false_alarm_rate: float = FALSE_ALARM_RATE, group: str | None = None
) -> tuple[Drift, list[Section]]:
    """Compare files of `kmcl predict` with the run's predictions of val; returns the page's sections too.

    group: a regular expression for the part of a file name that is its group; one image of each is compared
    """
    folder = RunFolder(run)
    rules = read_description(folder.model).rules
    of_val = Predictions.load(folder.predictions_file("val"))
    val, new = predicted_images(of_val, rules), read_predictions(files, rules)
    if group is not None:
        val, new = (one_of_each_group(images, group) for images in (val, new))
    drift = find_drift(rules.labels, val, new, false_alarm_rate)
    if group is None and int(units_of_rows(of_val.groups, len(of_val)).max(initial=-1)) + 1 < len(of_val):
        drift = replace(drift, notes=(SEVERAL_OF_A_GROUP,))
    sections = [_summary_section(drift), _inputs_section(drift, val, new), _labels_section(drift)]
    return drift, sections


@dataclass(frozen=True)
class Monitored:
    """What was found, and the page that says it."""

    drift: Drift
    page: Path

    def to_json(self) -> JsonObject:
        return {"drift": bool(self.drift.found), **to_json_object(self.drift)}

    def in_words(self, check: Check) -> str:
        return describe_check(check)


def monitor(
    run: str | PathLike[str],
    files: GivenPaths,
    *,
    output: str | PathLike[str] | None = None,
    false_alarms: float = FALSE_ALARM_RATE,
    group: str | None = None,
) -> Monitored:
    """Compare new predictions, files that `predict` wrote, with those of val.

    output:       folder; RUN/monitor if not given
    false_alarms: probability of any alarm where nothing has changed
    group:        a pattern for the part of a file name that is its group; one image of each is compared
    """
    path = Path(run)
    folder = path / "monitor" if output is None else Path(output)
    drift, sections = compare_with_val(path, [Path(file) for file in path_texts(files)], false_alarms, group)
    monitored = Monitored(drift, folder / FILE_NAME)
    write_json(folder / JSON_NAME, monitored.to_json())
    subtitle = f"{drift.num_new} new images against {drift.num_val} of val."
    write_page(folder, FILE_NAME, f"Drift of {path.resolve().name}", subtitle, sections)
    return monitored


def describe_check(check: Check) -> str:
    """A finding in words."""
    if check.what == "unfamiliar share":
        return f"{percent(check.new)} % of the images are unfamiliar, {percent(check.val)} % of val"
    if check.what == "unfamiliarity":
        return f"unfamiliarity has another distribution: mean {check.new:.3f}, of val {check.val:.3f}"
    if check.what.startswith("mean of feature"):
        return f"{check.what} is {check.new:.3f}, of val {check.val:.3f}"
    if check.what == "label rate":
        return (
            f"{check.label} is present in {percent(check.new)} % of the images, {percent(check.val)} % of val"
        )
    return (
        f"{check.label} has another distribution of probabilities: mean {percent(check.new)} %, "
        f"of val {percent(check.val)} %"
    )


def _summary_section(drift: Drift) -> Section:
    section = Section("Summary")
    rate = f"{100 * drift.false_alarm_rate:g} %"
    if drift.found:
        section.add(Text(f"Drift: {len(drift.found)} of {len(drift.checks)} checks differ from val."))
        rows = [(describe_check(check), check.adjusted) for check in drift.found]
        section.add(Table.of("What has changed, the clearest first", ("finding", "adjusted p-value"), rows))
    else:
        section.add(Text(f"No drift: none of {len(drift.checks)} checks differs from val."))
    section.add(
        Text(
            f"Where nothing has changed, the probability that any check differs is at most {rate}: Fisher's "
            "exact test for shares, the test of Kolmogorov and Smirnov for distributions and Wilcoxon's "
            "rank-sum test for means of features, adjusted by Holm's method. Images are taken to be "
            "independent of each other."
        )
    )
    for note in drift.notes:
        section.add(Text(note))
    return section


def _inputs_section(drift: Drift, val: PredictedImages, new: PredictedImages) -> Section:
    section = Section("Images")
    of_images = [check for check in drift.checks if check.label is None]
    if val.unfamiliarity is None or new.unfamiliarity is None:
        section.add(Missing(NO_UNFAMILIARITY))
    else:
        with figure_style():
            section.add(_unfamiliarity_picture(val.unfamiliarity, new.unfamiliarity))
        section.add(_table("Unfamiliarity", [one for one in of_images if one.what.startswith("unfamiliar")]))
    if val.features is None or new.features is None:
        section.add(Missing(NO_FEATURES))
    else:
        section.add(_table("Features", [one for one in of_images if one.what.startswith("mean")]))
    return section


def _unfamiliarity_picture(val: np.typing.NDArray[np.float64], new: np.typing.NDArray[np.float64]) -> Picture:
    figure, axes = new_axes()
    edges = np.linspace(0, 1, 21)
    shares = [np.histogram(values, edges)[0] / len(values) for values in (val, new)]
    for index, (name, share) in enumerate(zip(("val", "new images"), shares, strict=True)):
        axes.stairs(share, edges, label=name, color=line_look(index)["color"], linewidth=1.8)
    axes.set(xlabel="unfamiliarity", ylabel="share of the images", title="Unfamiliarity")
    legend_below(axes)
    rows = [
        (f"{low:.2f} to {high:.2f}", float(one), float(other))
        for low, high, one, other in zip(edges[:-1], edges[1:], *shares, strict=True)
    ]
    return Picture(
        "unfamiliarity",
        figure,
        alt=f"Histogram of unfamiliarity. From 0.95: {percent(shares[1][-1])} % of the new images, "
        f"{percent(shares[0][-1])} % of val.",
        caption="How unlike the training images the images are. Images like those of val are spread evenly; "
        "those from 0.95 count as unfamiliar.",
        numbers=Table.of("shares", ("unfamiliarity", "val", "new images"), rows),
    )


def _labels_section(drift: Drift) -> Section:
    section = Section("Labels")
    rates = [check for check in drift.checks if check.what == "label rate"]
    with figure_style():
        section.add(_rates_picture(rates))
    section.add(_table("Labels", [check for check in drift.checks if check.label is not None]))
    return section


def _rates_picture(rates: Sequence[Check]) -> Picture:
    order = sorted(rates, key=lambda check: check.val)
    names = shorten([check.label or "" for check in order])
    figure, axes = new_axes(height=1.4 + 0.24 * max(len(order), 8))
    places = np.arange(len(order))
    for index, (name, values) in enumerate(
        (("val", [check.val for check in order]), ("new images", [check.new for check in order]))
    ):
        axes.plot(100 * np.array(values), places, linestyle="", label=name, **dot_look(index))
    axes.set_yticks(places, names, fontsize=7.5)
    axes.set(xlabel="images in which the label is present (%)", title="Predicted labels")
    legend_below(axes)
    changed = ", ".join(check.label or "" for check in rates if check.is_drift) or "none"
    return Picture(
        "label-rates",
        figure,
        alt=f"How often each label is predicted in val and in the new images. Changed: {changed}.",
        caption="How often each label is predicted.",
        numbers=Table.of("shares", ("label", "val", "new"), [(c.label, c.val, c.new) for c in rates]),
    )


def _table(caption: str, checks: Sequence[Check]) -> Table:
    """Checks of labels, or of whole images, which have no column of labels."""
    of_labels = any(check.label is not None for check in checks)
    rows = [
        (
            *([check.label] if of_labels else []),
            check.what,
            check.val,
            check.new,
            check.adjusted,
            "yes" * check.is_drift,
        )
        for check in checks
    ]
    names = ["label"] if of_labels else []
    return Table.of(caption, (*names, "compared", "val", "new", "adjusted p-value", "drift"), rows)
