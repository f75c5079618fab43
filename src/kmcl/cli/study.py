"""`kmcl compare` and `kmcl study`: methods on the same data and seeds, and the paper's studies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from kmcl import api
from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.errors import InputError
from kmcl.runs.launcher import is_first_process
from kmcl.runs.resolution import PRESETS

NOT_OF_STUDIES = ("data", "data_options", "method", "seed", "devices", "nodes", "budget")
"""Settings without a flag: a study has methods and seeds, a process for each training, and a plan that must
not depend on the speed of the machine.
"""

MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD,...",
        help="As of kmcl train; with settings of its own: kmcl:kernel=gaussian,temperature=1; "
        "under a name of your own: wide=kmcl:kernel=anisotropic. May be repeated.",
        show_default="asl,kmcl",
    ),
]


def _shared(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="Dataset spec: digits, table:labels.csv, folder:DIR, coco:FILE.json, ..."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="0,1,2", help="Every method is trained with each.", show_default="0,1,2; of weights 0"
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"Starting point: {', '.join(PRESETS)}.")] = "default",
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file of settings, over the preset; or the study.yaml of a study to repeat."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the study.", show_default="runs/..., by what is given")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with this study; the same command again does it too."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Trainings at a time, each with its share of the cores or its own GPU."),
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Train on this Ray cluster (auto, local, host:port), --jobs at a time. Its machines share "
            "the folder and the data.",
            show_default="this machine",
        ),
    ] = None,
    option: OptionArgument = None,
) -> None:
    """The arguments of every study."""


def compare_command(
    methods: MethodsOption = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD", help="The method the others are compared with.", show_default="the first"
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="SETTING=VALUE,...",
            help="First choose this setting for each method separately: one training with each value and the "
            "first seed, judged on val; equally many trials each. Example: learning_rate=3e-4,1e-3,3e-3.",
        ),
    ] = None,
    **others: Any,
) -> None:
    """Train METHODS on DATA with every seed, and compare them with paired intervals."""
    _print(lambda: api.compare(methods=methods, reference=reference, search=search, **others))


def kernels_command(**others: Any) -> None:
    """KMCL with each of the four kernels and similarities: the paper's ablation."""
    _print(lambda: api.study("kernels", **others))


def terms_command(**others: Any) -> None:
    """KMCL with each term of its loss alone and in combination, without post-hoc parts."""
    _print(lambda: api.study("terms", **others))


def data_size_command(
    methods: MethodsOption = None,
    fractions: Annotated[
        str | None,
        typer.Option(
            metavar="0.1,...,1",
            help="Fractions of the training images, nested for each seed.",
            show_default="0.1,0.2,0.4,0.6,0.8,1",
        ),
    ] = None,
    same_steps: Annotated[
        bool | None,
        typer.Option("--same-steps", help="More epochs with fewer images, so that steps stay the same."),
    ] = None,
    **others: Any,
) -> None:
    """METHODS over nested fractions of the training images: the curve of the paper's figure."""
    parts = parse_numbers("fractions", fractions, float)
    _print(lambda: api.study("data-size", methods=methods, fractions=parts, same_steps=same_steps, **others))


def weights_command(
    points: Annotated[
        int | None, typer.Option(min=1, help="Settings of the weights to try.", show_default="15")
    ] = None,
    low: Annotated[
        float | None, typer.Option(help="Lowest value of each weight.", show_default="0.01")
    ] = None,
    high: Annotated[
        float | None, typer.Option(help="Highest value of each weight.", show_default="1.0")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="random, as in the paper, or tpe, which uses the results of earlier points.",
            show_default="random",
        ),
    ] = None,
    **others: Any,
) -> None:
    """Search the three weights of the objective, log-uniformly, on val; test is not measured."""
    how: dict[str, Any] = {"points": points, "low": low, "high": high, "sampler": sampler}
    _print(lambda: api.study("weights", **how, **others))


def parse_numbers(name: str, text: str | None, kind: Callable[[str], Any]) -> tuple[Any, ...] | None:
    """`0,1,2` as numbers."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--{name} must be numbers separated by commas; got {text!r}") from None


def _print(run: Callable[[], Any]) -> None:
    """Run a study and print its results; exit status 1 if members failed."""
    from rich.console import Console

    try:
        result = run()
    except KeyboardInterrupt as stop:
        typer.echo("Stopped; resume with the same command, or with --resume and the study's folder", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    if is_first_process():
        from kmcl.reports.study_table import print_study

        print_study(Console(), result)
    if result.failures:
        raise typer.Exit(1)


def _with_study_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments of every study, and a flag for each setting."""
    signatures = [inspect.signature(each).parameters.values() for each in (command, _shared)]
    own, shared = ([p for p in each if p.kind is not p.VAR_KEYWORD] for each in signatures)
    hints = get_type_hints(_shared, include_extras=True) | get_type_hints(command, include_extras=True)
    parameters = [shared[0], *own, *shared[1:]]

    def run(seeds: str | None, option: list[str] | None, **arguments: Any) -> None:
        numbers, options = parse_numbers("seeds", seeds, int), parse_dataset_options(option) or None
        command(seeds=numbers, options=options, **arguments)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in parameters]
    )
    run.__annotations__ = {p.name: hints[p.name] for p in parameters}
    return with_settings_flags(run, without=NOT_OF_STUDIES)


compare = _with_study_arguments(compare_command)
study_app = typer.Typer(no_args_is_help=True)
study_app.command("kernels")(_with_study_arguments(kernels_command))
study_app.command("terms")(_with_study_arguments(terms_command))
study_app.command("data-size")(_with_study_arguments(data_size_command))
study_app.command("weights")(_with_study_arguments(weights_command))
