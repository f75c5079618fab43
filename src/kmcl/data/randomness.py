"""Random numbers that depend on (seed, epoch, position in the epoch) alone, so any process can draw them.

A counter-based generator (Philox 4x64) is a pure function of a key and a counter. The key is (seed, epoch);
the counter selects what is drawn. No state is carried from one draw to the next: a worker, another process of
a distributed run, or a resumed run gets the same numbers for the same position without drawing the preceding
ones.

Every augmentation gets one row of `DRAWS_PER_IMAGE` uniform numbers per image and takes its choices from it.
The row belongs to a *position* (the slot of the epoch's global order), not to an image, so an image that the
balanced sampler shows twice in an epoch is augmented in two ways.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
