"""The arguments that all commands of studies share, and the way from them to a study that is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_type_hints

import typer

from kmcl.cli.data_arguments import OptionArgument
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.cli.study_folder import parse_numbers, resumed_plan, run_and_show, study_values
from kmcl.runs.resolution import PRESETS

if TYPE_CHECKING:
    from kmcl.studies.equal_search import EqualSearch
    from kmcl.studies.variants import Variant

NOT_OF_STUDIES = ("data", "data_options", "method", "seed", "devices", "nodes", "budget")
"""Settings without a flag: a study has methods and seeds, a process for each training, and a plan that must
not depend on the speed of the machine.
"""


@dataclass(frozen=True)
class StudyArguments:
    """What the user gave; `flags` holds the settings, None where not given."""

    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="DATA", help="Dataset spec: digits, table:labels.csv, folder:DIR, coco:FILE.json, ..."
        ),
    ] = None
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Every method is trained with each.")] = "0,1,2"
    preset: Annotated[str, typer.Option(help=f"Starting point: {', '.join(PRESETS)}.")] = "default"
    config: Annotated[Optional[Path], typer.Option(help="YAML file of settings, over the preset.")] = None  # noqa: UP045
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", help="Folder of the study.", show_default="runs/..., by the settings"),
    ] = None
    resume: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Go on with this study; the same command again does it too."),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Trainings at a time, each with its share of the cores or its own GPU."),
    ] = 1
    ray: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ADDRESS",
            help="Train on this Ray cluster (auto, local, host:port), --jobs at a time. Its machines share "
            "the folder and the data.",
            show_default="this machine",
        ),
    ] = None
    option: OptionArgument = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return parse_numbers("seeds", self.seeds, int)

    def values(self) -> dict[str, Any]:
        """The settings common to all trainings, by flat names."""
        return study_values(self.data, self.preset, self.config, self.option, self.flags)

    def check_flags(self, variants: Iterable[Variant]) -> None:
        """Refuse a flag of an option that none of the methods compared has."""
        from kmcl.studies.plan import check_options_are_used

        given = [name for name, value in self.flags.items() if value is not None]
        check_options_are_used(given, variants)

    def run(
        self,
        kind: str,
        design: Callable[[dict[str, Any]], Iterable[Variant]],
        reference: str | None = None,
        search: EqualSearch | None = None,
        not_with_resume: Sequence[object] = (),
    ) -> None:
        """Run the study that `design` makes of the common settings, or go on with the one of --resume."""
        from kmcl.studies.plan import make_plan

        given = (self.option, *not_with_resume, *self.flags.values())
        plan = resumed_plan(kind, self.resume, self.data, self.config, self.output, given)
        if plan is None:
            values = self.values()
            variants = tuple(design(values))
            self.check_flags(variants)
            plan = make_plan(kind, values, variants, self.seed_numbers, reference, search)
        run_and_show(plan, self.resume or self.output, self.jobs, self.ray)


def with_study_arguments(
    command: Callable[..., None], *, seeds: str = "0,1,2", without: Collection[str] = ()
) -> Callable[..., None]:
    """Make a command of a function of `StudyArguments` and of arguments that this study alone has.

    seeds:   the default.
    without: arguments that this study does not take.
    """
    own = list(inspect.signature(command).parameters.values())[1:]
    hints = get_type_hints(command, include_extras=True) | get_type_hints(StudyArguments, include_extras=True)
    shared = [f for f in fields(StudyArguments) if f.name not in ("flags", *without)]
    defaults = {f.name: f.default for f in shared} | {"seeds": seeds} | {p.name: p.default for p in own}
    names = ["data", *(p.name for p in own), *(f.name for f in shared if f.name != "data")]

    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in names}
        of_this = {p.name: given.pop(p.name) for p in own}
        command(StudyArguments(**given, flags=arguments), **of_this)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=defaults[name]) for name in names]
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {name: hints[name] for name in names}
    return with_settings_flags(run, without=NOT_OF_STUDIES)
