"""The names of the package: complete, and cheap where timm is not needed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import kmcl.encoders
from kmcl.encoders import Encoder


def test_every_public_name_is_there() -> None:
    for name in kmcl.encoders.__all__:
        assert getattr(kmcl.encoders, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Decoder'"):
        kmcl.encoders.Decoder  # noqa: B018


def test_an_encoder_must_have_a_forward() -> None:
    with pytest.raises(TypeError, match="forward"):
        type("Silent", (Encoder,), {})()


def test_an_encoder_written_from_the_base_class_cannot_be_cut() -> None:
    class Given(Encoder):
        name = "given"

        def forward(self, images: torch.Tensor) -> kmcl.encoders.EncoderFeatures:
            return kmcl.encoders.EncoderFeatures(images.mean((2, 3)), images.flatten(2).transpose(1, 2))

    encoder = Given()
    assert isinstance(encoder, nn.Module)
    assert (encoder.num_frozen_stages, encoder.has_taps, encoder.frozen_tensors()) == (0, False, {})
    assert encoder(torch.rand(2, 3, 4, 4)).spatial.shape == (2, 16, 3)
    with pytest.raises(kmcl.InputError, match="'given' has no frozen stages"):
        encoder.rest()
