"""From flat names and values to the settings of a run, and back.

A flat name is what a flag, `kmcl compare` and Python keywords use: `learning_rate`, `encoder`, or an option
of the method such as `kernel`. Values come from the defaults, then a preset, then a file, then flags; what
none of them gives, a recipe may choose (`kmcl.runs.recipes`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kmcl.data.normalisation import IDENTITY
from kmcl.errors import InputError, suggest
from kmcl.options import METHOD_OPTIONS, PART_OPTIONS, methods_with, parse_parts, read_options, read_parts
from kmcl.options.methods import KMCL_PRESETS, MethodOptions
from kmcl.options.posthoc import PosthocOptions
from kmcl.runs.recipes import DEFAULT_METHOD, left_to_the_run, names_vectors, vector_settings
from kmcl.runs.settings import GROUPS, TrainingSettings

SINCE_0_1_0 = "Settings are in groups since 0.1.0; a run of an earlier version cannot be continued"

MAIN_FIELDS = {"data": "spec", "encoder": "name", "method": "name", "recipe": "name"}
"""In a file, `method: asl` is short for `method: {name: asl}`."""

_OTHER_NAMES = {
    ("data", "spec"): "data",
    ("data", "options"): "data_options",
    ("encoder", "name"): "encoder",
    ("recipe", "name"): "recipe",
}

FLAT_NAMES: dict[str, tuple[str, str]] = {
    _OTHER_NAMES.get((group, field), field): (group, field)
    for group, model in GROUPS.items()
    for field in model.model_fields
}
"""Group and field of every setting that all methods have, by its flat name."""


def setting_names() -> list[str]:
    """All flat names, including the options of all methods."""
    options = dict.fromkeys(name for method in METHOD_OPTIONS.values() for name in method.option_names())
    return [*FLAT_NAMES, "method", "posthoc", *options]


@dataclass(frozen=True)
class Given:
    """What was given for a training or a study, by flat names.

    values:  of the preset, the file and the flags; a later one overrides an earlier one
    options: those of the preset that are a method's, for the methods that have them
    source:  where the values came from, for messages
    """

    values: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = "settings"

    @cached_property
    def checked(self) -> TrainingSettings:
        """The settings before a recipe has chosen, with defaults for what is left to the run.

        Raises InputError for what is wrong, before data are read and anything is measured.
        """
        values = vector_settings(self.values) if names_vectors(self.values.get("data")) else self.values
        will_freeze = "frozen_stages" in left_to_the_run(self.values)
        return settings_from_values(values, self.source, self.options, will_freeze=will_freeze)

    def complete(self, settings: TrainingSettings, chosen: Mapping[str, Any]) -> TrainingSettings:
        """The settings with what a recipe chose; what was given stays.

        settings: those that are checked, or a changed copy
        """
        own = ("recipe", "budget", "to_choose")
        changes = {
            name: value
            for name, value in chosen.items()
            if value != self.values.get(name) and (self.values.get(name) is None or name in own)
        }
        parts = changes.pop("posthoc", self.values.get("posthoc"))
        settings = with_changes(settings, changes, self.source)
        method = METHOD_OPTIONS.find(settings.method.name)
        posthoc = _posthoc(parts, method, frozen=settings.encoder.frozen_stages > 0)
        settings = settings.model_copy(update={"posthoc": posthoc})
        _check_together(settings, self.source)
        return settings


def read_given(
    data: str | None,
    preset: str = "default",
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Given:
    """The preset, then the file, then the flags (those that are not None)."""
    if preset not in PRESETS:
        raise InputError(
            f"preset must be one of {', '.join(PRESETS)}; got {preset!r}{suggest(preset, PRESETS)}"
        )
    from_file = read_settings_file(file) if file else {}
    from_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    chosen = from_file | ({"data": data} if data else {}) | from_flags
    if chosen.get("recipe") == "paper" and preset not in ("paper", "released"):
        if preset != "default":
            raise InputError(f"recipe paper is the preset of that name; leave out preset {preset}")
        preset = "paper"
    values = preset_values(preset, chosen) | chosen
    return Given(values, preset_options(preset), str(file) if file else "settings")


BY_THE_RECIPE = "by the recipe"


def default_values(method: str = DEFAULT_METHOD, preset: str = "default") -> dict[str, Any]:
    """What each setting is where nobody gives it, by flat names; BY_THE_RECIPE where the run chooses it."""
    given = read_given(None, preset, flags={"method": method})
    values = flat_values(
        settings_from_values({"data": "any", "posthoc": "none", **given.values}, options=given.options)
    )
    left = set(left_to_the_run(given.values)) - {"recipe", "budget"}
    return values | dict.fromkeys(left, BY_THE_RECIPE)


def resolve_settings(
    data: str | None,
    preset: str = "default",
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> TrainingSettings:
    """Defaults, then what `read_given` reads; no recipe chooses the rest."""
    given = read_given(data, preset, file, flags)
    return settings_from_values(given.values, given.source, given.options)


def shown_settings(given: Given) -> str:
    """The settings as YAML, but for those that are left to the run, which a comment names.

    As a file of settings it gives the same training. Without reading data, measuring or loading torch.
    """
    left = left_to_the_run(given.values)
    groups = given.checked.model_dump(mode="json")
    for name in [*left, "to_choose"] if left else []:
        group, field = FLAT_NAMES.get(name, ("", name))
        del (groups[group] if group else groups)[field]
    shown = {group: content for group, content in groups.items() if content != {}}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    if not left:
        return text
    names = textwrap.fill(", ".join(left), 100, initial_indent="# ", subsequent_indent="# ")
    return f"# Left to the run, which chooses for its data, machine and budget:\n{names}\n{text}"


def settings_from_values(
    values: Mapping[str, Any],
    source: str = "settings",
    options: Mapping[str, Any] | None = None,
    *,
    will_freeze: bool = False,
) -> TrainingSettings:
    """Settings from values by flat names; `source` says in messages where they came from.

    An option among the values that the chosen method does not have is an error that names the methods that
    have it. `options` have defaults for the methods that have them.

    will_freeze: whether a recipe will choose frozen stages, which post-hoc parts may need
    """
    name = values.get("method") or DEFAULT_METHOD
    method = METHOD_OPTIONS.find(name)
    nested: dict[str, Any] = {group: {} for group in GROUPS}
    of_method = {key: value for key, value in (options or {}).items() if key in method.option_names()}
    for key, value in values.items():
        if key in FLAT_NAMES:
            group, field = FLAT_NAMES[key]
            nested[group][field] = value
        elif key not in ("method", "posthoc"):
            if key not in method.option_names() and not methods_with(key):
                raise InputError(f"{source}: unknown setting {key!r}{suggest(key, setting_names())}")
            of_method[key] = value
    if "spec" not in nested["data"]:
        raise InputError(f"{source}: data must be given")
    with _explaining(source):
        nested["method"] = read_options({"name": name, **of_method})
    frozen = will_freeze or bool(nested["encoder"].get("frozen_stages"))
    nested["posthoc"] = _posthoc(values.get("posthoc"), method, frozen=frozen)
    with _explaining(source):
        settings = TrainingSettings(**nested)
    _check_together(settings, source, will_freeze=will_freeze)
    return settings


def with_changes(
    settings: TrainingSettings, changes: Mapping[str, Any], source: str = "settings"
) -> TrainingSettings:
    """The settings with other values of groups, by flat names."""
    by_group: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        group, field_name = FLAT_NAMES[name]
        by_group.setdefault(group, {})[field_name] = value
    with _explaining(source):
        changed = {
            group: GROUPS[group].model_validate({**dict(getattr(settings, group)), **values})
            for group, values in by_group.items()
        }
    return settings.model_copy(update=changed)


def flat_values(settings: TrainingSettings) -> dict[str, Any]:
    """Every setting by its flat name, the method's options included: what `settings_from_values` takes."""
    values = {name: getattr(getattr(settings, group), field) for name, (group, field) in FLAT_NAMES.items()}
    options = {name: value for name, value in settings.method if name != "name"}
    return values | {"method": settings.method.name, "posthoc": spell_parts(settings.posthoc)} | options


