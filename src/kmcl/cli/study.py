"""`kmcl study`: the paper's studies, each with one command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kmcl.cli.data import OptionArgument
from kmcl.cli.interruption import INTERRUPTED
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.cli.study_folder import (
    NOT_OF_STUDIES,
    ConfigOption,
    DataArgument,
    JobsOption,
    OutputOption,
    PresetOption,
    ResumeOption,
    SeedsOption,
    parse_numbers,
    resumed_plan,
    run_and_show,
    study_settings,
)
from kmcl.errors import InputError

study_app = typer.Typer(no_args_is_help=True)


def kernels_command(
    data: DataArgument = None,
    seeds: SeedsOption = "0,1,2",
    preset: PresetOption = "default",
    config: ConfigOption = None,
    output: OutputOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    option: OptionArgument = None,
    **flags: Any,
) -> None:
    """KMCL with each of the four kernels and similarities: the paper's ablation."""
    from kmcl.reports.study_figures import comparison_picture
    from kmcl.studies.designs import kernel_variants
    from kmcl.studies.plan import make_plan

    if flags["kernel"] is not None:
        raise InputError("--kernel: this study trains with every kernel")
    plan = resumed_plan("study kernels", resume, data, config, output, (option, *flags.values()))
    if plan is None:
        settings = study_settings(data, preset, config, option, flags)
        numbers = parse_numbers("seeds", seeds, int)
        plan = make_plan("study kernels", settings, kernel_variants(), numbers, "isotropic")
    run_and_show(plan, resume or output, jobs, lambda result: [comparison_picture(result, "kernels")])


def terms_command(
    data: DataArgument = None,
    seeds: SeedsOption = "0,1,2",
    preset: PresetOption = "default",
    config: ConfigOption = None,
    output: OutputOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    option: OptionArgument = None,
    **flags: Any,
) -> None:
    """KMCL with each term of its loss alone and in combination, against all three."""
    from kmcl.reports.study_figures import comparison_picture
    from kmcl.studies.designs import ALL_TERMS, term_variants
    from kmcl.studies.plan import make_plan

    plan = resumed_plan("study terms", resume, data, config, output, (option, *flags.values()))
    if plan is None:
        settings = study_settings(data, preset, config, option, flags)
        numbers = parse_numbers("seeds", seeds, int)
        plan = make_plan("study terms", settings, term_variants(settings), numbers, ALL_TERMS)
    run_and_show(plan, resume or output, jobs, lambda result: [comparison_picture(result, "terms")])


def data_size_command(
    data: DataArgument = None,
    methods: Annotated[
        list[str], typer.Option(metavar="METHOD,...", help="As of kmcl compare; the first is the reference.")
    ] = ["asl,kmcl"],  # noqa: B006
    fractions: Annotated[
        str, typer.Option(metavar="0.1,...,1", help="Parts of the training images, nested, by the seed.")
    ] = "0.1,0.2,0.4,0.6,0.8,1",
    same_steps: Annotated[
        bool, typer.Option("--same-steps", help="More epochs with fewer images, so that steps stay the same.")
    ] = False,
    seeds: SeedsOption = "0,1,2",
    preset: PresetOption = "default",
    config: ConfigOption = None,
    output: OutputOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    option: OptionArgument = None,
    **flags: Any,
) -> None:
    """METHODS over nested parts of the training images: the curve of the paper's figure."""
    from kmcl.reports.study_figures import size_picture
    from kmcl.studies.designs import OF_SIZES, size_variants
    from kmcl.studies.plan import make_plan
    from kmcl.studies.variants import parse_variants

    if flags["train_fraction"] is not None:
        raise InputError("--train-fraction: this study has --fractions")
    plan = resumed_plan(OF_SIZES, resume, data, config, output, (option, *flags.values()))
    if plan is None:
        settings = study_settings(data, preset, config, option, flags)
        parts = parse_numbers("fractions", fractions, float)
        variants = size_variants(parse_variants(methods), parts, settings, same_steps=same_steps)
        plan = make_plan(OF_SIZES, settings, variants, parse_numbers("seeds", seeds, int))
    run_and_show(plan, resume or output, jobs, lambda result: [size_picture(result)])


def weights_command(
    data: DataArgument = None,
    points: Annotated[int, typer.Option(min=1, help="Settings of the weights to try.")] = 15,
    low: Annotated[float, typer.Option(help="Lowest value of each weight.")] = 0.01,
    high: Annotated[float, typer.Option(help="Highest value of each weight.")] = 1.0,
    sampler: Annotated[
        str, typer.Option(help="random, as in the paper, or tpe, which learns from the points before.")
    ] = "random",
    seeds: SeedsOption = "0",
    preset: PresetOption = "default",
    config: ConfigOption = None,
    output: OutputOption = None,
    jobs: JobsOption = 1,
    option: OptionArgument = None,
    **flags: Any,
) -> None:
    """Search the three weights of the objective, log-uniformly, on val; test is not measured."""
    from rich.console import Console

    from kmcl.reports.figure_files import write_picture
    from kmcl.reports.study_figures import weights_picture
    from kmcl.studies.designs import TERMS
    from kmcl.studies.locks import held
    from kmcl.studies.plan import default_folder
    from kmcl.studies.weight_search import WeightSearch

    given = [f"{term}_weight" for term in TERMS if flags[f"{term}_weight"] is not None]
    if given:
        raise InputError(f"--{given[0].replace('_', '-')}: this study draws the weights")
    settings = study_settings(data, preset, config, option, flags)
    numbers = parse_numbers("seeds", seeds, int)
    search = WeightSearch(settings, points, numbers, low, high, sampler)  # type: ignore[arg-type]
    folder = output or default_folder(search.plan([]))
    console = Console()
    console.print(f"study folder: {folder}", soft_wrap=True, highlight=False)
    try:
        found = search.run(folder, jobs=jobs, console=console)
    except KeyboardInterrupt as stop:
        typer.echo("Stopped; go on with the same command", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    with held(folder / "locks" / "results.lock"):
        if any(point.val_map is not None for point in found):
            write_picture(weights_picture(found), folder)
    typer.echo((folder / "table.md").read_text(encoding="utf-8"))
    if search.failures:
        raise typer.Exit(1)


for _name, _command in (
    ("kernels", kernels_command),
    ("terms", terms_command),
    ("data-size", data_size_command),
    ("weights", weights_command),
):
    study_app.command(_name)(with_settings_flags(_command, without=NOT_OF_STUDIES))
