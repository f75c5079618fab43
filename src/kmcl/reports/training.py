"""The section on training: losses and mAP of training and val, learning rate and time, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Missing, Picture, Section, Table, Text, percent, slug
from kmcl.reports.drawing import figure_style, legend_below, line_look, new_axes, whole_number_ticks
from kmcl.reports.run_parts import RunParts

Columns = Mapping[str, Values]

MAPS = {
    "model": "val/map_model",
    "moving average": "val/map_average",
    "model on training images": "train/map",
}
"""The curves of mAP, and their columns."""
METRICS = ("train/map", "val/map", "val/auc")
"""How columns begin that are no terms of the loss."""


def training_section(runs: Sequence[RunParts]) -> Section:
    section = Section("Training")
    trained = [(run, run.epochs) for run in runs if run.epochs is not None]
    section.add(
        *(Missing(f"{run.name} has no readable record of its epochs.") for run in runs if run.epochs is None)
    )
    for run, epochs in trained:
        section.add(Text(_in_words(run, epochs)))
    with figure_style():
        for run, epochs in trained:
            section.add(*loss_pictures(run.name, epochs, many=len(runs) > 1))
        histories = {run.name: epochs for run, epochs in trained}
        if histories:
            section.add(map_picture(histories), rate_picture(histories), seconds_picture(histories))
    return section


def loss_terms(epochs: Columns, split: str = "train") -> dict[str, Values]:
    """The total and its unweighted terms, by name; the term alone where there is one."""
    total_name = f"{split}/loss"
    total = {"total": epochs[total_name]} if total_name in epochs else {}
    terms = {
        name.removeprefix(f"{split}/"): values
        for name, values in epochs.items()
        if name.startswith(f"{split}/") and name != total_name and not name.startswith(METRICS)
    }
    # A method with one term minimises just that.
    return terms if len(terms) == 1 else total | terms


def normalise(values: Values) -> Values:
    """A curve as a multiple of its first finite value; NaN where that is 0 or there is none."""
    finite = values[np.isfinite(values)]
    first = float(finite[0]) if len(finite) and finite[0] != 0 else np.nan
    return np.asarray(values / first)


def loss_pictures(run: str, epochs: Columns, many: bool) -> list[Picture]:
    """Total and terms, raw and as multiples of the first epoch (the paper's loss figure).

    Those of training are solid; those of val dashed, in the same colour, with hollow markers.
    """
    terms = loss_terms(epochs)
    of_val = {f"{name}, val": values for name, values in loss_terms(epochs, "val").items() if name in terms}
    terms = terms | of_val
    ending = f"-{slug(run)}" if many else ""
    of_run = f", {run}" if many else ""
    versions = (
        ("losses", f"Losses{of_run}", "loss", terms),
        (
            "losses-normalised",
            f"Losses relative to the first epoch{of_run}",
            "loss / loss of the first epoch",
            {name: normalise(values) for name, values in terms.items()},
        ),
    )
    pictures = []
    for name, title, axis, curves in versions:
        figure, axes = new_axes()
        colours = {term: index for index, term in enumerate(term for term in curves if term not in of_val)}
        for term, values in curves.items():
            look = line_look(colours[term.removesuffix(", val")])
            if of_val:
                look["linestyle"] = "--" if term in of_val else "-"
                look["markerfacecolor"] = "none" if term in of_val else look["color"]
            axes.plot(epochs["epoch"], values, label=term, **look)
        axes.set(xlabel="epoch", ylabel=axis, title=title)
        whole_number_ticks(axes)
        legend_below(axes, columns=2)
        ends = "; ".join(f"{term} from {v[0]:.4g} to {v[-1]:.4g}" for term, v in curves.items())
        pictures.append(
            Picture(
                name + ending,
                figure,
                alt=f"{title}, over {len(epochs['epoch'])} epochs: {ends}.",
                caption="The total is the weighted sum that is minimised; the terms are unweighted. Dashed: "
                "the model on val."
                if name == "losses"
                else "Each curve divided by its value in the first epoch: which term still falls.",
                numbers=Table.of("losses", ("epoch", *curves), _rows(epochs["epoch"], curves)),
            )
        )
    return pictures


def map_picture(histories: Mapping[str, Columns]) -> Picture:
    """mAP on val of the head and of its average, and on some training images; without post-hoc parts."""
    curves = {
        f"{run}: {what}" if len(histories) > 1 else what: (epochs["epoch"], 100 * epochs[column])
        for run, epochs in histories.items()
        for what, column in MAPS.items()
        if column in epochs
    }
    best = "; ".join(f"{name}: best {np.nanmax(values):.1f} %" for name, (_, values) in _defined(curves))
    return _curves_picture(
        "val-map",
        curves,
        "mAP on val, and on training images",
        "mAP (%)",
        f"mAP on val, and on at most 512 training images, of the head without post-hoc parts. {best}.",
        f"Without post-hoc parts, which are fitted after training. {best}." if best else "No val split.",
    )


def rate_picture(histories: Mapping[str, Columns]) -> Picture:
    curves = {run: (e["epoch"], e["learning_rate"]) for run, e in histories.items() if "learning_rate" in e}
    highest = "; ".join(f"{name}: highest {np.nanmax(v):.2g}" for name, (_, v) in _defined(curves))
    picture = _curves_picture(
        "learning-rate",
        curves,
        "Learning rate",
        "learning rate",
        f"Learning rate at each epoch's end. {highest}.",
        "At the end of each epoch.",
    )
    picture.figure.axes[0].ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    return picture


def seconds_picture(histories: Mapping[str, Columns]) -> Picture:
    curves = {run: (e["epoch"], e["seconds"]) for run, e in histories.items() if "seconds" in e}
    totals = "; ".join(f"{name}: {np.nansum(v):.0f} s in all" for name, (_, v) in _defined(curves))
    picture = _curves_picture(
        "seconds",
        curves,
        "Time per epoch",
        "seconds",
        f"Seconds per epoch. {totals}.",
        f"With validation. {totals}.",
    )
    picture.figure.axes[0].set_ylim(bottom=0)
    return picture


def _curves_picture(
    name: str, curves: Mapping[str, tuple[Values, Values]], title: str, axis: str, alt: str, caption: str
) -> Picture:
    figure, axes = new_axes()
    for index, (curve, (epochs, values)) in enumerate(curves.items()):
        axes.plot(epochs, values, label=curve, **line_look(index))
    axes.set(xlabel="epoch", ylabel=axis, title=title)
    whole_number_ticks(axes)
    if len(curves) > 1:
        legend_below(axes, columns=2)
    longest = max((epochs for epochs, _ in curves.values()), key=len, default=np.array([]))
    padded = {
        curve: np.concatenate([values, np.full(len(longest) - len(values), np.nan)])
        for curve, (_, values) in curves.items()
    }
    numbers = Table.of(title, ("epoch", *curves), _rows(longest, padded))
    return Picture(name, figure, alt, caption, numbers)


def _defined(curves: Mapping[str, tuple[Values, Values]]) -> list[tuple[str, tuple[Values, Values]]]:
    return [(name, curve) for name, curve in curves.items() if np.isfinite(curve[1]).any()]


def _rows(epochs: Values, curves: Mapping[str, Values]) -> list[tuple[float | int, ...]]:
    return [
        (int(epoch), *(float(values[row]) for values in curves.values())) for row, epoch in enumerate(epochs)
    ]


def _in_words(run: RunParts, epochs: Columns) -> str:
    best = (run.metrics or {}).get("best")
    seconds = float(np.nansum(epochs["seconds"])) if "seconds" in epochs else float("nan")
    words = f"{run.name}: {len(epochs['epoch'])} epochs in {_duration(seconds)}"
    if isinstance(best, dict) and isinstance(best.get("val_map"), float):
        what = "moving average" if best.get("is_average") else "model"
        words += (
            f"; kept the {what} of epoch {best.get('epoch', -1) + 1}, mAP on val {percent(best['val_map'])} %"
        )
        head = best.get("head_val_map")
        if isinstance(head, float) and head != best["val_map"]:
            words += f" with its post-hoc parts, {percent(head)} % by the head alone"
    return words + "."


def _duration(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
