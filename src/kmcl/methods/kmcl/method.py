"""KMCL: a linear and a query branch, or the paper's kernel mixture, trained with its three terms.

The default has no kernels in its head: no term of the loss that needs them changed any result by more than
another seed does (docs/results.md). Its kernels are those of the Gaussian process fitted after training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from kmcl.methods.interface import Method
from kmcl.methods.options import ATTENTION_HEADS, ContrastiveOptions

if TYPE_CHECKING:
    from kmcl.losses import ObjectiveSettings

QUERY_WIDTH = 128
"""Default width of the label queries if the encoder is pretrained."""
NO_KERNELS = "none"
OF_KERNELS = (
    "head_init",
    "normalise_dimension",
    "reconstruction_weight",
    "contrastive_weight",
    "temperature",
    "jaccard_in_log",
)
"""Options that have no effect without kernels."""


class KmclOptions(ContrastiveOptions):
    """The defaults are the recommended values; `PRESETS` has those of the paper and of the authors' code."""

    name: Literal["kmcl"] = "kmcl"
    kernel: Literal["none", "isotropic", "anisotropic", "mahalanobis", "gaussian"] = Field(
        "none",
        description="kernel of the mixture, and with it the similarity of the contrastive loss; none: a head "
        "without kernels, trained with the asymmetric loss alone",
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

    @model_validator(mode="after")
    def _kernels_for_their_options(self) -> Self:
        if not self.has_kernels:
            for name in OF_KERNELS:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(
                        f"{name} {getattr(self, name)}: is about kernels, and kernel is none; give a kernel "
                        "too, for instance isotropic"
                    )
        return self

    @property
    def has_kernels(self) -> bool:
        return self.kernel != NO_KERNELS

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
    kernel="isotropic",
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
    "kernels": KmclOptions(kernel="isotropic"),
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
"""The recommended form; the same with kernels; the paper as printed; the authors' code, with the weights that
it effectively has.
"""

METHOD = Method(
    "linear and query branches; or the paper's kernel mixture and loss",
    KmclOptions,
    head="kmcl.methods.kmcl.head:KmclHead",
    loss="kmcl.methods.kmcl.head:kmcl_loss",
    # Where there is a Gaussian process on frozen features, a vote adds nothing (docs/research/default.md).
    posthoc=("frozen_gp", "unfamiliarity"),
    posthoc_without_frozen_stages=("kernel_vote", "unfamiliarity"),
)
