"""The output of a head."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kmcl.encoders import EncoderFeatures
from kmcl.kernels import KernelMixture
from kmcl.shapes import Float


class HeadOutput(NamedTuple):
    """What a head computes from an encoder's features.

    features: the vectors that its kernels or its classifier act on, used for label similarities.
    mixture:  the kernel mixture, where the head has one.
    branches: logits of a head's parts, if its loss trains each of them in addition to their combination.
    unfamiliarity: how unlike the training images each image is, from 0 to 1, where a post-hoc part gives it.
    feature_summary: a few numbers about its features, where a post-hoc part gives them.
    added_sigma: standard deviation of the kernels of labels that were added after training, the last logits.
    """

    logits: Float[Tensor, "B L"]
    features: Float[Tensor, "B D"]
    mixture: KernelMixture | None
    branches: tuple[Float[Tensor, "B L"], ...] = ()
    unfamiliarity: Float[Tensor, " B"] | None = None
    added_sigma: Float[Tensor, " K"] | None = None
    feature_summary: Float[Tensor, "B S"] | None = None

    @property
    def probabilities(self) -> Float[Tensor, "B L"]:
        return self.logits.sigmoid()

    @property
    def sigma(self) -> Float[Tensor, "B L"] | None:
        """Standard deviation of each label's kernel, where there are kernels."""
        if self.mixture is None:
            return None
        sigma = self.mixture.label_variances.sqrt()
        if self.added_sigma is None:
            return sigma
        return torch.cat([sigma, self.added_sigma.to(sigma).expand(sigma.shape[0], -1)], dim=1)


class Head(Protocol):
    """Any module from `EncoderFeatures` to `HeadOutput`."""

    def __call__(self, encoded: EncoderFeatures) -> HeadOutput: ...
