"""Encoder and head as one module, from pixels to scores: what is trained, saved and served."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from kmcl.kernels import KernelMixture
from kmcl.shapes import Float, Num

if TYPE_CHECKING:
    from kmcl.models.encoder import Encoder, EncoderFeatures


class HeadOutput(NamedTuple):
    """What a head makes of an encoder's features.

    features: the vectors its kernels live in or that it scores, from which label similarities are drawn.
    mixture:  the kernel mixture, where the head has one.
    branches: logits of a head's parts, where its loss trains each of them besides what they give together.
    statistics: what KMCL's recollection sees of the images, where the head has one.
    """

    logits: Float[Tensor, "B L"]
    features: Float[Tensor, "B D"]
    mixture: KernelMixture | None
    branches: tuple[Float[Tensor, "B L"], ...] = ()
    statistics: Float[Tensor, "B S"] | None = None

    @property
    def probabilities(self) -> Float[Tensor, "B L"]:
        return self.logits.sigmoid()

    @property
    def sigma(self) -> Float[Tensor, "B L"] | None:
        """Standard deviation of each label's kernel, where there are kernels."""
        return None if self.mixture is None else self.mixture.label_variances.sqrt()


class Head(Protocol):
    """Any module from `EncoderFeatures` to `HeadOutput`."""

    def __call__(self, encoded: EncoderFeatures) -> HeadOutput: ...


class Classifier(nn.Module):
    """An encoder and a head. Takes raw pixels and normalises them as the encoder's weights expect."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        # (x/255 - mean)/std as one product and one sum.
        mean, std = torch.tensor(encoder.mean), torch.tensor(encoder.std)
        self.register_buffer("pixel_scale", (1 / std).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("pixel_shift", (-mean / std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Num[Tensor, "B C H W"]) -> HeadOutput:
        """Score images, uint8 between 0 and 255 or floating point between 0 and 1."""
        output: HeadOutput = self.head(self.encoder(self.normalise(images)))
        return output

    def frozen_rows(self, images: Num[Tensor, "B C H W"]) -> Float[Tensor, "B R"]:
        """What the encoder's frozen stages make of images; `score_rows` takes it from there."""
        return self.encoder.frozen_rows(self.normalise(images))

    def score_rows(self, rows: Float[Tensor, "B R"]) -> HeadOutput:
        """`forward` of the images these rows are of, in any floating-point type."""
        scale: Tensor = self.pixel_scale  # type: ignore[assignment]
        output: HeadOutput = self.head(self.encoder.encode_rows(rows.to(scale.dtype)))
        return output

    def normalise(self, images: Num[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        scale: Tensor = self.pixel_scale  # type: ignore[assignment]
        shift: Tensor = self.pixel_shift  # type: ignore[assignment]
        if images.shape[1] == 3 and self.encoder.in_channels == 1:
            images = images[:, :1]  # grey images stored as three equal channels
        if not images.is_floating_point():
            return torch.addcmul(shift, images.to(scale.dtype), scale / 255)
        return torch.addcmul(shift, images, scale)


class RowsClassifier(nn.Module):
    """A classifier that is given rows of its frozen stages where others are given images."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, rows: Float[Tensor, "B R"]) -> HeadOutput:
        return self.classifier.score_rows(rows)
