"""The options of every method, and what settings need to know of a method besides them.

Nothing here needs torch: the command line reads these classes to build its flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kmcl.errors import InputError, suggest
from kmcl.options.word_vectors import read_word_vectors
from kmcl.registry import Registry


class MethodOptions(BaseModel):
    """Options of a method. Each method has a subclass that declares its `name` as a literal.

    Every field but `name` becomes a flag of `kmcl train`, and is saved with the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    posthoc: ClassVar[tuple[str, ...]] = ()
    """Names of the method's default post-hoc parts, in order."""
    posthoc_without_frozen_stages: ClassVar[tuple[str, ...] | None] = None
    """The same for an encoder without frozen stages; None: those of `posthoc` that need none."""
    needs_feature_map: ClassVar[bool] = False
    """Whether its head has nothing to do without the positions of a feature map."""

    name: str

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        return tuple(name for name in cls.model_fields if name != "name")

    def resolved(self, *, pretrained: bool, labels: tuple[str, ...]) -> Self:
        """The options with those resolved that depend on the data or the encoder's initial weights."""
        return self

    def for_model(self) -> Self:
        """The options saved with a model, without paths that only training reads."""
        return self


ATTENTION_HEADS = 8
"""Attention heads of the decoders; their width is a multiple of it."""

DecoderWidth = Annotated[int, Field(ge=ATTENTION_HEADS, multiple_of=ATTENTION_HEADS)]


class AsymmetricOptions(MethodOptions):
    """Hyper-parameters of the asymmetric loss (Eq. 6), for every method that is trained with it."""

    positive_focus: float = Field(0.0, ge=0, description="gamma+ of the asymmetric loss (Eq. 6)")
    negative_focus: float = Field(4.0, ge=0, description="gamma- of the asymmetric loss (Eq. 6)")
    probability_margin: float = Field(0.05, ge=0, lt=1, description="m of the asymmetric loss (Eq. 6)")


class ContrastiveOptions(AsymmetricOptions):
    """Weights of a classification and a contrastive term, and the temperature of the second."""

    classification_weight: float = Field(1.0, ge=0, description="weight of the asymmetric loss (Eq. 6)")
    contrastive_weight: float = Field(0.1, ge=0, description="weight of the contrastive loss (Eq. 7)")
    temperature: float = Field(0.2, gt=0, description="temperature of the contrastive loss (Eq. 7)")


class BceOptions(MethodOptions):
    name: Literal["bce"] = "bce"


class FocalOptions(MethodOptions):
    name: Literal["focal"] = "focal"
    focal_focus: float = Field(2.0, ge=0, description="gamma of the focal loss")


class AslOptions(AsymmetricOptions):
    name: Literal["asl"] = "asl"


class CsraOptions(AsymmetricOptions):
    needs_feature_map = True

    name: Literal["csra"] = "csra"
    attention_heads: int = Field(4, ge=1, description="number of temperatures")
    residual_weight: float = Field(0.1, ge=0, description="lambda, the weight of the attended score")


class MLDecoderOptions(AsymmetricOptions):
    needs_feature_map = True

    name: Literal["mldecoder"] = "mldecoder"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_groups: int = Field(100, ge=1, description="largest number of queries")


class Q2LOptions(AsymmetricOptions):
    needs_feature_map = True

    name: Literal["q2l"] = "q2l"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")


class MLGCNOptions(AsymmetricOptions):
    name: Literal["mlgcn"] = "mlgcn"
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")
    graph_threshold: float = Field(0.4, ge=0, le=1, description="tau of the label graph")
    graph_neighbour_weight: float = Field(0.2, ge=0, le=1, description="p of the label graph")
    label_embedding_dim: int = Field(
        300, ge=1, description="width of the label embeddings; that of the word vectors where these are given"
    )
    word_vectors: Path | None = Field(
        None, description="text file of word vectors for the labels, as GloVe's; learned if not given"
    )

    def resolved(self, *, pretrained: bool, labels: tuple[str, ...]) -> Self:
        if self.word_vectors is None:
            return self
        width = len(read_word_vectors(self.word_vectors, labels)[0][0])
        return self.model_copy(update={"label_embedding_dim": width})

    def for_model(self) -> Self:
        return self.model_copy(update={"word_vectors": None})


class AddGCNOptions(AsymmetricOptions):
    needs_feature_map = True

    name: Literal["addgcn"] = "addgcn"
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")


class TDRGOptions(AsymmetricOptions):
    needs_feature_map = True

    name: Literal["tdrg"] = "tdrg"
    decoder_width: DecoderWidth = Field(768, description="width of the decoder's tokens")
    decoder_layers: int = Field(2, ge=1, description="layers of the decoder")
    graph_width: int = Field(1024, ge=1, description="width of the label nodes")


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


class MulSupConOptions(ContrastiveOptions):
    name: Literal["mulsupcon"] = "mulsupcon"
    embedding_dim: int = Field(128, ge=1, description="width of the embeddings that are contrasted")


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
    """The defaults are recommended; `KMCL_PRESETS` has the values of the paper and of the authors' code."""

    # Where there is a Gaussian process on frozen features, a vote adds nothing (docs/research/default.md).
    posthoc = ("frozen_gp", "unfamiliarity")
    posthoc_without_frozen_stages = ("kernel_vote", "unfamiliarity")

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

KMCL_PRESETS = {
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


METHOD_OPTIONS: Registry[type[MethodOptions]] = Registry(
    "method",
    "kmcl.methods",
    {
        "kmcl": KmclOptions,
        "asl": AslOptions,
        "bce": BceOptions,
        "focal": FocalOptions,
        "csra": CsraOptions,
        "mldecoder": MLDecoderOptions,
        "mulsupcon": MulSupConOptions,
        "q2l": Q2LOptions,
        "mlgcn": MLGCNOptions,
        "addgcn": AddGCNOptions,
        "tdrg": TDRGOptions,
        "aam": AamOptions,
    },
    type,
    attribute="options",
)
"""The class of options of every method by name, those of installed packages included."""


def methods_with(option: str) -> list[str]:
    """Names of the methods that have this option."""
    return [name for name, options in METHOD_OPTIONS.items() if option in options.option_names()]


def read_options(values: Mapping[str, Any]) -> MethodOptions:
    """The options of the method whose `name` is among the values; what is not given has its default.

    A key that the method does not have is an InputError that says which methods have it.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"method must be an object with its options; got {values!r}")
    name = values.get("name")
    if not isinstance(name, str):
        raise InputError(f"a method needs a name; got {name!r}")
    options = METHOD_OPTIONS.find(name)
    try:
        return options(**values)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(map(str, first["loc"]))
        if not option:  # about several options together
            raise InputError(str(first["ctx"]["error"])) from error
        if first["type"] != "extra_forbidden":
            raise InputError(f"{option}: {first['msg']}; got {first['input']!r}") from error
        others = methods_with(option)
        has_it = (
            f"; it is an option of {', '.join(others)}" if others else suggest(option, options.option_names())
        )
        raise InputError(f"method {name} has no option {option}{has_it}") from error