def spell_parts(parts: Iterable[PosthocOptions]) -> str:
    """The post-hoc parts as `--posthoc` takes them."""
    words = []
    for part in parts:
        given = part.model_dump(exclude={"name"}, exclude_defaults=True)
        options = ",".join(f"{name}={value}" for name, value in given.items())
        words.append(f"{part.name}:{options}" if options else part.name)
    return ",".join(words) or "none"


def read_settings(path: Path) -> TrainingSettings:
    """The complete settings of a run, from the file in its folder."""
    return settings_from_values(read_settings_file(path), str(path))


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a YAML file of settings in groups, as values by flat names."""
    groups = _read_yaml(path)
    values: dict[str, Any] = {}
    flat_of = {place: name for name, place in FLAT_NAMES.items()}
    for group, content in groups.items():
        if group == "posthoc":
            values["posthoc"] = content
            continue
        if group not in (*GROUPS, "method"):
            raise InputError(f"{path}: {_unknown_group(str(group))}")
        if isinstance(content, str) and group in MAIN_FIELDS:
            content = {MAIN_FIELDS[group]: content}
        if not isinstance(content, dict):
            raise InputError(
                f"{path}: {group} must hold its settings as name: value lines; got {content!r}. {SINCE_0_1_0}"
            )
        for name, value in content.items():
            if group == "method":
                values["method" if name == "name" else str(name)] = value
            elif (group, name) in flat_of:
                values[flat_of[group, name]] = value
            else:
                hint = suggest(str(name), GROUPS[group].model_fields)
                raise InputError(f"{path}: unknown setting {name!r} in {group}{hint}")
    return values


def _unknown_group(name: str) -> str:
    if name in FLAT_NAMES:
        group, field = FLAT_NAMES[name]
        return f"{name} belongs in the group {group}, as {field}. {SINCE_0_1_0}"
    if methods_with(name):
        return f"{name} belongs in the group method, as {name}. {SINCE_0_1_0}"
    known = [*GROUPS, "method", "posthoc"]
    return f"unknown group {name!r}{suggest(name, [*known, *setting_names()])}; groups are {', '.join(known)}"


def _read_yaml(path: Path) -> dict[Any, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{line}: is not YAML: {getattr(error, 'problem', error)}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold groups of settings; it holds a {type(values).__name__}")
    return values


def _posthoc(chosen: Any, method: type[MethodOptions], *, frozen: bool) -> tuple[Any, ...]:
    """The parts with their options: those chosen, else the method's defaults for such an encoder."""
    if chosen is None:
        names: Iterable[str] = method.posthoc
        if not frozen and method.posthoc_without_frozen_stages is not None:
            names = method.posthoc_without_frozen_stages
        elif not frozen:
            names = [name for name in names if not PART_OPTIONS.find(name).needs_frozen_stages]
        return read_parts({"name": name} for name in names)
    if not isinstance(chosen, str | list | tuple):
        raise InputError(f"posthoc must be names of parts or none; got {chosen!r}")
    parts = read_parts(parse_parts(chosen) if isinstance(chosen, str) else chosen)
    for part in parts:
        if part.needs_frozen_stages and not frozen:
            raise InputError(
                f"posthoc {part.name} needs frozen stages of the encoder, and there are none; "
                "give --frozen-stages"
            )
    return parts


