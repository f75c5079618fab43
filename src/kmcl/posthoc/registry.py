"""The tables of post-hoc parts and of their options. A new part is a module with its class, options in
`options.py`, and an entry in both.

Other packages add theirs by the entry-point group `kmcl.posthoc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kmcl.errors import InputError, suggest
from kmcl.posthoc.options import (
    FrozenGPOptions,
    KernelVoteOptions,
    PosthocOptions,
    UnfamiliarityOptions,
)
from kmcl.registry import Registry

if TYPE_CHECKING:
    from kmcl.posthoc.interface import PosthocPart

PARTS: Registry[Any] = Registry(
    "post-hoc part",
    "kmcl.posthoc",
    {
        "frozen_gp": "kmcl.posthoc.frozen_gp:FrozenFeatureGP",
        "kernel_vote": "kmcl.posthoc.kernel_vote:KernelVote",
        "unfamiliarity": "kmcl.posthoc.unfamiliarity:Unfamiliarity",
    },
    type,
)

OPTIONS: dict[str, type[PosthocOptions]] = {
    "frozen_gp": FrozenGPOptions,
    "kernel_vote": KernelVoteOptions,
    "unfamiliarity": UnfamiliarityOptions,
}
"""Of the parts of this package, which need torch themselves."""


def find_options(name: str) -> type[PosthocOptions]:
    """The class of the options of the part called `name`."""
    return OPTIONS[name] if name in OPTIONS else find_part(name).Options


def find_part(name: str) -> type[PosthocPart]:
    """The class of the part called `name`."""
    part: type[PosthocPart] = PARTS.find(name)
    return part


def parse_parts(text: str) -> list[dict[str, str]]:
    """Read `frozen_gp,kernel_vote:max_images=4096` (or with + between parts), or `none`.

    Returns: for each part its name and the options that were given.
    """
    if text.strip().lower() in ("none", ""):
        return []
    found: list[dict[str, str]] = []
    for piece in re.split(r"[,+]", text):
        head, colon, first = piece.strip().partition(":")
        if "=" in head and found and not colon:
            name, _, value = head.partition("=")
            found[-1][name.strip()] = value.strip()
            continue
        found.append({"name": head.strip()})
        if colon:
            name, equals, value = first.partition("=")
            if not equals:
                raise InputError(f"posthoc {text!r}: {first!r} is not OPTION=VALUE")
            found[-1][name.strip()] = value.strip()
    return found


def read_parts(entries: Iterable[Mapping[str, Any]]) -> tuple[PosthocOptions, ...]:
    """The options of each part, checked; each is a mapping with the part's `name`."""
    parts: list[PosthocOptions] = []
    for entry in entries:
        values = dict(entry)
        name = str(values.get("name", ""))
        options = find_options(name)
        if any(part.name == name for part in parts):
            raise InputError(f"posthoc: {name} is given twice")
        try:
            parts.append(options(**values))
        except ValidationError as error:
            first = error.errors()[0]
            option = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                known = [field for field in options.model_fields if field != "name"]
                raise InputError(
                    f"posthoc part {name} has no option {option!r}{suggest(option, known)}; "
                    f"it has {', '.join(known)}"
                ) from error
            if not option:  # of the options together
                raise InputError(f"posthoc part {first['ctx']['error']}") from error
            raise InputError(
                f"posthoc part {name}: {option}: {first['msg']}; got {first['input']!r}"
            ) from error
    return tuple(parts)
