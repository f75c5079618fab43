"""What is known about an image's labels: present, absent, or not annotated."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kmcl.shapes import Bool, Num


class Annotation(NamedTuple):
    """Targets as two masks; a label that is neither positive nor negative is unknown."""

    positive: Bool[Tensor, "B L"]
    negative: Bool[Tensor, "B L"]

    @property
    def known(self) -> Bool[Tensor, "B L"]:
        return self.positive | self.negative

    @property
    def num_images(self) -> int:
        """Images with at least one known label: those a mean over images counts."""
        return int(self.known.any(dim=1).sum())


def read_targets(targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"], name: str = "targets") -> Annotation:
    """Check targets and tell present (1) from absent (0) and unknown (-1 or NaN)."""
    if targets.ndim != 2:
        raise ValueError(f"{name} must be B x L; got shape {tuple(targets.shape)}")
    if targets.is_complex():
        raise ValueError(f"{name} must be a real, integer or bool tensor; got {targets.dtype}")
    positive, negative = targets == 1, targets == 0
    valid = positive | negative | (targets == -1) | torch.isnan(targets)
    if not bool(valid.all()):
        row, label = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be 0, 1 or unknown (-1 or NaN); "
            f"got {targets[row, label].item()} for image {row}, label {label}"
        )
    return Annotation(positive, negative)
