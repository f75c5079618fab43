"""KMCL: a linear and a query branch, or the paper's kernel mixture, trained with its three terms.

The paper's head is the kernel mixture alone. Label queries over the feature map can be added as a second
branch; and the kernels can be left out, which leaves a linear branch. The default has no kernels in its head:
no term of the loss that needs them changed any result by more than another seed does (docs/results.md). Its
kernels are those of the Gaussian process fitted after training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.errors import InputError
from kmcl.kernels import KernelMixture, kernel_family
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.losses import ObjectiveSettings, kmcl_objective
from kmcl.losses.arguments import check_inputs
from kmcl.losses.objective import classification_loss
from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.layers import AttentionLayer, label_logits
from kmcl.methods.linear import LinearHead
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import KMCL_PRESETS, KmclOptions
from kmcl.shapes import Float

FEEDFORWARD_RATIO = 8 / 3


class KernelMixtureHead(nn.Module):
    """KMM of the paper (Fig. 3 and appendix "Forward Propagation in KMM").

        π = sigmoid(W_π f + b_π)      μ = W_μ f + b_μ      σ² = ELU(W_σ f + b_σ) + 2 + ε

    in_features:      D, the encoder's feature width
    num_labels:       L
    kernel:           a name in `kmcl.kernels.KERNELS`; decides how many means and variances there are
    init:             a name in `INITIAL_VALUES`
    normalise_dimension: log-kernels and log-similarities are means over the D dimensions instead of the
                      paper's sums, with which Eq. 5 is so sharp a softmax that π learns little
    variance_epsilon: ε
    elu_alpha:        α of ELU, whose lower bound -α makes every variance exceed 2 - α + ε (paper: 1)

    Computes in float32 or better: the paper's variance weights sum D features, more than float16 can hold.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        kernel: str = "isotropic",
        *,
        init: str = "paper",
        normalise_dimension: bool = False,
        variance_epsilon: float = 1e-7,
        elu_alpha: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("num_labels", num_labels)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if not variance_epsilon > 0:
            raise ValueError(f"variance_epsilon must be above 0; got {variance_epsilon}")
        if not 0 < elu_alpha <= 2:
            raise ValueError(
                f"elu_alpha must be above 0 and at most 2, or variances go negative; got {elu_alpha}"
            )
        family = kernel_family(kernel)
        self.kernel = kernel
        self.in_features = in_features
        self.num_labels = num_labels
        self.normalise_dimension = normalise_dimension
        self.variance_epsilon = variance_epsilon
        self.elu_alpha = elu_alpha
        self.logits = nn.Linear(in_features, num_labels)
        self.means = nn.Linear(in_features, math.prod(family.mean_shape(num_labels, in_features)))
        self.variances = nn.Linear(in_features, math.prod(family.variance_shape(num_labels, in_features)))
        if init not in INITIAL_VALUES:
            raise InputError(f"init must be one of {', '.join(INITIAL_VALUES)}; got {init!r}")
        INITIAL_VALUES[init](self)

    @classmethod
    def from_preset(cls, preset: str, in_features: int, num_labels: int) -> Self:
        """The head of a preset of `kmcl train`: `kernels`, `paper` or `released`; see `KMCLObjective`.

        Without the label queries over the feature map that `kernels` adds for a pretrained encoder; see
        `KmclHead`.
        """
        presets = {name: options for name, options in KMCL_PRESETS.items() if options.has_kernels}
        if preset not in presets:
            raise InputError(f"preset must be one of {', '.join(presets)}; got {preset!r}")
        options = presets[preset]
        return cls(
            in_features,
            num_labels,
            options.kernel,
            init=options.head_init,
            normalise_dimension=options.normalise_dimension,
        )

    @without_autocast
    def forward(self, features: Float[Tensor, "B D"]) -> KernelMixture:
        if features.ndim != 2 or features.shape[1] != self.in_features:
            raise ValueError(f"features must be B x {self.in_features}; got shape {tuple(features.shape)}")
        if not features.is_floating_point():
            raise ValueError(f"features must be floating point; got {features.dtype}")
        family = kernel_family(self.kernel)
        features = at_least_float32(features)
        batch_size = features.shape[0]
        mean_shape = family.mean_shape(self.num_labels, self.in_features)
        variance_shape = family.variance_shape(self.num_labels, self.in_features)
        raw_variances = _apply_linear(self.variances, features).reshape(batch_size, *variance_shape)
        return KernelMixture(
            logits=_apply_linear(self.logits, features),
            means=_apply_linear(self.means, features).reshape(batch_size, *mean_shape),
            variances=functional.elu(raw_variances, self.elu_alpha) + 2 + self.variance_epsilon,
            feature_dim=self.in_features,
            kernel=self.kernel,
            exponent_scale=1 / self.in_features if self.normalise_dimension else 1.0,
        )


def _apply_linear(layer: nn.Linear, features: Tensor) -> Tensor:
    return functional.linear(features, layer.weight.to(features.dtype), layer.bias.to(features.dtype))


@torch.no_grad()
def _paper_initial_values(head: KernelMixtureHead) -> None:
    """Mixture and mean weights uniform in (0, 0.1], variance weights 1, biases 0 (hyper-parameter table)."""
    for layer in (head.logits, head.means):
        layer.weight.uniform_(
            -0.1, 0
        ).neg_()  # uniform_ includes its lower end: the sign moves it to the upper
        layer.bias.zero_()
    head.variances.weight.fill_(1)
    head.variances.bias.zero_()


