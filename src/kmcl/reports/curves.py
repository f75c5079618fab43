"""Curves behind the scores: precision against recall, reliability, risk against coverage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmcl.evaluation.temperature import Calibration
from kmcl.reports.blocks import Picture, Table, percent
from kmcl.reports.drawing import COLOURS, INK, legend_below, line_look, new_axes
from kmcl.reports.measured import RECALLS, Measured

NAMED_CURVES = 3
"""Labels named at either end of the precision-recall figure if there are too many to name all."""


def precision_recall_picture(one: Measured, ending: str = "") -> Picture:
    """All labels' curves: the best and the worst in colour, the others grey, their mean in black."""
    curves = one.precision_at_recalls
    labels = one.predictions.labels
    precisions = np.array([label.average_precision for label in one.evaluation.labels])
    ranked = [int(label) for label in np.argsort(-precisions) if not np.isnan(precisions[label])]
    few = len(ranked) <= 2 * NAMED_CURVES
    named = ranked if few else [*ranked[:NAMED_CURVES], *ranked[-NAMED_CURVES:]]
    figure, axes = new_axes(height=3.9)
    for label in ranked:
        if label not in named:
            axes.plot(RECALLS, curves[label], color="#9aa4ae", linewidth=0.7, alpha=0.7)
    for index, label in enumerate(named):
        look = line_look(index) | {"marker": ""}
        axes.plot(RECALLS, curves[label], label=f"{labels[label]} {percent(precisions[label])}", **look)
    mean = np.nanmean(curves[ranked], axis=0) if ranked else np.full(len(RECALLS), np.nan)
    axes.plot(RECALLS, mean, color=INK, linewidth=2.4, label="mean of all labels")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    axes.set_title("Precision and recall" + (f", {one.name}" if ending else ""))
    legend_below(axes, columns=2)
    coarse = slice(None, None, 5)
    header = ("label", *(f"precision at recall {recall:.1f}" for recall in RECALLS[coarse]))
    rows: list[tuple[str | float, ...]] = [
        (labels[label], *map(float, curves[label][coarse])) for label in ranked
    ]
    ends = f"best {labels[ranked[0]]}, worst {labels[ranked[-1]]}" if ranked else "no label has positives"
    return Picture(
        f"precision-recall{ending}",
        figure,
        alt=f"Precision against recall of {len(ranked)} labels of {one.name}; {ends}.",
        caption="The best precision at each recall or beyond. "
        + ("All labels." if few else "The best and worst labels by name with their AP, the others in grey."),
        numbers=Table.of("precision", header, rows),
    )


def reliability_picture(one: Measured, ending: str = "") -> Picture:
    """How often a label is present as a function of the predicted probability."""
    figure, axes = new_axes(height=3.9)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":", label="perfect")
    versions: list[tuple[str, Calibration]] = [("scores", one.summary.calibration_raw)]
    if one.summary.calibration_by_rules is not None:
        versions.append(("calibrated", one.summary.calibration_by_rules))
    rows: list[tuple[str | int | float, ...]] = []
    for index, (name, measured) in enumerate(versions):
        curve = measured.pooled_curve
        filled = curve.counts > 0
        error = percent(measured.pooled_error)
        axes.plot(
            curve.mean_scores[filled],
            curve.positive_rates[filled],
            label=f"{name}, error {error} %",
            **line_look(index),
        )
        rows += [
            (name, f"{low:.2f} to {high:.2f}", int(count), float(score), float(rate))
            for low, high, count, score, rate in zip(
                curve.lower, curve.upper, curve.counts, curve.mean_scores, curve.positive_rates, strict=True
            )
        ]
    axes.set(xlabel="probability the model gives", ylabel="share of pairs that have the label")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_title("Reliability" + (f", {one.name}" if ending else ""))
    legend_below(axes, columns=2)
    errors = ", ".join(f"{name} {percent(measured.pooled_error)} %" for name, measured in versions)
    return Picture(
        f"reliability{ending}",
        figure,
        alt=f"Reliability of the probabilities of {one.name}, expected calibration error: {errors}.",
        caption="All pairs of image and label in 15 bins. On the dotted line probabilities mean what they "
        "say; “calibrated” has a temperature and a bias per label, fitted on val.",
        numbers=Table.of(
            "reliability", ("", "bin", "pairs", "mean probability", "share that has the label"), rows
        ),
    )


def risk_coverage_picture(measured: Sequence[Measured]) -> Picture:
    """The error rate among the most certain decisions, for each uncertainty with an order of its own."""
    figure, axes = new_axes(height=3.9)
    rows: list[tuple[str | float, ...]] = []
    words = []
    index = 0
    for one in measured:
        reports = one.summary.uncertainty
        for report in reports.reports:
            if report.name in ("entropy", "rank_mean", "probability"):
                continue  # the order of `threshold`, or between it and `variance`
            name = f"{one.name}: {report.name}" if len(measured) > 1 else report.name
            look = line_look(index) | {"marker": ""}
            axes.plot(reports.coverages, 100 * report.risks, label=name, **look)
            rows.append((name, float(report.pooled.auroc), *(100 * float(risk) for risk in report.risks)))
            words.append(f"{name}: AUROC {report.pooled.auroc:.3f}")
            index += 1
        rate = reports.reports[0].pooled.error_rate
        axes.axhline(100 * rate, color=COLOURS[6], linewidth=0.8, linestyle=":")
    axes.set(xlabel="coverage: share of decisions kept, most certain first", ylabel="wrong decisions (%)")
    axes.set(xlim=(0, 1), title="Risk and coverage")
    axes.set_ylim(bottom=0)
    legend_below(axes, columns=2)
    coverages = measured[0].summary.uncertainty.coverages
    header = ("order by", "AUROC of errors", *(f"% wrong at {coverage:.2f}" for coverage in coverages))
    return Picture(
        "risk-coverage",
        figure,
        alt=f"Error rate among the most certain decisions. {'; '.join(words)}.",
        caption="Certain first: by distance to the threshold, by the kernels' variance, by both fitted on "
        "val, or by the calibrated probability of an error. Dotted: all decisions. A useful one stays below.",
        numbers=Table.of("risk at coverages", header, rows),
    )
