"""`kmcl evaluate`: the metrics of a run, or of two runs with their difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer

from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption
from kmcl.errors import InputError


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [OTHER]", help="One or two run folders.")],
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DATA",
            help="Measure on this dataset, its labels matched by name.",
            show_default="the run's",
        ),
    ] = None,
    option: OptionArgument = None,
    split: Annotated[
        str, typer.Option(help="val or test; with --data also train, or all for every image.")
    ] = "test",
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            min=0,
            max=1,
            help="Probability for all labels.",
            show_default="each label's own, chosen on val",
        ),
    ] = None,
    guarantee: GuaranteeOption = None,
    abstain: AbstainOption = None,
    top_k: Annotated[int, typer.Option(min=1, help="Labels per image of the top-k metrics.")] = 3,
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    published: Annotated[
        bool, typer.Option("--published", help="Show the runs among the paper's figures of their dataset.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the metrics of a run; with two runs, the paired difference of their mAP.

    With --data the model predicts the images of another dataset, and is measured on these.
    """
    if len(runs) > 2:
        raise InputError(f"kmcl evaluate takes one run or two; got {len(runs)}")
    if len(runs) == 2 and runs[0].resolve() == runs[1].resolve():
        raise InputError(f"{runs[0]}: is given twice")
    if data is None and split not in ("val", "test"):
        raise InputError(f"--split must be val or test; got {split!r}; --data takes every split")
    if data is None and option:
        raise InputError("--option is for the reader of --data, and there is none")
    if guarantee is not None and (threshold is not None or published):
        other = "--published" if published else "--threshold"
        raise InputError(f"--guarantee chooses thresholds; {other} cannot be given with it")
    if abstain is not None and (threshold is not None or data is not None or published):
        raise InputError("--abstain is about the run's own thresholds and data; give it without others")
    if published:
        _print_published(runs, split, threshold)
        return
    from rich.console import Console

    from kmcl.api import evaluate_run
    from kmcl.evaluation.intervals import paired_difference
    from kmcl.reports.evaluation_tables import print_evaluations

    options = parse_dataset_options(option)
    found = [
        evaluate_run(
            path,
            data,
            options,
            split,
            Console(stderr=True),
            guarantee=guarantee,
            threshold=threshold,
            top_k=top_k,
            abstain=abstain,
            resamples=resamples,
            seed=seed,
        )
        for path in runs
    ]
    difference = None
    if len(found) == 2:
        difference = paired_difference([found[1].predictions], [found[0].predictions], resamples, seed)
    if as_json:
        result = {
            "runs": [of_run.to_json() for of_run in found],
            "data": data,
            "difference": None if difference is None else difference.to_json(),
        }
        typer.echo(json.dumps(result, indent=2))
    else:
        of = split if data is None else f"{split} of {data}"
        print_evaluations(Console(), found, of, difference)


def _print_published(runs: list[Path], split: str, threshold: float | None) -> None:
    from kmcl.evaluation.metrics import evaluate as evaluate_predictions
    from kmcl.evaluation.predictions import Predictions
    from kmcl.runs.folder import RunFolder
    from kmcl.studies.published_tables import OwnRow, among_published, published_table, published_tables

    rows = []
    for path in runs:
        run = RunFolder(path)
        settings, measured = run.read_settings(), run.read_metrics().get(split)
        if not measured:
            raise InputError(f"{path}: the run has no metrics of {split}")
        evaluation = measured["evaluation"]
        if threshold is not None:
            predictions = Predictions.load(run.predictions_file(split))
            evaluation = evaluate_predictions(predictions, threshold).to_json()
        rows.append(OwnRow(path.name, settings, [evaluation]))
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
