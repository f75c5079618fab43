"""Images with a green and a red square, and a classifier that is known to look at one or the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from kmcl.encoders import EncoderFeatures, ModuleEncoder
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier

SIZE, SQUARE, CELL = 64, 16, 8
GREEN, RED = 0, 1
"""The two labels, and colours; `squares_classifier` gives a logit for each."""


def squares(
    num_images: int, has_green: bool, has_red: bool, seed: int = 0
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Grey images; the green square is in the left half and the red one in the right, at random places."""
    generator = np.random.default_rng(seed)
    images = generator.integers(110, 140, (num_images, SIZE, SIZE, 3), dtype=np.uint8)
    places = []
    for image in images:
        for shown, first, colour in ((has_green, 0, (0, 255, 0)), (has_red, SIZE // 2, (255, 0, 0))):
            top = CELL * int(generator.integers((SIZE - SQUARE) // CELL + 1))
            left = first + CELL * int(generator.integers((SIZE // 2 - SQUARE) // CELL + 1))
            places.append((top, left))
            if shown:
                image[top : top + SQUARE, left : left + SQUARE] = colour
    return images, places


class ColourMap(nn.Module):
    """How green and how red each cell is, B x 2 x 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.colours = nn.Conv2d(3, 2, CELL, CELL, bias=True)
        with torch.no_grad():
            weights = torch.tensor([[-1.0, 1.0, -1.0], [1.0, -1.0, -1.0]]) / CELL**2
            self.colours.weight.copy_(weights[:, :, None, None].expand(-1, -1, CELL, CELL))
            self.colours.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.colours(images))


class ColourHead(nn.Module):
    """Logits from the amount of each colour: rows are labels."""

    def __init__(self, leans: bool) -> None:
        super().__init__()
        of_label = [[0.0, 100.0] if leans else [100.0, 0.0], [0.0, 100.0]]
        self.register_buffer("weights", torch.tensor(of_label))

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        return HeadOutput(encoded.pooled @ self.weights.T - 3.0, encoded.pooled, None)


def squares_classifier(leans: bool) -> Classifier:
    """Its logit of green depends on the red square where it leans, else on the green one."""
    encoder = ModuleEncoder(ColourMap(), SIZE, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Classifier(encoder, ColourHead(leans)).eval()
