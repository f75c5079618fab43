"""The options of post-hoc parts, which settings hold: without torch, unlike the parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kmcl.errors import InputError, suggest
from kmcl.registry import Registry

STAGES_WITH_STATISTICS = 3
"""How many of the last tapped stages `StageTaps.statistics` describes."""
MOST_CELLS = 14
"""In a row of the grid of a Gaussian process."""


class PosthocOptions(BaseModel):
    """Options of a part. Each part has a subclass that declares its `name` as a literal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    needs_frozen_stages: ClassVar[bool] = False
    """Whether the part cannot do without the encoder's frozen stages, `EncoderFeatures.taps`."""

    name: str
    max_images: int = Field(
        8192,
        ge=1,
        le=32768,
        description="maximum number of training images to use; a random subset if there are more",
    )

    @property
    def arguments(self) -> dict[str, int]:
        """The keyword arguments with which the part is built, besides encoder and number of labels."""
        return {}


class KernelVoteOptions(PosthocOptions):
    name: Literal["kernel_vote"] = "kernel_vote"


class UnfamiliarityOptions(PosthocOptions):
    name: Literal["unfamiliarity"] = "unfamiliarity"


class FrozenGPOptions(PosthocOptions):
    needs_frozen_stages = True

    name: Literal["frozen_gp"] = "frozen_gp"
    last_map: bool = Field(
        True,
        description="whether it reads the last feature map too, by a copy of the trained stages from before "
        "training; without it a prediction costs no more than the classifier's own",
    )
    stages: int = Field(
        STAGES_WITH_STATISTICS,
        ge=0,
        le=STAGES_WITH_STATISTICS,
        description="of how many of the encoder's last frozen stages it reads means and deviations",
    )
    grid: int = Field(
        0,
        ge=0,
        le=MOST_CELLS,
        description="reads the means of the last frozen map in this many times this many cells, which say "
        "where in the image something is; 0 for none",
    )

    @model_validator(mode="after")
    def _reads_something(self) -> FrozenGPOptions:
        if not (self.last_map or self.stages or self.grid):
            raise ValueError("frozen_gp needs last_map, stages or grid; got last_map=false, stages=0, grid=0")
        return self

    @property
    def arguments(self) -> dict[str, int]:
        return {"last_map": int(self.last_map), "stages": self.stages, "grid": self.grid}


PART_OPTIONS: Registry[type[PosthocOptions]] = Registry(
    "post-hoc part",
    "kmcl.posthoc",
    {"frozen_gp": FrozenGPOptions, "kernel_vote": KernelVoteOptions, "unfamiliarity": UnfamiliarityOptions},
    type,
    attribute="Options",
)
"""The class of options of every part by name, those of installed packages included."""


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
        if not isinstance(entry, Mapping):
            raise InputError(
                f"posthoc: a part must have its name and options, as in name: kernel_vote; got {entry!r}"
            )
        values = dict(entry)
        name = str(values.get("name", ""))
        options = PART_OPTIONS.find(name)
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
