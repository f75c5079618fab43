"""What the service answers, for its OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Companion(_Answer):
    """A label that usually comes along with another one."""

    label: str
    share: float = Field(
        ge=0, le=1, description="of the images with the other label, how many have this one too"
    )


class SaliencyMap(_Answer):
    """Where in the image the evidence for a label lies: a grid over the whole image, top row first."""

    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    values: list[list[float]] = Field(
        description="heat of each cell, 0 to 1; all 0 where nothing speaks for it"
    )


class Label(_Answer):
    """What the model says of one label in one image."""

    label: str
    probability: float = Field(ge=0, le=1, description="calibrated, where the model has been calibrated")
    low: float | None = Field(
        ge=0, le=1, description="with `high` the 90 % band of the probability; null for an uncalibrated model"
    )
    high: float | None = Field(ge=0, le=1)
    present: bool = Field(description="the decision: score >= threshold")
    score: float = Field(ge=0, le=1, description="as the model's head gives it, before calibration")
    threshold: float = Field(description="of the score, from which the label counts as present")
    probability_threshold: float = Field(ge=0, le=1, description="the same threshold as a probability")
    sigma: float | None = Field(description="standard deviation of the label's kernel; null without kernels")
    companions: list[Companion] = Field(description="of a present label: what usually comes along with it")
    saliency: SaliencyMap | None = Field(description="null where it was not asked for")


class Image(_Answer):
    name: str
    labels: list[Label] = Field(description="all labels, in the model's order")


class Predictions(_Answer):
    images: list[Image] = Field(description="in the order of the request")


class LabelDescription(_Answer):
    label: str
    threshold: float
    probability_threshold: float = Field(ge=0, le=1)
    companions: list[Companion]


class Labels(_Answer):
    """The model, as far as a client needs to know it."""

    name: str
    labels: list[LabelDescription]
    image_size: int = Field(ge=1, description="side of the squares the model sees")
    has_bands: bool
    has_sigma: bool
    has_saliency: bool
    max_images: int = Field(ge=1)
    max_body_bytes: int = Field(ge=1)


class Health(_Answer):
    status: Literal["ok"]


class ErrorDetail(_Answer):
    code: str = Field(description="one word for programs")
    message: str = Field(description="one sentence for people")


class Error(_Answer):
    error: ErrorDetail
