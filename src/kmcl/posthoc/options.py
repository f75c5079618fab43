"""Options that every post-hoc part has."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PosthocOptions(BaseModel):
    """Options of a part. Each part has a subclass that declares its `name` as a literal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
