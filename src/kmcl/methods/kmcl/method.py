"""KMCL: a kernel mixture over the pooled features, trained with the paper's three terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from kmcl.methods.interface import Method
from kmcl.methods.options import ATTENTION_HEADS, ContrastiveOptions

if TYPE_CHECKING:
    from kmcl.losses import ObjectiveSettings

QUERY_WIDTH = 128
"""Default width of the label queries if the encoder is pretrained."""


class KmclOptions(ContrastiveOptions):
    """The defaults are the recommended values; `PRESETS` has those of the paper and of the authors' code."""

    name: Literal["kmcl"] = "kmcl"
    kernel: Literal["isotropic", "anisotropic", "mahalanobis", "gaussian"] = Field(
        "isotropic", description="kernel of the mixture, and with it the similarity of the contrastive loss"
    )
    head_init: Literal["paper", "released", "small"] = Field(
        "small", description="initial values of the kernel mixture"
    )
    normalise_dimension: bool = Field(
        True, description="mean over the feature dimensions in the log-kernels, instead of the sum"
    )
    query_width: int | None = Field(
        None,
        ge=0,
        multiple_of=ATTENTION_HEADS,
        description="width of the label queries over the feature map, 0 for none; if not given 128, or 0 for "
        "an encoder without pretrained weights",
    )
    reconstruction_weight: float = Field(0.1, ge=0, description="weight of the reconstruction loss (Eq. 5)")

    detach_focus: bool = Field(
        False, description="the focal factors of the asymmetric loss (Eq. 6) as constants to the gradient"
    )
    jaccard_in_log: bool = Field(
        False, description="the Jaccard index of the contrastive loss (Eq. 7) inside its logarithm"
    )

    def resolved(self, *, pretrained: bool, labels: tuple[str, ...]) -> Self:
        """Set `query_width` if it is not given: label queries need pretrained features."""
        if self.query_width is not None:
            return self
        return self.model_copy(update={"query_width": QUERY_WIDTH if pretrained else 0})

    @property
    def objective(self) -> ObjectiveSettings:
        """The settings for `kmcl.losses.kmcl_objective`."""
        from kmcl.losses import ObjectiveSettings

        return ObjectiveSettings(
            reconstruction_weight=self.reconstruction_weight,
            classification_weight=self.classification_weight,
            contrastive_weight=self.contrastive_weight,
            temperature=self.temperature,
            positive_focus=self.positive_focus,
            negative_focus=self.negative_focus,
            probability_margin=self.probability_margin,
            detach_focus=self.detach_focus,
            jaccard_in_log=self.jaccard_in_log,
        )


_PAPER = KmclOptions(
    head_init="paper",
    normalise_dimension=False,
    query_width=0,
    reconstruction_weight=1.0,
    classification_weight=0.1,
    contrastive_weight=0.3,
    temperature=0.2,
)

PRESETS = {
    "default": KmclOptions(),
    "paper": _PAPER,
    "released": _PAPER.model_copy(
        update={
            "head_init": "released",
            "detach_focus": True,
            "jaccard_in_log": True,
            "reconstruction_weight": 1 / 64,
            "classification_weight": 1.0,
            "contrastive_weight": 1 / 64,
            "temperature": 0.17,
        }
    ),
}
"""The recommended form; the paper as printed; the authors' code, with the weights it effectively has."""

METHOD = Method(
    "kernel mixture, with the three terms of the paper",
    KmclOptions,
    head="kmcl.methods.kmcl.head:KmclHead",
    loss="kmcl.methods.kmcl.head:kmcl_loss",
    # Where there is a Gaussian process on frozen features, a vote adds nothing (docs/research/default.md).
    posthoc=("frozen_gp", "unfamiliarity"),
    posthoc_without_frozen_stages=("kernel_vote", "unfamiliarity"),
)