@torch.no_grad()
def _released_initial_values(head: KernelMixtureHead) -> None:
    """As `paper`, but the mixture layer as torch makes it: weights and biases uniform within ±1/√D."""
    _paper_initial_values(head)
    head.logits.reset_parameters()


@torch.no_grad()
def _small_initial_values(head: KernelMixtureHead) -> None:
    """Normal weights of deviation 0.01, biases 0: labels start near probability ½, mean 0, variance 2."""
    for layer in (head.logits, head.means, head.variances):
        layer.weight.normal_(std=0.01)
        layer.bias.zero_()


INITIAL_VALUES: dict[str, Callable[[KernelMixtureHead], None]] = {
    "paper": _paper_initial_values,
    "released": _released_initial_values,
    "small": _small_initial_values,
}


class QueryBranch(nn.Module):
    """A learned query for each label attends to the positions once; the label's own weights score the result.

        q_k = layer(norm(query_k), relu(W_t x + b_t))        logit_k = w_k · q_k + b_k

    with x the features of the positions and `layer` as in ML-Decoder, without attention among queries.
    """

    def __init__(self, spatial_dim: int, num_labels: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(spatial_dim, width), nn.ReLU())
        self.queries = nn.Parameter(torch.randn(num_labels, width))
        self.query_norm = nn.LayerNorm(width)
        self.layer = AttentionLayer(width, round(FEEDFORWARD_RATIO * width), self_attention=False)
        self.weights = nn.Parameter(torch.empty(num_labels, width))
        self.biases = nn.Parameter(torch.zeros(num_labels))
        nn.init.normal_(self.weights, std=(2 / (width + 1)) ** 0.5)

    def forward(self, spatial: Float[Tensor, "B T S"]) -> Float[Tensor, "B L"]:
        started = self.query_norm(self.queries).expand(spatial.shape[0], -1, -1)
        return label_logits(self.layer(started, self.tokens(spatial)), self.weights, self.biases)


class KmclHead(nn.Module):
    """The paper's KMM on the pooled features, or a linear branch, and, if `query_width` is above 0, label
    queries.

    logit_k = logit of π_k, or its mean with the query's logit where there are queries
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: KmclOptions) -> None:
        super().__init__()
        self.kernel_mixture: KernelMixtureHead | None = None
        self.linear: LinearHead | None = None
        if options.has_kernels:
            self.kernel_mixture = KernelMixtureHead(
                encoder.feature_dim,
                num_labels,
                options.kernel,
                init=options.head_init,
                normalise_dimension=options.normalise_dimension,
            )
        else:
            self.linear = LinearHead(encoder, num_labels, options)
        self.query_branch: QueryBranch | None = None
        if options.query_width:
            self.query_branch = QueryBranch(encoder.spatial_dim, num_labels, options.query_width)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        mixture = None if self.kernel_mixture is None else self.kernel_mixture(encoded.pooled)
        logits = mixture.logits if mixture is not None else self._linear_logits(encoded)
        if self.query_branch is None:
            return HeadOutput(logits, encoded.pooled, mixture)
        branches = (logits, self.query_branch(encoded.spatial))
        return HeadOutput((branches[0] + branches[1]) / 2, encoded.pooled, mixture, branches)

    def _linear_logits(self, encoded: EncoderFeatures) -> Tensor:
        if self.linear is None:
            raise RuntimeError("a head has either kernels or a linear branch")
        logits: Tensor = self.linear(encoded).logits
        return logits


def objective_settings(options: KmclOptions) -> ObjectiveSettings:
    """The settings of `kmcl.losses.kmcl_objective` among the options."""
    return ObjectiveSettings(
        reconstruction_weight=options.reconstruction_weight,
        classification_weight=options.classification_weight,
        contrastive_weight=options.contrastive_weight,
        temperature=options.temperature,
        positive_focus=options.positive_focus,
        negative_focus=options.negative_focus,
        probability_margin=options.probability_margin,
        detach_focus=options.detach_focus,
        jaccard_in_log=options.jaccard_in_log,
    )


def kmcl_loss(output: HeadOutput, targets: Tensor, options: KmclOptions) -> LossTerms:
    """Eq. 8, or Eq. 6 alone without kernels; of several branches the mean of their classification terms."""
    if output.mixture is None:
        return _classification_loss(output, targets, options)
    settings = objective_settings(options)
    terms = kmcl_objective(output.features, output.mixture, targets, settings, output.branches)
    named = {
        "reconstruction": terms.reconstruction,
        "classification": terms.classification,
        "contrastive": terms.contrastive,
    }
    return LossTerms(terms.total, named)


def _classification_loss(output: HeadOutput, targets: Tensor, options: KmclOptions) -> LossTerms:
    branches = output.branches or (output.logits,)
    checked = check_inputs(targets, {f"branches[{index}]": logits for index, logits in enumerate(branches)})
    loss = classification_loss(branches, checked, objective_settings(options))
    return LossTerms(options.classification_weight * loss, {"classification": loss})


METHOD = Method(KmclOptions, KmclHead, kmcl_loss)
