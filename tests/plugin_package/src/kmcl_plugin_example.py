"""A plug-in of each kind: a method, a reader, an encoder and a post-hoc part."""

from typing import Literal

import numpy as np
import torch
from torch import nn

from kmcl.data import Dataset, Reader, ReaderOptions, Split
from kmcl.data.arrays import ArrayImages
from kmcl.encoders import EncoderFactory
from kmcl.methods import HeadOutput, LossTerms, Method, MethodOptions
from kmcl.posthoc import PosthocOptions, PosthocPart


class ScaledOptions(MethodOptions):
    name: Literal["scaled"] = "scaled"
    scale: float = 1.0


class ScaledHead(nn.Module):
    def __init__(self, encoder, num_labels, options):
        super().__init__()
        self.linear, self.scale = nn.Linear(encoder.feature_dim, num_labels), options.scale

    def forward(self, encoded):
        return HeadOutput(self.scale * self.linear(encoded.pooled), encoded.pooled, None)


def scaled_loss(output, targets, options):
    loss = nn.functional.binary_cross_entropy_with_logits(output.logits, targets.clamp(min=0).float())
    return LossTerms(loss, {"classification": loss})


METHOD = Method(ScaledOptions, ScaledHead, scaled_loss)


def read_colours(options):
    rng = np.random.default_rng(options.seed)
    splits = {}
    for name, count in (("train", 48), ("val", 24), ("test", 24)):
        targets = (rng.random((count, 3)) < 0.4).astype(np.int8)
        pixels = np.broadcast_to(200 * targets.astype(np.uint8)[:, None, None], (count, 16, 16, 3))
        splits[name] = Split(ArrayImages(pixels.copy(), f"colours-{name}"), targets)
    return Dataset("colours", ("red", "green", "blue"), splits)


READER = Reader(read_colours, ReaderOptions)

ENCODER = EncoderFactory(lambda size, channels: nn.Conv2d(channels, 6, 3, stride=2), image_size=16)


class BaseRateOptions(PosthocOptions):
    name: Literal["base_rate"] = "base_rate"


class BaseRate(PosthocPart):
    """Adds the log-odds of each label's frequency, where that helps on val."""

    Options = BaseRateOptions

    def __init__(self, encoder, num_labels):
        super().__init__()
        self.register_buffer("log_odds", torch.zeros(num_labels))

    @property
    def sizes(self):
        return {}

    def observe(self, encoded, output):
        return output.logits[:, :1]

    def fit_images(self, observations, targets):
        self.log_odds.copy_(torch.logit((targets == 1).float().mean(dim=0), eps=0.01))

    def tune(self, observations, logits, score):
        return logits + self.log_odds

    def forward(self, observations):
        return self.log_odds.expand(len(observations), -1)
