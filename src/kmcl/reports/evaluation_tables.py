"""The tables of `kmcl evaluate`, in 80 columns: runs are the columns A and B, named above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from kmcl.evaluation.bootstrap import BootstrapInterval, PairedDifference
from kmcl.evaluation.decisions import DECISIONS
from kmcl.evaluation.figures import OF_IMAGES, OF_LABELS
from kmcl.evaluation.json_values import JsonObject
from kmcl.evaluation.label_rules import MIN_THRESHOLD_SUPPORT
from kmcl.evaluation.levels import LevelMetrics
from kmcl.evaluation.metrics import Evaluation, LabelMetrics
from kmcl.progress import say
from kmcl.reports.guarantee_words import abstention_in_words, guarantee_in_words
from kmcl.runs.evaluation import RunEvaluation

LETTERS = "AB"


@dataclass(frozen=True)
class EvaluatedRuns:
    """What `kmcl evaluate` shows: one run, or two with the difference of the second to the first.

    data: other data that they were measured on; None for their own
    """

    runs: Sequence[RunEvaluation]
    data: str | None = None
    difference: PairedDifference | None = None

    def to_json(self) -> JsonObject:
        return {
            "runs": [run.to_json() for run in self.runs],
            "data": self.data,
            "difference": None if self.difference is None else self.difference.to_json(),
        }

    def show(self, console: Console) -> None:
        """Print every label, all metrics, and the difference."""
        split = self.runs[0].split
        of = split if self.data is None else f"{split} of {self.data}"
        evaluations = [run.evaluation for run in self.runs]
        first = evaluations[0]
        at = "each label's own threshold" if first.threshold is None else f"threshold {first.threshold:g}"
        if len(self.runs) > 1:
            for letter, run in zip(LETTERS, self.runs, strict=False):
                say(console, f"{letter}: {run.path}")
        title = f"{of}: {first.num_images} images, in %, at {at}"
        # Two runs are shown without thresholds.
        marked = self.runs[0].unsupported_thresholds if len(self.runs) == 1 else ()
        console.print(_label_table(title, evaluations, marked))
        if marked:
            console.print(
                f"* chosen on fewer than {MIN_THRESHOLD_SUPPORT} positives (or negatives) of val, which "
                "cannot support a threshold of the label's own",
                highlight=False,
            )
        console.print(_metric_table(evaluations, [run.map_interval for run in self.runs]))
        for run in self.runs:
            if run.levels:
                console.print(_level_table(run.path.name, run.levels))
        for run in self.runs:
            if (groups := run.map_interval.num_groups) is not None:
                say(console, f"{run.path}: the interval of mAP resamples {groups} groups")
        console.print("C: mean over labels, O: over all decisions; P precision, R recall.", highlight=False)
        for run in self.runs:
            if run.evaluation.labels_without_positives:
                names = ", ".join(run.evaluation.labels_without_positives)
                say(console, f"{run.path}: left out of means, without positives: {names}")
        if self.difference is not None:
            console.print(difference_in_words(self.difference), highlight=False)
        for run in self.runs:
            if run.achieved is not None and run.rules.guarantee is not None:
                words = guarantee_in_words(run.rules, run.rules.guarantee, run.achieved, of)
                say(console, f"{run.path}: {words}")
            if run.abstention is not None and run.abstention.error == run.abstention.error:
                say(console, f"{run.path}: {abstention_in_words(run.abstention, of)}")


def difference_in_words(found: PairedDifference) -> str:
    interval = found.difference
    return (
        f"difference in mAP, B minus A: {100 * interval.estimate:+.2f}, 95 % interval "
        f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}, p = {found.p_value:.3g} "
        f"(paired bootstrap, {interval.num_resamples} resamples)"
    )


def _label_table(title: str, evaluations: Sequence[Evaluation], marked: Sequence[str]) -> Table:
    """Of one run AP, AUC and the decisions; of two AP and F1 of both."""
    table = Table(title=title, padding=(0, 1))
    table.add_column("label", overflow="fold")
    names = (
        ["images", "AP", "AUC", "threshold", "precision", "recall"]
        if len(evaluations) == 1
        else ["images", *(f"AP {letter}" for letter in LETTERS), "B - A", *(f"F1 {x}" for x in LETTERS)]
    )
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for rows in zip(*(evaluation.labels for evaluation in evaluations), strict=True):
        cells = _of_one(rows[0], rows[0].label in marked) if len(rows) == 1 else _of_two(*rows)
        table.add_row(rows[0].label, str(rows[0].num_positives), *cells)
    return table


def _of_one(row: LabelMetrics, is_marked: bool) -> list[str]:
    ranked = [_percent(row.average_precision), _percent(row.auc)]
    return [*ranked, f"{row.threshold:.3f}{'*' * is_marked}", _percent(row.precision), _percent(row.recall)]


def _of_two(first: LabelMetrics, second: LabelMetrics) -> list[str]:
    gain = second.average_precision - first.average_precision
    precisions = [_percent(first.average_precision), _percent(second.average_precision)]
    shown = "-" if gain != gain else f"{100 * gain:+.2f}"
    return [*precisions, shown, _percent(first.f1), _percent(second.f1)]


def _metric_table(evaluations: Sequence[Evaluation], intervals: Sequence[BootstrapInterval]) -> Table:
    threshold = evaluations[0].threshold
    short = "own threshold" if threshold is None else f"at {threshold:g}"
    table = Table("", padding=(0, 1))
    for letter in LETTERS[: len(evaluations)]:
        table.add_column(letter if len(evaluations) > 1 else "%", justify="right", no_wrap=True)
    table.add_row("mAP", *(_percent(interval.estimate) for interval in intervals))
    bounds = [f"{_percent(interval.low)} to {_percent(interval.high)}" for interval in intervals]
    table.add_row("  95 % interval", *bounds)
    for group in range(len(evaluations[0].frequency_groups)):
        of_runs = [evaluation.frequency_groups[group] for evaluation in evaluations]
        values = [_percent(one.mean_average_precision) for one in of_runs]
        table.add_row(f"  of {of_runs[0].name} labels", *values)
    measured = [{"evaluation": evaluation.to_json()} for evaluation in evaluations]
    for figure in OF_LABELS[1:]:
        table.add_row(figure.title, *(_percent(figure.of(one)) for one in measured))
    k = evaluations[0].k
    for title, attribute in (
        (short, "at_threshold"),
        (f"top {k}", "top_k"),
        ("both of them", "top_k_at_threshold"),
    ):
        for first in range(0, len(DECISIONS), 3):
            names = DECISIONS[first : first + 3]
            cells = [
                " / ".join(_percent(getattr(getattr(evaluation, attribute), name)) for name in names)
                for evaluation in evaluations
            ]
            table.add_row(f"{' / '.join(names)}, {title}", *cells)
    for figure in OF_IMAGES:
        table.add_row(figure.title, *(_percent(figure.of(one)) for one in measured))
    coverages = [f"{evaluation.image_ranking.coverage:.2f}" for evaluation in evaluations]
    table.add_row("coverage (labels, not %)", *coverages)
    return table


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f}"


def _level_table(name: str, levels: Sequence[LevelMetrics]) -> Table:
    table = Table(title=f"{name}: levels of the labels, in %", title_justify="left")
    for column in ("level", "labels", "mAP", "AUC", "CP", "CR", "CF1"):
        table.add_column(column, justify="right")
    for level in levels:
        values = (level.mean_average_precision, level.mean_auc, level.CP, level.CR, level.CF1)
        cells = ["-" if value != value else f"{100 * value:.1f}" for value in values]
        table.add_row(str(level.level), str(len(level.labels)), *cells)
    return table
