"""Encoder, head and post-hoc parts as one module from pixels to scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.errors import InputError
from kmcl.methods.output import HeadOutput
from kmcl.posthoc.added_labels import AddedLabels, ImageMemory
from kmcl.posthoc.interface import PosthocPart
from kmcl.shapes import Float, Num


class Classifier(nn.Module):
    """An encoder, a head and the post-hoc parts that correct its logits, by name, in order.

    added: labels that it got after training, whose logits follow those of the head

    Takes raw pixels and normalises them as the encoder's weights expect; or feature vectors, which it
    normalises too.
    """

    pixel_scale: Tensor
    pixel_shift: Tensor

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module,
        posthoc: Mapping[str, PosthocPart] | None = None,
        added: AddedLabels | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.posthoc = nn.ModuleDict(dict(posthoc or {}))
        self.added = added
        # (x/255 - mean)/std as one product and one sum.
        mean, std = torch.tensor(encoder.mean), torch.tensor(encoder.std)
        shape = (1, -1) if encoder.takes_vectors else (1, -1, 1, 1)
        self.register_buffer("pixel_scale", (1 / std).view(shape), persistent=False)
        self.register_buffer("pixel_shift", (-mean / std).view(shape), persistent=False)

    @property
    def gives_unfamiliarity(self) -> bool:
        """Whether one of the parts says how unlike the training images an image is."""
        return any(cast("PosthocPart", part).gives_unfamiliarity for part in self.posthoc.values())

    @property
    def summary_size(self) -> int:
        """How many numbers summarise the features of an image; 0 where no part gives them."""
        return max((cast("PosthocPart", part).summary_size for part in self.posthoc.values()), default=0)

    def forward(self, images: Num[Tensor, "B C *size"]) -> HeadOutput:
        """Score images, uint8 between 0 and 255 or floating point between 0 and 1; or feature vectors."""
        return self.score(self.encode(images))

    def encode(self, images: Num[Tensor, "B C *size"]) -> EncoderFeatures:
        """The encoder's features of images."""
        encoded: EncoderFeatures = self.encoder(self.normalise(images))
        return encoded

    def encode_rows(self, rows: Float[Tensor, "B R"]) -> EncoderFeatures:
        """`encode` from the rows that `frozen_rows` gave, in any floating-point type."""
        return self.encoder.encode_rows(rows.to(self.pixel_scale.dtype))

    def score(self, encoded: EncoderFeatures) -> HeadOutput:
        """The head's output with the corrections of the post-hoc parts, and the added labels."""
        output: HeadOutput = self.head(encoded)
        logits, unfamiliarity, added = output.logits, output.unfamiliarity, None
        summary = output.feature_summary
        for name, module in self.posthoc.items():
            part = cast("PosthocPart", module)
            observations = part.observe(encoded, output)
            if self.added is not None and name == self.added.source:
                memory = cast("ImageMemory", module)
                added = self.added(memory.directions_of(observations))
            if part.corrects_logits:
                logits = logits + part(observations)
            if part.gives_unfamiliarity:
                unfamiliarity = part.unfamiliarity(observations, logits)
            if part.summary_size:
                summary = part.feature_summary(observations)
        output = output._replace(logits=logits, unfamiliarity=unfamiliarity, feature_summary=summary)
        if self.added is None or added is None:
            return output
        logits = torch.cat([logits, added.to(logits)], dim=1)
        return output._replace(logits=logits, added_sigma=self.added.sigma)

    def score_rows(self, rows: Float[Tensor, "B R"]) -> HeadOutput:
        """`forward` from the rows that `frozen_rows` gave."""
        return self.score(self.encode_rows(rows))

    def frozen_rows(self, images: Num[Tensor, "B C *size"]) -> Float[Tensor, "B R"]:
        """The output of the encoder's frozen stages, one flat row per image."""
        return self.encoder.frozen_rows(self.normalise(images))

    def normalise(self, images: Num[Tensor, "B stored_C *size"]) -> Float[Tensor, "B C *size"]:
        if self.encoder.takes_vectors:
            self._check_vectors(images)
            return torch.addcmul(self.pixel_shift, images.to(self.pixel_scale.dtype), self.pixel_scale)
        if images.shape[1] == 3 and self.encoder.in_channels == 1:
            images = images[:, :1]  # grey images stored as three equal channels
        if not images.is_floating_point():
            scale = self.pixel_scale / 255
            return torch.addcmul(self.pixel_shift, images.to(self.pixel_scale.dtype), scale)
        return torch.addcmul(self.pixel_shift, images, self.pixel_scale)

    def _check_vectors(self, vectors: Tensor) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.encoder.in_channels:
            raise InputError(
                f"the model takes feature vectors of {self.encoder.in_channels} numbers; got shape "
                f"{tuple(vectors.shape)}"
            )
