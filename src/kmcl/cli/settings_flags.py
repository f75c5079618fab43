"""A flag for every setting of a run, generated from the settings, so that the two cannot differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, Optional, get_type_hints

import typer

from kmcl.options import METHOD_OPTIONS
from kmcl.runs.recipes import DEFAULT_METHOD
from kmcl.runs.resolution import FLAT_NAMES, PRESETS, default_values
from kmcl.runs.settings import GROUPS

OWN_ARGUMENTS = ("data", "data_options")

COMMON = (
    "recipe",
    "budget",
    "method",
    "encoder",
    "weights",
    "image_size",
    "epochs",
    "learning_rate",
    "batch_size",
    "frozen_stages",
    "cached_views",
    "posthoc",
    "augmentation",
    "seed",
)
"""The most used settings, which the help shows first."""

PANELS = {
    "data": "Data",
    "encoder": "Encoder",
    "optimisation": "Optimisation",
    "evaluation": "Evaluation",
    "machine": "Machine",
    "recipe": "Common settings",
    "tracking": "Tracking",
}

NOT_FLAGS = ("to_choose",)
"""Settings that are recorded, never given."""


class Flag(NamedTuple):
    """A setting as a flag.

    methods: those that have it
    """

    name: str
    annotation: Any
    help: str
    panel: str
    methods: Sequence[str] = (DEFAULT_METHOD,)


def setting_flags() -> list[Flag]:
    """The flags in the order of the help: common ones, then the groups, then the methods' options."""
    flags = {flag.name: flag for flag in (*_group_flags(), *_choice_flags(), *_option_flags())}
    common = [flags.pop(name)._replace(panel="Common settings") for name in COMMON]
    return [*common, *flags.values()]


@cache
def shown_defaults() -> dict[str, str]:
    """What the help shows as default of each flag, as in "4.0; 1.0 with method aam"."""
    cases = [(method, preset) for method in METHOD_OPTIONS for preset in PRESETS]
    values = {case: default_values(*case) for case in cases}
    shown = {}
    for flag in setting_flags():
        of = {case: found[flag.name] for case, found in values.items() if case[0] in flag.methods}
        usual = of[flag.methods[0], "default"]
        others: dict[tuple[object, str], list[str]] = {}
        for method in flag.methods:
            if of[method, "default"] != usual:
                others.setdefault((of[method, "default"], "method"), []).append(method)
        for preset in PRESETS:
            changed = [of[m, preset] for m in flag.methods if of[m, preset] != of[m, "default"]]
            if changed:
                others.setdefault((changed[0], "preset"), []).append(preset)
        words = [] if usual is None else [str(usual)]
        words += [f"{value} with {kind} {', '.join(names)}" for (value, kind), names in others.items()]
        shown[flag.name] = "; ".join(words)
    return shown


def _group_flags() -> Iterator[Flag]:
    for name, (group, field_name) in FLAT_NAMES.items():
        if name in NOT_FLAGS:
            continue
        field = GROUPS[group].model_fields[field_name]
        # Durations and the names of recipes are checked by the settings, with their own messages.
        annotation = str if group == "recipe" else field.annotation
        yield Flag(name, annotation, field.description or "", PANELS[group])


def _choice_flags() -> Iterator[Flag]:
    methods = ", ".join(METHOD_OPTIONS)
    yield Flag("method", str, methods, "Common settings")
    yield Flag(
        "posthoc",
        str,
        "parts fitted after training: frozen_gp, kernel_vote, unfamiliarity or none; options as in "
        "kernel_vote:max_images=4096",
        "Common settings",
    )


def _option_flags() -> Iterator[Flag]:
    """Each option once, in the panel of the methods that have it."""
    owners: dict[str, list[str]] = {}
    for method, options in METHOD_OPTIONS.items():
        for option in options.option_names():
            owners.setdefault(option, []).append(method)
    for option, methods in sorted(owners.items(), key=lambda item: (len(item[1]) > 1, item[1])):
        fields = [METHOD_OPTIONS[name].model_fields[option] for name in methods]
        annotations = {str(field.annotation) for field in fields}
        # Two methods may give a name different types; then the text is converted by the method's own model.
        annotation = fields[0].annotation if len(annotations) == 1 else str
        panel = f"Method {methods[0]}" if len(methods) == 1 else f"Methods {', '.join(methods)}"
        yield Flag(option, annotation, fields[0].description or "", panel, methods)


def with_settings_flags(
    command: Callable[..., None], without: Collection[str] = OWN_ARGUMENTS
) -> Callable[..., None]:
    """Give `command` a flag for each setting; it receives them, None where not given, as **flags.

    without: settings that the command has its own argument for, or does not use.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    defaults = shown_defaults()
    for flag in setting_flags():
        if flag.name in without:
            continue
        default = defaults[flag.name] or False
        option = typer.Option(help=flag.help, show_default=default, rich_help_panel=flag.panel)
        # Optional, so that a flag that was not given does not override the preset or the file.
        annotation: Any = Annotated[Optional[flag.annotation], option]  # noqa: UP045
        parameters.append(
            inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )

    def run(**arguments: Any) -> None:
        command(**arguments)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
