"""Labels that are not annotated: ignored, assumed absent, or assumed absent but for the largest losses."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from kmcl.losses.arguments import check_between, check_same_shape
from kmcl.shapes import Bool, Float, Num

UnknownTreatment = Literal["ignore", "negative", "weak_negative", "ll_r", "ll_ct"]


def largest_losses(
    logits: Float[Tensor, "B L"], targets: Num[Tensor, "B L"], share: float
) -> Bool[Tensor, "B L"]:
    """The unknown labels that would cost most if they were absent: ⌊share · U⌋ of the U in the batch.

    A network learns what is right before it learns what is wrong, so that labels that are assumed absent, and
    are not, have large losses early in training (Kim et al., CVPR 2022). The loss of an absent label, -log(1
    - π), rises with its logit, and so does that of every method here: the largest logits are taken. Among
    equal ones the first.
    """
    check_between("share", share, 0, 1)
    check_same_shape("targets", targets, "logits", logits)
    unknown = _unknown(targets).flatten()
    ordered = logits.detach().flatten().masked_fill(~unknown, -torch.inf).sort(descending=True, stable=True)
    ranks = torch.empty_like(ordered.indices)
    ranks[ordered.indices] = torch.arange(len(ranks), device=ranks.device)
    return (unknown & (ranks < (share * unknown.sum()).floor())).view_as(targets)


def complete_targets(
    logits: Float[Tensor, "B L"],
    targets: Num[Tensor, "B L"],
    treatment: UnknownTreatment,
    share: float = 0.0,
) -> Num[Tensor, "B L"]:
    """Targets with unknown labels as a treatment takes them.

    ignore:                  they stay unknown, and no loss counts them
    negative, weak_negative: absent
    ll_r:                    absent; the `largest_losses` stay unknown (large loss rejection)
    ll_ct:                   absent; the `largest_losses` present (large loss correction, temporary)

    share: of the unknown labels, those with large losses
    """
    if treatment == "ignore":
        return targets
    absent = targets.masked_fill(_unknown(targets), 0)
    if treatment in ("negative", "weak_negative"):
        return absent
    return absent.masked_fill(largest_losses(logits, targets, share), -1 if treatment == "ll_r" else 1)


def weak_negative_weight(num_labels: int) -> float:
    """What an absent label weighs that is only assumed so, 1 / (L - 1).

    Of an image with one known label, all others together weigh as much as that one (Cole et al., CVPR 2021).
    """
    return 1 / max(num_labels - 1, 1)


def _unknown(targets: Tensor) -> Tensor:
    return (targets != 0) & (targets != 1)
