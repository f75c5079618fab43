"""`kmcl compare`: methods on the same data, encoder, schedule and seeds, with their differences."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from kmcl.cli.study_arguments import StudyArguments, with_study_arguments


def compare_command(
    study: StudyArguments,
    methods: Annotated[
        list[str],
        typer.Option(
            metavar="METHOD,...",
            help="As of kmcl train; with settings of its own: kmcl:kernel=gaussian,temperature=1; "
            "under a name of your own: wide=kmcl:kernel=anisotropic. May be repeated.",
        ),
    ] = ["asl,kmcl"],  # noqa: B006
    reference: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="METHOD", help="The method the others are compared with.", show_default="the first"
        ),
    ] = None,
    search: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SETTING=VALUE,...",
            help="First choose this setting for each method separately: one training with each value and the "
            "first seed, judged on val; equally many trials each. Example: learning_rate=3e-4,1e-3,3e-3.",
        ),
    ] = None,
) -> None:
    """Train METHODS on DATA with every seed, and compare them with paired intervals."""
    from kmcl.studies.equal_search import parse_search
    from kmcl.studies.variants import parse_variants

    study.run(
        "compare",
        lambda values: parse_variants(methods),
        reference,
        None if search is None else parse_search(search),
        not_with_resume=(reference, search),
    )


compare = with_study_arguments(compare_command)
