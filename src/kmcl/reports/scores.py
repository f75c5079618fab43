"""The section on scores: the metric table, every label, and the curves behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmcl.evaluation.figures import FIGURES
from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Cell, Missing, Picture, Section, Table, Text, percent, slug
from kmcl.reports.curves import precision_recall_picture, reliability_picture, risk_coverage_picture
from kmcl.reports.drawing import (
    COLOURS,
    FULL_WIDTH,
    HALF_WIDTH,
    dot_look,
    figure_style,
    legend_below,
    new_axes,
    shorten,
)
from kmcl.reports.measured import SCORE_THRESHOLD, Measured
from kmcl.reports.run_parts import RunParts


def scores_section(runs: Sequence[RunParts], measured: Sequence[Measured]) -> Section:
    section = Section("Scores")
    found = {one.name for one in measured}
    section.add(
        *(
            Missing(f"{run.name} has no readable predictions of test or val, so no scores.")
            for run in runs
            if run.name not in found
        )
    )
    if not measured:
        return section
    section.add(*(Text(_in_words(one)) for one in measured))
    section.add(metric_table(measured))
    section.add(*(label_table(one, many=len(measured) > 1) for one in measured))
    section.add(*(table for one in measured if (table := level_table(one)) is not None))
    with figure_style():
        same_labels = [one for one in measured if one.predictions.labels == measured[0].predictions.labels]
        section.add(average_precision_picture(same_labels))
        if any(one.own is not None for one in same_labels):
            section.add(threshold_picture(same_labels))
        section.add(*(precision_recall_picture(one, _ending(measured, one)) for one in measured))
        section.add(*(reliability_picture(one, _ending(measured, one)) for one in measured))
        section.add(risk_coverage_picture(measured))
    return section


def metric_table(measured: Sequence[Measured]) -> Table:
    """One column per run, percentages."""
    found = [one.as_shown() for one in measured]
    rows: list[tuple[Cell, ...]] = [
        (figure.title, *(percent(figure.of(of_run), 2) for of_run in found)) for figure in FIGURES
    ]
    rows.insert(1, ("mAP, 95 % interval", *(one.interval_in_words() for one in measured)))
    rows.append(("images", *(len(one.predictions) for one in measured)))
    splits = ", ".join(dict.fromkeys(one.split for one in measured))
    caption = f"Metrics on {splits}, in %; the fixed threshold is a score of {SCORE_THRESHOLD:g}"
    return Table.of(caption, ("", *(one.name for one in measured)), rows)


def level_table(one: Measured) -> Table | None:
    """The levels of the labels; None where no label has parents."""
    levels = one.summary.levels
    if not levels:
        return None
    rows: list[tuple[Cell, ...]] = [
        (
            level.level,
            len(level.labels),
            *(percent(value) for value in (level.mean_average_precision, level.CP, level.CR, level.CF1)),
        )
        for level in levels
    ]
    caption = f"Levels of the labels, {one.name}: 1 without parents, 2 their children"
    return Table.of(caption, ("level", "labels", "mAP %", "CP %", "CR %", "CF1 %"), rows)


def label_table(one: Measured, many: bool) -> Table:
    """Every label: how often it occurs, how well it is ranked and decided."""
    decided = one.own or one.evaluation
    header = ("label", "images", "AP %", "AUC %", "threshold", "precision %", "recall %", "F1 %")
    rows = [
        (
            label.label,
            label.num_positives,
            percent(label.average_precision),
            percent(label.auc),
            f"{label.threshold:.3f}",
            percent(label.precision),
            percent(label.recall),
            percent(label.f1),
        )
        for label in decided.labels
    ]
    whose = f", {one.name}" if many else ""
    how = "at each label's own threshold, chosen on val" if one.own else "at a score of 0.5"
    return Table.of(f"Labels{whose}, {how}", header, rows, open=len(rows) <= 30 and not many)


def average_precision_picture(measured: Sequence[Measured]) -> Picture:
    """Bars of the labels' average precision with their counts; one marker per run where there are several."""
    values = np.array([[label.average_precision for label in one.evaluation.labels] for one in measured])
    counts = [label.num_positives for label in measured[0].evaluation.labels]
    mean = measured[0].evaluation.mean_average_precision
    return per_label_picture(
        "average-precision",
        measured,
        100 * values,
        counts,
        title=f"Average precision per label, {measured[0].split}",
        axis="average precision (%)",
        caption="Labels by average precision, with the number of images that carry them. The line is mAP"
        + (f" of {measured[0].name}." if len(measured) > 1 else "."),
        reference=100 * mean,
    )


def threshold_picture(measured: Sequence[Measured]) -> Picture:
    own = [one for one in measured if one.own is not None]
    values = np.array([[label.threshold for label in one.own.labels] for one in own if one.own is not None])
    counts = [label.num_positives for label in own[0].evaluation.labels]
    return per_label_picture(
        "thresholds",
        own,
        values,
        counts,
        title="Chosen thresholds",
        axis="threshold (a probability)",
        caption="The calibrated probability from which a label counts as present, chosen on val.",
        reference=0.5,
    )


def per_label_picture(
    name: str,
    measured: Sequence[Measured],
    values: Values,
    counts: Sequence[int],
    *,
    title: str,
    axis: str,
    caption: str,
    reference: float,
) -> Picture:
    """values: runs x labels. Sorted by the first run, highest at the top."""
    labels = measured[0].predictions.labels
    order = np.argsort(np.nan_to_num(values[0], nan=-1), kind="stable")
    many_labels = len(labels) > 30
    figure, axes = new_axes(
        FULL_WIDTH if many_labels else HALF_WIDTH, 1.3 + (0.15 if many_labels else 0.2) * max(len(labels), 8)
    )
    places = np.arange(len(labels))
    if len(measured) == 1:
        axes.barh(places, values[0, order], color=COLOURS[0], height=0.72)
    for index, one in enumerate(measured if len(measured) > 1 else ()):
        axes.scatter(values[index, order], places, s=26, label=one.name, **dot_look(index))
    axes.axvline(reference, color=COLOURS[4], linewidth=1.2, linestyle="--")
    names = shorten(labels)
    axes.set_yticks(
        places, [f"{names[label]} ({counts[label]})" for label in order], fontsize=7 if many_labels else 7.5
    )
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_xlim(left=0)
    axes.set(xlabel=axis, title=title)
    if len(measured) > 1:
        legend_below(axes, columns=2)
    best, worst = labels[order[-1]], labels[order[0]]
    alt = f"{title}: from {worst} {values[0, order[0]]:.3g} to {best} {values[0, order[-1]]:.3g}."
    header = ("label", "images", *(one.name if len(measured) > 1 else axis for one in measured))
    rows = [(labels[label], counts[label], *map(float, values[:, label])) for label in order[::-1]]
    return Picture(name, figure, alt, caption, Table.of(axis, header, rows), wide=many_labels)


def _ending(measured: Sequence[Measured], one: Measured) -> str:
    return f"-{slug(one.name)}" if len(measured) > 1 else ""


def _in_words(one: Measured) -> str:
    evaluation, interval = one.evaluation, one.summary.map_interval
    words = (
        f"{one.name}: mAP {percent(evaluation.mean_average_precision)} % on {len(one.predictions)} images of "
        f"{one.split}, 95 % interval {percent(interval.low)} to {percent(interval.high)} %"
    )
    if evaluation.labels_without_positives:
        words += f"; left out, without positives: {', '.join(evaluation.labels_without_positives)}"
    if one.split != "test":
        words += "; there is no test split, so these figures are those the weights were chosen on"
    return words + "."
