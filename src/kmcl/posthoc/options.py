"""The options of post-hoc parts, which settings hold: without torch, unlike the parts."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kmcl.data.normalisation import STAGES_WITH_STATISTICS

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
