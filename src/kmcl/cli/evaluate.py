"""`kmcl evaluate`: the metrics of a run, or of two runs with their difference."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption
from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.evaluation.abstention import Abstention
    from kmcl.evaluation.label_rules import LabelRules
    from kmcl.evaluation.predictions import Predictions


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

    from kmcl.evaluation.by_rules import evaluate_by_rules, rates_by_rules
    from kmcl.evaluation.intervals import map_interval, paired_difference
    from kmcl.evaluation.json_values import to_json_object
    from kmcl.evaluation.levels import metrics_by_level
    from kmcl.reports.evaluation_tables import print_evaluations
    from kmcl.reports.guarantee_words import print_abstention, print_guarantee

    options = parse_dataset_options(option)
    predictions = [_predictions(path, data, options, split) for path in runs]
    rules = [_rules(path, guarantee) for path in runs]
    found = {
        path: (
            evaluate_by_rules(predicted, of_run, threshold, top_k),
            map_interval(predicted, resamples, seed),
        )
        for path, predicted, of_run in zip(runs, predictions, rules, strict=True)
    }
    rates = [
        rates_by_rules(predicted, of_run) if threshold is None else None
        for predicted, of_run in zip(predictions, rules, strict=True)
    ]
    abstentions = [
        _abstention(path, of_run, predicted, abstain)
        for path, of_run, predicted in zip(runs, rules, predictions, strict=True)
    ]
    difference = None
    if len(runs) == 2:
        difference = paired_difference(predictions[1:], predictions[:1], resamples, seed)
    of = split if data is None else f"{split} of {data}"
    unsupported = [of_run.unsupported_thresholds if threshold is None else () for of_run in rules]
    levels = [
        metrics_by_level(evaluation, of_run)
        for (evaluation, _), of_run in zip(found.values(), rules, strict=True)
    ]
    if as_json:
        result = {
            "runs": [
                {
                    "run": str(path),
                    "split": split,
                    **evaluation.to_json(),
                    "map_interval": interval.to_json(),
                    "unsupported_thresholds": list(labels),
                    "guarantee": None
                    if achieved is None or of_run.guarantee is None
                    else asdict(of_run.guarantee) | {"achieved": achieved.to_json()},
                    "abstention": None if left is None else left.to_json(),
                    **({"levels": [to_json_object(level) for level in of_levels]} if of_levels else {}),
                }
                for (path, (evaluation, interval)), labels, of_run, achieved, left, of_levels in zip(
                    found.items(), unsupported, rules, rates, abstentions, levels, strict=True
                )
            ],
            "data": data,
            "difference": None if difference is None else difference.to_json(),
        }
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console()
    print_evaluations(console, found, of, difference, unsupported, levels)
    for path, of_run, achieved, left in zip(runs, rules, rates, abstentions, strict=True):
        if achieved is not None:
            print_guarantee(console, path, of_run, achieved, of)
        if left is not None:
            print_abstention(console, path, left, of)


def _rules(path: Path, guarantee: str | None) -> LabelRules:
    """The rules of the run's model, with the guarantee if one is wanted."""
    from kmcl.evaluation.guarantee import GuaranteeWish
    from kmcl.models.folder import read_description
    from kmcl.runs.guarantee import rules_for_wish

    rules = read_description(path / "model").rules
    return rules if guarantee is None else rules_for_wish(rules, GuaranteeWish.parse(guarantee), path)


def _abstention(
    path: Path, rules: LabelRules, predictions: Predictions, share: float | None
) -> Abstention | None:
    if share is None:
        return None
    from kmcl.evaluation.abstention import judge_abstention
    from kmcl.runs.guarantee import cutoff_of_run

    return judge_abstention(rules, predictions, share, cutoff_of_run(rules, share, path))


def _predictions(path: Path, data: str | None, options: dict[str, object], split: str) -> Predictions:
    """Of the run's own split, or of other data, with a message about labels that are left out."""
    from kmcl.api import Run

    if data is None:
        return Run(path).predictions(split)
    from rich.console import Console

    from kmcl.training.other_data import predict_other_data

    _ = Run(path).settings  # refuses what is no run folder
    errors = Console(stderr=True)
    found = predict_other_data(path / "model", data, options, split, console=errors)
    for notice in found.notices():
        errors.print(notice, soft_wrap=True, highlight=False, markup=False)
    return found.predictions


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
