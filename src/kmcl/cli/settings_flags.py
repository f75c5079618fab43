"""A flag for every setting of a run, made from the settings themselves, so that the two cannot differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, Optional, get_type_hints

import typer

from kmcl.training.settings import SECTIONS, TrainingSettings

OWN_ARGUMENTS = ("data", "data_options")


def _shown(default: object) -> str | bool:
    return False if default is None else str(default)


def with_settings_flags(
    command: Callable[..., None], without: Collection[str] = OWN_ARGUMENTS
) -> Callable[..., None]:
    """Give `command` a flag for each setting; it receives them, None where not given, as **flags.

    without: settings that the command has an argument of its own for, or no use for.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    section = ""
    for name, field in TrainingSettings.model_fields.items():
        section = SECTIONS.get(name, section)
        if name in without:
            continue
        option = typer.Option(
            help=field.description, show_default=_shown(field.default), rich_help_panel=section
        )
        # Optional, so that a flag that was not given does not override the preset or the file.
        annotation: Any = Annotated[Optional[field.annotation], option]  # noqa: UP045
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )

    def run(**arguments: Any) -> None:
        command(**arguments)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
