"""`kmcl study`: the paper's studies, each with one command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kmcl.cli.interruption import INTERRUPTED
from kmcl.cli.study_arguments import StudyArguments, with_study_arguments
from kmcl.cli.study_folder import parse_numbers
from kmcl.errors import InputError

study_app = typer.Typer(no_args_is_help=True)


def kernels_command(study: StudyArguments) -> None:
    """KMCL with each of the four kernels and similarities: the paper's ablation."""
    from kmcl.studies.designs import kernel_variants

    if study.flags["kernel"] is not None:
        raise InputError("--kernel: this study trains with every kernel")
    study.run("study kernels", lambda values: kernel_variants(), "isotropic")


def terms_command(study: StudyArguments) -> None:
    """KMCL with each term of its loss alone and in combination, without post-hoc parts."""
    from kmcl.studies.designs import ALL_TERMS, OF_TERMS, term_variants

    if study.flags["posthoc"] not in (None, "none"):
        raise InputError("--posthoc: this study compares terms of the loss, without post-hoc parts")
    study.run(OF_TERMS, term_variants, ALL_TERMS)


def data_size_command(
    study: StudyArguments,
    methods: Annotated[
        list[str], typer.Option(metavar="METHOD,...", help="As of kmcl compare; the first is the reference.")
    ] = ["asl,kmcl"],  # noqa: B006
    fractions: Annotated[
        str, typer.Option(metavar="0.1,...,1", help="Fractions of the training images, nested for each seed.")
    ] = "0.1,0.2,0.4,0.6,0.8,1",
    same_steps: Annotated[
        bool, typer.Option("--same-steps", help="More epochs with fewer images, so that steps stay the same.")
    ] = False,
) -> None:
    """METHODS over nested fractions of the training images: the curve of the paper's figure."""
    from kmcl.runs.settings import OptimisationSettings
    from kmcl.studies.designs import OF_SIZES, size_variants
    from kmcl.studies.variants import Variant, parse_variants

    if study.flags["train_fraction"] is not None:
        raise InputError("--train-fraction: this study has --fractions")

    def design(values: dict[str, Any]) -> tuple[Variant, ...]:
        parts = parse_numbers("fractions", fractions, float)
        epochs = values.get("epochs", OptimisationSettings().epochs)
        return size_variants(parse_variants(methods), parts, epochs, same_steps=same_steps)

    study.run(OF_SIZES, design)


def weights_command(
    study: StudyArguments,
    points: Annotated[int, typer.Option(min=1, help="Settings of the weights to try.")] = 15,
    low: Annotated[float, typer.Option(help="Lowest value of each weight.")] = 0.01,
    high: Annotated[float, typer.Option(help="Highest value of each weight.")] = 1.0,
    sampler: Annotated[
        str, typer.Option(help="random, as in the paper, or tpe, which uses the results of earlier points.")
    ] = "random",
) -> None:
    """Search the three weights of the objective, log-uniformly, on val; test is not measured."""
    from rich.console import Console

    from kmcl.reports.study_figures import weights_picture, write_study_picture
    from kmcl.studies.designs import TERMS
    from kmcl.studies.plan import default_folder
    from kmcl.studies.variants import Variant
    from kmcl.studies.weight_search import WeightSearch

    given = [f"{term}_weight" for term in TERMS if study.flags[f"{term}_weight"] is not None]
    if given:
        raise InputError(f"--{given[0].replace('_', '-')}: this study draws the weights")
    study.check_flags([Variant("point", "kmcl")])
    search = WeightSearch(study.values(), points, study.seed_numbers, low, high, sampler)  # type: ignore[arg-type]
    folder = study.output or default_folder(search.plan([]))
    console = Console()
    console.print(f"study folder: {folder}", soft_wrap=True, highlight=False)
    try:
        found = search.run(folder, jobs=study.jobs, ray=study.ray, console=console)
    except KeyboardInterrupt as stop:
        typer.echo("Stopped; resume with the same command", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    if any(point.val_map is not None for point in found):
        write_study_picture(weights_picture(found), folder)
    typer.echo((folder / "table.md").read_text(encoding="utf-8"))
    if search.failures:
        raise typer.Exit(1)


study_app.command("kernels")(with_study_arguments(kernels_command))
study_app.command("terms")(with_study_arguments(terms_command))
study_app.command("data-size")(with_study_arguments(data_size_command))
study_app.command("weights")(with_study_arguments(weights_command, seeds="0", without=("resume",)))
