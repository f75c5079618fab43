"""The encoder of data that are feature vectors already: it passes them on."""

from __future__ import annotations

from torch import Tensor, nn

from kmcl.data.normalisation import IDENTITY
from kmcl.encoders.interface import Encoder, EncoderFeatures, StageTaps
from kmcl.errors import InputError
from kmcl.shapes import Float

__all__ = ["IdentityEncoder"]


class IdentityEncoder(Encoder):
    """Feature vectors in, the same vectors out, as pooled feature and as the feature of the only position.

    There is nothing to train. For post-hoc parts it is one frozen stage, whose only map has that position.

    feature_dim: D, how many numbers a vector has; `in_channels` too, so that each is normalised by itself.
    """

    num_frozen_stages = 1

    def __init__(self, feature_dim: int, *, taps: bool = False) -> None:
        super().__init__()
        if feature_dim < 1:
            raise InputError(f"feature_dim must be at least 1; got {feature_dim}")
        self.name = IDENTITY
        self.in_channels = self.feature_dim = self.spatial_dim = feature_dim
        self.input_size = 0
        self.mean, self.std = (0.0,) * feature_dim, (1.0,) * feature_dim
        self.backbone = _Unchanged()
        self.feature_map = nn.Identity()
        self.has_taps = taps

    def forward(self, images: Float[Tensor, "B D"]) -> EncoderFeatures:
        """Pass on normalised feature vectors."""
        return self._features(images, taps=self.has_taps)

    @property
    def statistic_widths(self) -> tuple[int, ...]:
        return ()

    @property
    def row_width(self) -> int:
        return self.feature_dim

    def frozen_rows(self, images: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return images

    def encode_rows(self, rows: Float[Tensor, "B D"]) -> EncoderFeatures:
        return self._features(rows, taps=True)

    def rest(self) -> nn.Module:
        return self.backbone

    def with_taps(self) -> IdentityEncoder:
        tapped = IdentityEncoder(self.feature_dim, taps=True)
        tapped.mean, tapped.std = self.mean, self.std
        return tapped

    def _features(self, vectors: Tensor, *, taps: bool) -> EncoderFeatures:
        spatial = self.feature_map(vectors.unsqueeze(1))
        return EncoderFeatures(vectors, spatial, StageTaps(spatial, ()) if taps else None)


class _Unchanged(nn.Module):
    """A backbone without layers, as timm's are called."""

    def forward_features(self, maps: Tensor) -> Tensor:
        return maps
