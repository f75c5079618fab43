"""The responses of the service, for its OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CooccurringLabel(_Answer):
    """A label that often occurs together with another one."""

    label: str
    share: float = Field(
        ge=0, le=1, description="share of the training images with the other label that have this one too"
    )


class SaliencyMap(_Answer):
    """Where in the image the evidence for a label lies: a grid over the whole image, top row first."""

    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    values: list[list[float]] = Field(
        description="heat of each cell, 0 to 1; all 0 where there is no evidence"
    )


class Label(_Answer):
    """The prediction for one label of one image."""

    label: str
    probability: float = Field(ge=0, le=1, description="calibrated, if the model was calibrated")
    low: float | None = Field(
        ge=0, le=1, description="lower bound of the 90 % probability interval; null for an uncalibrated model"
    )
    high: float | None = Field(ge=0, le=1, description="upper bound of that interval")
    threshold: float = Field(ge=0, le=1, description="the probability from which the label counts as present")
    present: bool = Field(description="the decision: probability >= threshold")
    unsure: bool | None = Field(
        description="whether the decision is left to a person; null where the service leaves none (--abstain)"
    )
    score: float = Field(ge=0, le=1, description="output of the model before calibration")
    sigma: float | None = Field(description="standard deviation of the label's kernel; null without kernels")
    cooccurring_labels: list[CooccurringLabel] = Field(
        description="for a present label: labels that often occur together with it"
    )
    saliency: SaliencyMap | None = Field(description="null where it was not requested")


class Image(_Answer):
    name: str
    labels: list[Label] = Field(description="all labels, in the model's order")
    unfamiliarity: float | None = Field(
        ge=0,
        le=1,
        description="how unlike the training images it is: the share of val that is less unlike them; "
        "null for a model without that post-hoc part",
    )
    unfamiliar: bool | None = Field(
        description="whether it counts as unlike them, unfamiliarity >= 0.95; null likewise"
    )


class Predictions(_Answer):
    images: list[Image] = Field(description="in the order of the request")


class LabelDescription(_Answer):
    label: str
    threshold: float = Field(ge=0, le=1, description="the probability from which the label counts as present")
    cooccurring_labels: list[CooccurringLabel]


class Guarantee(_Answer):
    """What the thresholds promise for images like those of val."""

    kind: Literal["recall", "precision", "found"]
    level: float = Field(gt=0, lt=1, description="the rate that is promised")
    confidence: float | None = Field(description="over the choice of val; null: in expectation")
    not_given: list[str] = Field(description="labels that the promise is not made for")
    sentence: str = Field(description="the promise, for people")


class Labels(_Answer):
    """The model and the limits, as far as a client needs to know them."""

    name: str
    labels: list[LabelDescription]
    image_size: int = Field(ge=1, description="side in pixels of the square images that the model takes")
    has_probability_intervals: bool
    has_sigma: bool
    has_unfamiliarity: bool
    has_saliency: bool
    guarantee: Guarantee | None = Field(description="null where the thresholds promise nothing")
    unsure_above: float | None = Field(
        ge=0,
        le=1,
        description="the probability of an error above which a decision is left to a person; null: none is",
    )
    max_images: int = Field(ge=1)
    max_body_bytes: int = Field(ge=1)


class Health(_Answer):
    status: Literal["ok"]


class ErrorDetail(_Answer):
    code: str = Field(description="an identifier for programs")
    message: str = Field(description="a sentence for people")


class Error(_Answer):
    error: ErrorDetail
