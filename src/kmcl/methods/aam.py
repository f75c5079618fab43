"""AAM: cosine classifiers with the asymmetric angular margin loss (Prokofiev and Sovrasov, VISAPP 2023)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmcl.methods.interface import Method, MethodOptions


class AamOptions(MethodOptions):
    name: Literal["aam"] = "aam"
    angular_scale: float = Field(7.0, gt=0, description="s, the length of the normalised features")
    angular_margin: float = Field(0.0, ge=0, lt=1, description="m, the margin on the cosine")
    positive_share: float = Field(0.8, gt=0, lt=1, description="k, the weight of present labels")
    positive_focus: float = Field(0.0, ge=0, description="gamma+ of the angular loss")
    negative_focus: float = Field(1.0, ge=0, description="gamma- of the angular loss")
    probability_margin: float = Field(
        0.05, ge=0, lt=1, description="added to the probability that an absent label is absent"
    )


METHOD = Method(
    "cosine classifiers, asymmetric angular margin loss",
    AamOptions,
    head="kmcl.methods.heads.angular:AngularHead",
    loss="kmcl.methods.heads.angular:aam_loss",
)
