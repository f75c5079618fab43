"""Building one batch from its plan: read the images, handle unreadable ones, augment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from kmcl.data.augmentation import Augmentation, Pixels
from kmcl.data.decoding import ImageSource
from kmcl.data.sampling import BatchPlan, image_uniforms
from kmcl.errors import InputError

# refuse: raise InputError; replace: the next readable image of the split takes the slot; drop: leave it out.
BadImageRule = Literal["refuse", "replace", "drop"]


class Batch(NamedTuple):
    """Images, their targets, and which images of the split they are.

    images: B x 3 x S x S uint8, in channels_last memory format, or feature vectors, B x D float32. Not
    normalised: the classifier does that on its device. targets: B x L int8, 1 present, 0 absent, -1
    unknown. indices: B int64.
    """

    images: Tensor
    targets: Tensor
    indices: Tensor


class Delivery(NamedTuple):
    """The result of building a batch, here or in a worker process.

    bad_images: index in the split -> problem, for the images left out of this batch. failure: the
    message of an InputError; passed as text because an exception raised in a worker process arrives wrapped
    in that worker's traceback.
    """

    batch: Batch | None
    bad_images: dict[int, str]
    failure: str | None = None


@dataclass(frozen=True)
class BatchMaker(TorchDataset[Delivery]):
    """Maps the plan of a batch to the batch; the same in the main process and in every worker."""

    source: ImageSource
    targets: npt.NDArray[np.int8]
    augmentation: Augmentation
    image_size: int
    seed: int
    bad_image_rule: BadImageRule

    def __getitem__(self, plan: BatchPlan) -> Delivery:
        try:
            return self._make(plan)
        except InputError as error:
            return Delivery(None, {}, failure=str(error))

    def _make(self, plan: BatchPlan) -> Delivery:
        indices = plan.indices.copy()
        draws = image_uniforms(self.seed, plan.epoch, plan.first_position, len(indices))
        pixels, problems = self.source.rows(indices)
        bad_images = {int(indices[slot]): message for slot, message in problems.items()}
        if problems and self.bad_image_rule == "refuse":
            raise InputError(next(iter(problems.values())))
        if problems and self.bad_image_rule == "replace":
            for slot in problems:
                self._replace(slot, pixels, indices, bad_images)
        elif problems:
            kept = np.setdiff1d(np.arange(len(indices)), list(problems))
            pixels, indices, draws = pixels[kept], indices[kept], draws[kept]
        images = torch.from_numpy(self.augmentation.apply(pixels, self.image_size, draws))
        targets = torch.from_numpy(self.targets[indices])
        batch = Batch(images.permute(0, 3, 1, 2), targets, torch.from_numpy(indices))
        return Delivery(batch, bad_images)

    def _replace(
        self, slot: int, pixels: Pixels, indices: npt.NDArray[np.int64], bad_images: dict[int, str]
    ) -> None:
        """Put the next readable image of the split into the slot.

        Which one depends on the files alone, not on what this process has read before, so every process and
        every run agree, and batches keep their size, as processes that gather each other's features require.
        """
        num_images = len(self.source)
        for step in range(1, num_images):
            candidate = (int(indices[slot]) + step) % num_images
            if candidate in bad_images:
                continue
            row = self.source.rows(np.array([candidate], dtype=np.int64))
            if not row.problems:
                pixels[slot], indices[slot] = row.pixels[0], candidate
                return
            bad_images[candidate] = row.problems[0]
        first_problem = next(iter(bad_images.values()))
        raise InputError(f"none of the {num_images} images can be read; the first problem: {first_problem}")
