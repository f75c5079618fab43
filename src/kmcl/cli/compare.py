"""`kmcl compare`: methods on the same data, encoder, schedule and seeds, with their differences."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from kmcl.cli.data import OptionArgument
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


def compare_command(
    data: DataArgument = None,
    methods: Annotated[
        list[str],
        typer.Option(
            metavar="METHOD,...",
            help="As of kmcl train; with settings of its own: kmcl:kernel=gaussian,temperature=1; "
            "under a name of your own: wide=kmcl:kernel=anisotropic. May be repeated.",
        ),
    ] = ["asl,kmcl"],  # noqa: B006
    seeds: SeedsOption = "0,1,2",
    reference: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="METHOD", help="The others' differences are to this one.", show_default="the first"
        ),
    ] = None,
    search: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SETTING=VALUE,...",
            help="Choose this setting for every method by itself first: one training with each value and the "
            "first seed, judged on val. As many trials for each, as in learning_rate=3e-4,1e-3,3e-3.",
        ),
    ] = None,
    preset: PresetOption = "default",
    config: ConfigOption = None,
    output: OutputOption = None,
    resume: ResumeOption = None,
    jobs: JobsOption = 1,
    option: OptionArgument = None,
    **flags: Any,
) -> None:
    """Train METHODS on DATA with every seed, and set them side by side with paired intervals."""
    from kmcl.reports.study_figures import comparison_picture
    from kmcl.studies.equal_search import parse_search
    from kmcl.studies.plan import make_plan
    from kmcl.studies.variants import parse_variants

    plan = resumed_plan("compare", resume, data, config, output, (option, reference, search, *flags.values()))
    if plan is None:
        settings = study_settings(data, preset, config, option, flags)
        variants = parse_variants(methods)
        numbers = parse_numbers("seeds", seeds, int)
        values = None if search is None else parse_search(search)
        plan = make_plan("compare", settings, variants, numbers, reference, values)
    run_and_show(plan, resume or output, jobs, lambda result: [comparison_picture(result)])


compare = with_settings_flags(compare_command, without=NOT_OF_STUDIES)
