"""What is known about an image's labels: present, absent, or not annotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kmcl.shapes import Bool, Int, Num


@dataclass(frozen=True)
class Targets:
    """Checked targets as two masks; a label that is neither positive nor negative is unknown."""

    positive: Bool[Tensor, "B L"]
    negative: Bool[Tensor, "B L"]

    def __len__(self) -> int:
        return len(self.positive)

    @property
    def shape(self) -> torch.Size:
        return self.positive.shape

    @property
    def device(self) -> torch.device:
        return self.positive.device

    @property
    def known(self) -> Bool[Tensor, "B L"]:
        return self.positive | self.negative

    @property
    def num_images(self) -> Int[Tensor, ""]:
        """Images with at least one known label: those a mean over images counts.

        A tensor, since a Python number would force a device synchronisation.
        """
        return self.known.any(dim=1).sum()


class UncheckedTargets(NamedTuple):
    """Targets as masks, and where the values were valid (0, 1, -1 or NaN): the caller has to check."""

    targets: Targets
    valid: Bool[Tensor, "B L"]


def split_targets(targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"], name: str) -> UncheckedTargets:
    """Separate present from absent labels without a device synchronisation; shape and dtype are checked."""
    if targets.ndim != 2:
        raise ValueError(f"{name} must be B x L; got shape {tuple(targets.shape)}")
    if targets.is_complex():
        raise ValueError(f"{name} must be a real, integer or bool tensor; got {targets.dtype}")
    positive, negative = targets == 1, targets == 0
    valid = positive | negative | (targets == -1) | torch.isnan(targets)
    return UncheckedTargets(Targets(positive, negative), valid)


def read_targets(
    targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"] | Targets, name: str = "targets"
) -> Targets:
    """Check targets and separate present (1), absent (0) and unknown (-1 or NaN); `Targets` are trusted.

    Synchronises with the device once.
    """
    if isinstance(targets, Targets):
        return targets
    masks, valid = split_targets(targets, name)
    if not bool(valid.all()):
        row, label = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be 0, 1 or unknown (-1 or NaN); "
            f"got {targets[row, label].item()} for image {row}, label {label}"
        )
    return masks
