"""`kmcl evaluate`: the metrics of a run, or of two runs with their difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kmcl import api
from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption
from kmcl.errors import InputError


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [OTHER]", help="One or two run folders.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Measure on this dataset, its labels matched by name.",
            show_default="the run's",
        ),
    ] = None,
    options: OptionArgument = None,
    split: Annotated[
        str, typer.Option(help="val or test; with --data also train, or all for every image.")
    ] = "test",
    threshold: Annotated[
        float | None,
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
    if published:
        if guarantee is not None:
            raise InputError("--guarantee chooses thresholds; --published cannot be given with it")
        if abstain is not None:
            raise InputError("--abstain is about the run's own thresholds and data; give it without others")
        typer.echo(api.evaluate_published(runs, split=split, threshold=threshold))
        return
    found = api.evaluate_runs(
        runs,
        data=data,
        options=parse_dataset_options(options),
        split=split,
        threshold=threshold,
        guarantee=guarantee,
        abstain=abstain,
        top_k=top_k,
        resamples=resamples,
        seed=seed,
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        found.show(Console())
