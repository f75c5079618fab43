"""The tables of `kmcl evaluate`, in 80 columns: runs are the columns A and B, named above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kmcl.evaluation.bootstrap import BootstrapInterval, PairedDifference
from kmcl.evaluation.label_rules import MIN_THRESHOLD_SUPPORT
from kmcl.evaluation.levels import LevelMetrics
from kmcl.evaluation.metrics import Evaluation, LabelMetrics

DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
LETTERS = "AB"


def print_evaluations(
    console: Console,
    runs: Mapping[Path, tuple[Evaluation, BootstrapInterval]],
    of: str,
    difference: PairedDifference | None = None,
    unsupported: Sequence[Sequence[str]] = ((), ()),
    levels: Sequence[Sequence[LevelMetrics]] = ((), ()),
) -> None:
    """Print every label, all metrics, and for two runs the difference of the second to the first.

    of:          what was measured, as in "test"
    unsupported: of each run, the labels whose threshold was chosen on too few images of val
    levels:      of each run, the metrics by level where labels have parents
    """
    evaluations = [evaluation for evaluation, _ in runs.values()]
    first = evaluations[0]
    at = "each label's own threshold" if first.threshold is None else f"threshold {first.threshold:g}"
    if len(runs) > 1:
        for letter, path in zip(LETTERS, runs, strict=False):
            console.print(f"{letter}: {path}", soft_wrap=True, highlight=False, markup=False)
    title = f"{of}: {first.num_images} images, in %, at {at}"
    marked = unsupported[0] if len(runs) == 1 else ()  # the table of two runs has no thresholds
    console.print(_label_table(title, evaluations, marked))
    if marked:
        console.print(
            f"* chosen on fewer than {MIN_THRESHOLD_SUPPORT} positives (or negatives) of val, which cannot "
            "support a threshold of the label's own",
            highlight=False,
        )
    console.print(_metric_table(list(runs.values())))
    for path, of_run in zip(runs, levels, strict=False):
        if of_run:
            console.print(_level_table(path.name, of_run))
    for path, (_, interval) in runs.items():
        if interval.num_groups is not None:
            text = f"{path}: the interval of mAP resamples {interval.num_groups} groups"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
    console.print("C: mean over labels, O: over all decisions; P precision, R recall.", highlight=False)
    for path, evaluation in zip(runs, evaluations, strict=True):
        if evaluation.labels_without_positives:
            names = ", ".join(evaluation.labels_without_positives)
            text = f"{path}: left out of means, without positives: {names}"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
    if difference is not None:
        console.print(difference_in_words(difference), highlight=False)


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


def _metric_table(runs: Sequence[tuple[Evaluation, BootstrapInterval]]) -> Table:
    evaluations = [evaluation for evaluation, _ in runs]
    threshold = evaluations[0].threshold
    short = "own threshold" if threshold is None else f"at {threshold:g}"
    table = Table("", padding=(0, 1))
    for letter in LETTERS[: len(runs)]:
        table.add_column(letter if len(runs) > 1 else "%", justify="right", no_wrap=True)
    table.add_row("mAP", *(_percent(interval.estimate) for _, interval in runs))
    bounds = [f"{_percent(interval.low)} to {_percent(interval.high)}" for _, interval in runs]
    table.add_row("  95 % interval", *bounds)
    for group in range(len(evaluations[0].frequency_groups)):
        of_runs = [evaluation.frequency_groups[group] for evaluation in evaluations]
        values = [_percent(one.mean_average_precision) for one in of_runs]
        table.add_row(f"  of {of_runs[0].name} labels", *values)
    table.add_row("mean AUC", *(_percent(evaluation.mean_auc) for evaluation in evaluations))
    k = evaluations[0].k
    for title, attribute in (
        (short, "at_threshold"),
        (f"top {k}", "top_k"),
        ("both of them", "top_k_at_threshold"),
    ):
        for names in (DECISIONS[:3], DECISIONS[3:]):
            cells = [
                " / ".join(_percent(getattr(getattr(evaluation, attribute), name)) for name in names)
                for evaluation in evaluations
            ]
            table.add_row(f"{' / '.join(names)}, {title}", *cells)
    rankings = [evaluation.image_ranking for evaluation in evaluations]
    table.add_row("ranking loss", *(_percent(ranking.ranking_loss) for ranking in rankings))
    table.add_row("coverage (labels, not %)", *(f"{ranking.coverage:.2f}" for ranking in rankings))
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