@contextmanager
def _explaining(source: str) -> Iterator[None]:
    """What pydantic says of wrong values, as one sentence about the first."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            raise InputError(f"{source}: {cause}") from error
        group, *rest = map(str, first["loc"])
        name = _OTHER_NAMES.get((group, ".".join(rest)), ".".join(rest) or group)
        raise InputError(f"{source}: {name}: {first['msg']}; got {first['input']!r}") from error


def _check_together(settings: TrainingSettings, source: str, *, will_freeze: bool = False) -> None:
    """Refuse settings that do not go together."""
    name = settings.method.name
    method = METHOD_OPTIONS.find(name)
    if settings.encoder.name == IDENTITY and method.needs_feature_map:
        raise InputError(
            f"{source}: method {name} reads a feature map, and feature vectors have none; use "
            f"{', '.join(each for each, other in METHOD_OPTIONS.items() if not other.needs_feature_map)}"
        )
    views = settings.encoder.cached_views
    if views == 0:
        return
    if settings.encoder.frozen_stages == 0 and not will_freeze:
        raise InputError(
            f"{source}: cached_views {views} needs frozen_stages: only features that are never trained can "
            "be cached"
        )
    if views > 1 and settings.data.augmentation == "none":
        raise InputError(
            f"{source}: cached_views {views} with augmentation 'none' would cache equal views; use 1"
        )
    if settings.machine.compile:
        raise InputError(
            f"{source}: compile has no effect on what is trained with cached_views; leave it out"
        )


_AS_PRINTED: dict[str, Any] = {
    "recipe": "paper",
    "encoder": "tresnet_m",
    "augmentation": "paper",
    "posthoc": "none",
    "epochs": 40,
    "learning_rate": 2e-4,
    "weight_decay": 1e-4,
    "warmup_fraction": 0.2,
    "moving_average": 0.9997,
    "moving_average_warmup": False,
}

PUBLISHED_IMAGE_SIZES = {"tresnet_m": 224, "tresnet_v2_l": 448}
"""Of the paper's two models; for other encoders `paper` and `released` leave it to the encoder."""

RELEASED_NORMALISATIONS = {
    "chestxray14": "0.50576189,1",
    "adp": "0.81233799,0.64032477,0.81902153,0.18129702,0.25731668,0.16800649",
}
"""The constants of the authors' code, for the medical datasets; the others have ImageNet's."""

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "kernels": {},
    "paper": _AS_PRINTED,
    "released": _AS_PRINTED,
}
"""`default`, the recommended settings; `kernels`, the same with the paper's kernels and loss; `paper`, as
printed; `released`, as the authors' code.
"""


def preset_values(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a preset, those included that depend on the encoder and the data that are chosen.

    The paper's image size is that of its model, and its normalisation that of "computer vision and medical
    dataset respectively" (hyper-parameter table).
    """
    values = dict(PRESETS[preset])
    if not values:
        return values
    values["image_size"] = PUBLISHED_IMAGE_SIZES.get(chosen.get("encoder") or values["encoder"])
    data = str(chosen.get("data")).partition(":")[0].strip()
    values["normalisation"] = "imagenet"
    if data in RELEASED_NORMALISATIONS:
        values["normalisation"] = RELEASED_NORMALISATIONS[data] if preset == "released" else "dataset"
    return values


def preset_options(preset: str) -> dict[str, Any]:
    """Method options that a preset sets, for every method that has an option of that name."""
    return KMCL_PRESETS[preset].model_dump(exclude={"name"}, exclude_unset=True)
