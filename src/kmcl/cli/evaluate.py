"""`kmcl evaluate`: the metrics of a run, or of two runs with their difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kmcl.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from kmcl.evaluation.bootstrap import PairedDifference
    from kmcl.evaluation.metrics import Evaluation


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [OTHER]", help="One or two run folders.")],
    split: Annotated[str, typer.Option(help="val or test.")] = "test",
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, max=1, help="For all labels.", show_default="each label's own, chosen on val"),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Labels per image of the top-k metrics.")] = 3,
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    published: Annotated[
        bool, typer.Option("--published", help="Show the runs among the paper's figures of their dataset.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the metrics of a run's predictions; with two runs, the paired difference of their mAP."""
    if len(runs) > 2:
        raise InputError(f"kmcl evaluate takes one run or two; got {len(runs)}")
    if split not in ("val", "test"):
        raise InputError(f"--split must be val or test; got {split!r}")
    if published:
        _print_published(runs, split)
        return
    import numpy as np
    from rich.console import Console

    from kmcl.api import Run
    from kmcl.api import evaluate as evaluate_run
    from kmcl.evaluation.bootstrap import bootstrap_map, compare_map

    found = [Run(path) for path in runs]
    evaluations = [evaluate_run(run, split=split, threshold=threshold, top_k=top_k) for run in found]
    predictions = [run.predictions(split) for run in found]
    intervals = [bootstrap_map(p, np.random.default_rng(seed), resamples) for p in predictions]
    difference = None
    if len(runs) == 2:
        difference = compare_map(predictions[0], predictions[1], np.random.default_rng(seed), resamples)
    if as_json:
        result = {
            "runs": [
                {"run": str(path), "split": split, **evaluation.to_json(), "map_interval": interval.to_json()}
                for path, evaluation, interval in zip(runs, evaluations, intervals, strict=True)
            ],
            "difference": None if difference is None else difference.to_json(),
        }
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console()
    _print_evaluations(console, dict(zip(map(str, runs), evaluations, strict=True)), split)
    for path, interval in zip(runs, intervals, strict=True):
        console.print(
            f"{path}: mAP {100 * interval.estimate:.2f}, 95 % interval {100 * interval.low:.2f} to "
            f"{100 * interval.high:.2f}",
            soft_wrap=True,
        )
    if difference is not None:
        _print_difference(console, difference)


def _print_published(runs: list[Path], split: str) -> None:
    from kmcl.studies.published_tables import OwnRow, among_published, published_table, published_tables
    from kmcl.training.run_folder import RunFolder

    rows = []
    for path in runs:
        run = RunFolder(path)
        settings, measured = run.read_settings(), run.read_metrics().get(split)
        if not measured:
            raise InputError(f"{path}: the run has no metrics of {split}")
        rows.append(OwnRow(path.name, settings, [measured["evaluation"]]))
    table = published_table(rows[0].settings.data.spec)
    if table is None:
        known = ", ".join(name for name in published_tables() if name != "ablation")
        raise InputError(f"--published: the paper has figures of {known}; got {rows[0].settings.data.spec!r}")
    others = [row.settings.data.spec for row in rows if published_table(row.settings.data.spec) != table]
    if others:
        raise InputError(
            f"--published: the runs are of different data: {rows[0].settings.data.spec}, {others[0]}"
        )
    typer.echo(among_published(table, rows, split))


def _print_evaluations(console: Console, evaluations: dict[str, Evaluation], split: str) -> None:
    from rich.table import Table

    first = next(iter(evaluations.values()))
    at = "each label's own threshold" if first.threshold is None else f"threshold {first.threshold:g}"
    table = Table(title=f"{split}: {first.num_images} images, in %, at {at}")
    for column in ("label", "positives"):
        table.add_column(column, justify="left" if column == "label" else "right")
    for name in evaluations:
        for column in ("AP", "AUC", "threshold", "precision", "recall"):
            table.add_column(
                column if len(evaluations) == 1 else f"{column}\n{Path(name).name}", justify="right"
            )
    for rows in zip(*(evaluation.labels for evaluation in evaluations.values()), strict=True):
        cells = []
        for row in rows:
            cells += [_percent(row.average_precision), _percent(row.auc), f"{row.threshold:.3f}"]
            cells += [_percent(row.precision), _percent(row.recall)]
        table.add_row(rows[0].label, str(rows[0].num_positives), *cells)
    console.print(table)
    for name, evaluation in evaluations.items():
        for title, metrics in (
            (at, evaluation.at_threshold),
            (f"top {evaluation.k}", evaluation.top_k),
            (f"top {evaluation.k} that reach it", evaluation.top_k_at_threshold),
        ):
            figures = "  ".join(
                f"{short} {_percent(getattr(metrics, short))}"
                for short in ("CP", "CR", "CF1", "OP", "OR", "OF1")
            )
            console.print(f"{name}, {title}: {figures}", soft_wrap=True)
        ranking = evaluation.image_ranking
        groups = "  ".join(
            f"{group.name} {_percent(group.mean_average_precision)}" for group in evaluation.frequency_groups
        )
        console.print(
            f"{name}: mean AUC {_percent(evaluation.mean_auc)}  ranking loss {ranking.ranking_loss:.4f}  "
            f"coverage {ranking.coverage:.2f}  mAP of labels {groups}",
            soft_wrap=True,
        )
        if evaluation.labels_without_positives:
            names = ", ".join(evaluation.labels_without_positives)
            console.print(f"{name}: left out of means, without positives: {names}", soft_wrap=True)


def _print_difference(console: Console, difference: PairedDifference) -> None:
    interval = difference.difference
    console.print(
        f"difference in mAP, first minus second: {100 * interval.estimate:+.2f}, 95 % interval "
        f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}, p = {difference.p_value:.3g} "
        f"(paired bootstrap, {interval.num_resamples} resamples)",
        soft_wrap=True,
    )


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f}"
