"""Which images form which batch: shuffled, balanced for rare labels, or with a partner for every anchor.

All three give, for one (seed, epoch), the same list of *global* batches in every process; a process takes
its own consecutive part of each. So the union over ranks of batch i is global batch i, the parts are
disjoint, and every rank has the same number of batches of the same size. Two processes with batches of 32
train on the same images in the same order as one process with batches of 64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from kmcl.data.partners import partner_order
from kmcl.errors import InputError

Sampling = Literal["shuffle", "balanced", "partners"]
BLOCK_TARGETS = 1 << 24
"""Of which several bytes each are in memory at a time."""
SAMPLINGS: tuple[Sampling, ...] = ("shuffle", "balanced", "partners")


class BatchPlan(NamedTuple):
    """Everything needed to build one batch of one process, wherever it is built.

    indices: positions in the split; first_position: the slot of indices[0] in the epoch's global order.
    """

    epoch: int
    first_position: int
    indices: npt.NDArray[np.int64]


class TrainingPlan(Sampler[BatchPlan]):
    """The batches of one process for the current epoch, in the order of the chosen sampling.

    The last incomplete batch is dropped. A split smaller than one global batch gives a single batch of all
    images (less the remainder that would make the ranks unequal).
    """

    def __init__(
        self,
        targets: npt.NDArray[np.int8],
        *,
        batch_size: int,
        sampling: Sampling = "shuffle",
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        balance_threshold: float | None = None,
    ) -> None:
        check_rank(rank, world_size)
        num_images = len(targets)
        if num_images < world_size:
            raise InputError(f"training needs at least one image per process: {num_images} < {world_size}")
        self._seed, self._rank, self._sampling = seed, rank, sampling
        self._epoch = 0
        self._batch_size = min(batch_size, num_images // world_size)
        self._global_batch_size = self._batch_size * world_size
        self._num_slots = num_images
        if sampling == "balanced":
            self._repeats = repeat_factors(np.asarray(targets) == 1, balance_threshold)
            # Rounded up: rounded down, an image due exactly once could miss an epoch.
            self._num_slots = math.ceil(self._repeats.sum())
        elif sampling == "partners":
            if self._global_batch_size < 2:
                raise InputError(
                    "sampling 'partners' needs a batch of at least 2 images over all processes, "
                    f"batch_size x world_size is {batch_size} x {world_size} over {num_images} images"
                )
            self._present = np.asarray(targets) == 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; a resumed run sets the epoch it continues with."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_slots // self._global_batch_size

    def __iter__(self) -> Iterator[BatchPlan]:
        epoch = self._epoch
        order = self._order(order_generator(self._seed, epoch))
        for batch in range(len(self)):
            first = batch * self._global_batch_size + self._rank * self._batch_size
            yield BatchPlan(epoch, first, order[first : first + self._batch_size])

    def _order(self, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        if self._sampling == "balanced":
            return balanced_order(self._repeats, self._num_slots, generator)
        if self._sampling == "partners":
            return partner_order(self._present, self._global_batch_size, generator)
        return generator.permutation(self._num_slots)


class EvaluationPlan(Sampler[BatchPlan]):
    """Every image once, in order, in batches of nearly equal size that never exceed `batch_size` per process.

    The sizes are evened out (130 images in batches of 64 are 44 + 43 + 43) so that no process is left without
    an image in the last batch.
    """

    def __init__(self, num_images: int, *, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        check_rank(rank, world_size)
        num_batches = -(-num_images // (batch_size * world_size))
        batches = np.array_split(np.arange(num_images, dtype=np.int64), num_batches) if num_images else []
        if any(len(batch) < world_size for batch in batches):
            raise InputError(
                f"{num_images} images cannot be shared by {world_size} processes in batches of {batch_size}: "
                "some batch would have none for one of them; use a larger batch_size or fewer processes"
            )
        self._parts = [np.array_split(batch, world_size)[rank] for batch in batches]

    def set_epoch(self, epoch: int) -> None:
        """Required by the interface; nothing depends on the epoch here."""

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[BatchPlan]:
        for part in self._parts:
            yield BatchPlan(0, int(part[0]), part)


class SamplePlan(EvaluationPlan):
    """Chosen images instead of all, in their order."""

    def __init__(self, indices: npt.NDArray[np.int64], batch_size: int) -> None:
        super().__init__(len(indices), batch_size=batch_size)
        self._parts = [indices[part] for part in self._parts]


def check_rank(rank: int, world_size: int) -> None:
    if world_size < 1 or not 0 <= rank < world_size:
        raise InputError(f"rank must lie in [0, world_size): rank {rank}, world_size {world_size}")


def repeat_factors(present: npt.NDArray[np.bool_], threshold: float | None = None) -> npt.NDArray[np.float64]:
    """How often each image should be seen per epoch: repeat-factor sampling (Gupta et al., LVIS, 2019).

        r_l = max(1, sqrt(t / f_l)),    r_i = max over the labels l of image i of r_l    (1 without a label)

    f_l is the share of images that carry label l, t the threshold below which a label counts as rare. LVIS
    takes t = 0.001 for its 1,203 labels; here the default is the median of the f_l of the labels that occur,
    so that the rarer half of the labels is seen more often, whatever the dataset.

    Shapes: present N x L, result N.
    """
    if threshold is not None and not 0 < threshold <= 1:
        raise InputError(f"balance_threshold is a share of the images, in (0, 1]; got {threshold}")
    frequency = present.mean(axis=0)
    occurring = frequency > 0
    if not occurring.any():
        return np.ones(len(present))
    if threshold is None:
        threshold = float(np.median(frequency[occurring]))
    label_factor = np.ones_like(frequency)
    label_factor[occurring] = np.maximum(1.0, np.sqrt(threshold / frequency[occurring]))
    blocks = np.array_split(present, max(1, present.size // BLOCK_TARGETS))
    return np.concatenate([np.where(block, label_factor, 1.0).max(axis=1) for block in blocks])


def balanced_order(
    repeats: npt.NDArray[np.float64], num_slots: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Fill `num_slots` so that image i appears floor(r_i) or ceil(r_i) times, r_i on average over epochs.

    Repeat-factor sampling rounds every r_i at random independently, which makes the length of an epoch vary
    and breaks learning-rate schedules. Systematic sampling (one random offset, equal steps along the
    cumulative factors in a random order) has the same expectation and a fixed total.
    """
    shuffled = generator.permutation(len(repeats))
    ends = np.cumsum(repeats[shuffled])
    ends *= num_slots / ends[-1]
    points = np.arange(num_slots) + generator.random()
    # Rounding in the cumulative sum can leave the last end slightly below num_slots.
    chosen = np.minimum(np.searchsorted(ends, points, side="right"), len(repeats) - 1)
    return generator.permutation(shuffled[chosen])


# A multiple of 4: one step of the Philox counter yields four 64-bit numbers, so rows begin at whole steps.
DRAWS_PER_IMAGE = 32
_DRAWS_PER_STEP = 4

# The counter's highest 64-bit word separates the two uses of one key.
_IMAGE_STREAM = 0
_ORDER_STREAM = 1


def _generator(seed: int, epoch: int, step: int, stream: int) -> np.random.Generator:
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([step, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def image_uniforms(seed: int, epoch: int, first_position: int, num_images: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1) for `num_images` consecutive positions of an epoch.

    Row i is the same whether it is drawn alone or with others: it starts at its own counter step.

    Returns: num_images x DRAWS_PER_IMAGE.
    """
    step = first_position * (DRAWS_PER_IMAGE // _DRAWS_PER_STEP)
    return _generator(seed, epoch, step, _IMAGE_STREAM).random((num_images, DRAWS_PER_IMAGE))


def order_generator(seed: int, epoch: int) -> np.random.Generator:
    """The generator that orders the images of one epoch, the same in every process of a run."""
    return _generator(seed, epoch, 0, _ORDER_STREAM)
