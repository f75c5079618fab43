"""The encoder for small pictures."""

from __future__ import annotations

import subprocess
import sys

import torch

from kmcl.encoders.timm_encoder import build_encoder
from kmcl.encoders.weights import default_weights


def test_it_keeps_an_eighth_of_the_side_and_pools_by_the_maximum():
    encoder = build_encoder("small_convnet").eval()
    assert (encoder.feature_dim, encoder.spatial_dim, encoder.input_size) == (128, 128, 64)
    features = encoder(torch.rand(2, 3, 64, 64))
    assert features.spatial.shape == (2, 64, 128)
    torch.testing.assert_close(features.pooled, features.spatial.amax(dim=1))


def test_it_takes_grey_images_of_any_size():
    features = build_encoder("small_convnet", in_channels=1, image_size=28).eval()(torch.rand(1, 1, 28, 28))
    assert features.pooled.shape == (1, 128)


def test_nobody_has_weights_for_it_also_before_any_encoder_is_built():
    assert default_weights("small_convnet") == "none"
    code = "from kmcl.encoders.weights import default_weights; print(default_weights('small_convnet'))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "none"
