"""Batches in which every labelled image has another that shares a label with it (Algorithm 1, line 4).

The contrastive term learns only from anchors with a positive in the batch. Under plain shuffling an image of
a rare label often has none. Here the epoch is a sequence of pairs that share a label, and a pair is never
split.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Group = tuple[int, ...]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def partner_order(present: BoolArray, global_batch_size: int, generator: np.random.Generator) -> IntArray:
    """An epoch's order whose consecutive runs of `global_batch_size` images hold a partner for each anchor.

    In each full run, every image with a label that some other image of the split carries is next to another
    image that shares a label with it. Exceptions are images without a label and images whose labels no other
    image carries. Every image is placed once, except at most one repeated image per label (the partner of one
    left over) and one per batch (to fill a last single slot); because of those, and of the incomplete last
    batch, which the caller drops, "once per epoch" is not exact.

    Shapes: present N x L; the result holds at least floor(N / global_batch_size) full runs.
    """
    carriers = [np.flatnonzero(column) for column in present.T]
    pairs, singles = match_pairs(present, carriers, generator)
    groups: list[Group] = [*pairs, *((single,) for single in singles)]
    shuffled: deque[Group] = deque(groups[i] for i in generator.permutation(len(groups)))
    waiting_pairs: deque[Group] = deque()
    order: list[int] = []
    batch: list[int] = []

    def next_group(room: int) -> Group | None:
        """The next group that fits; pairs drawn when only one slot is left wait for the next batch."""
        if room >= 2 and waiting_pairs:
            return waiting_pairs.popleft()
        while shuffled:
            group = shuffled.popleft()
            if len(group) <= room:
                return group
            waiting_pairs.append(group)
        return None

    while shuffled or waiting_pairs:
        group = next_group(global_batch_size - len(batch))
        batch.extend(group if group is not None else (_filler(present, carriers, batch, generator),))
        if len(batch) == global_batch_size:
            order.extend(batch)
            batch = []
    return np.array(order + batch, dtype=np.int64)


def match_pairs(
    present: BoolArray, carriers: list[IntArray], generator: np.random.Generator
) -> tuple[list[tuple[int, int]], list[int]]:
    """Pair the images by a label they share, rarest labels first; the rest are singles without any partner.

    present: N x L; carriers: for each label, the images that carry it.
    Pairing leaves at most one unpaired image per label. If another image carries one of its labels, that one
    is repeated as its partner; otherwise it is a single, as are images without labels.
    """
    num_images, num_labels = present.shape
    unpaired = np.ones(num_images, dtype=np.bool_)
    pairs: list[tuple[int, int]] = []
    for label in sorted(range(num_labels), key=lambda k: len(carriers[k])):
        free = generator.permutation(carriers[label][unpaired[carriers[label]]])
        matched = free[: len(free) // 2 * 2]
        unpaired[matched] = False
        pairs.extend((int(first), int(second)) for first, second in matched.reshape(-1, 2))
    singles: list[int] = []
    for image in np.flatnonzero(unpaired):
        sharing = [carriers[label] for label in np.flatnonzero(present[image])]
        others = np.unique(np.concatenate(sharing)) if sharing else np.empty(0, dtype=np.int64)
        others = others[others != image]
        if len(others):
            pairs.append((int(image), int(generator.choice(others))))
        else:
            singles.append(int(image))
    return pairs, singles


def _filler(
    present: BoolArray, carriers: list[IntArray], batch: list[int], generator: np.random.Generator
) -> int:
    """An image for a batch's last slot when only pairs are left: one with a partner in the batch.

    If no such image exists outside the batch, an image of the batch is repeated: no image loses its partner.
    """
    for label in generator.permutation(np.flatnonzero(present[batch].any(axis=0))):
        outside = np.setdiff1d(carriers[label], batch, assume_unique=False)
        if len(outside):
            return int(generator.choice(outside))
    return int(generator.choice(batch))
