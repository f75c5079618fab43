"""Images per second from files to batches, stage by stage and against a plain torchvision pipeline.

    python benchmarks/loading.py                         synthetic JPEGs, made for the run
    python benchmarks/loading.py FOLDER                  the images below a folder
    python benchmarks/loading.py table:PATH/labels.csv   the training split of a dataset

Stages are timed in one thread. Whole loaders run with the same workers and alternate; cached and without
augmentation, ours needs no workers and has none. Batches of torchvision are normalised floats; ours are
uint8, since the classifier normalises on its device, and the rows "normalised" add that step. All only resize
(no augmentation), unless the row names one. The first pass of each is not counted (workers start, files enter
the page cache); the figure is the median of the others. Processor time covers all processes: it is what
loading takes away from an encoder on the same cores, and the more reliable figure on a busy machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from kmcl.data import Split, open_dataset
from kmcl.data.augmentation import AUGMENTATIONS, resize
from kmcl.data.decoding import DecodedImages
from kmcl.data.files import ImageFiles
from kmcl.data.loading import LoaderSettings, make_train_loader
from kmcl.data.sampling import image_uniforms
from kmcl.data.selection import select
from kmcl.encoders.torchvision_operators import declare_missing_operators

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH_SIZE = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", help="a dataset spec or a folder of images")
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224], help="sides of the square images")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=int, default=1536, help="images used, at most")
    parser.add_argument("--passes", type=int, default=3, help="counted passes of each loader")
    arguments = parser.parse_args()
    # Normalising a batch is too little work for several threads: waiting for them would dominate.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        split = open_split(arguments.data, Path(folder), arguments.limit)
        print(f"{len(split)} images, batches of {BATCH_SIZE}, {arguments.workers} workers")
        for size in arguments.sizes:
            print(f"\n## {size} px, one thread\n\n| stage | images/s | us/image |\n|---|---|---|")
            for name, seconds in time_stages(split, size):
                print(f"| {name} | {1 / seconds:,.0f} | {seconds * 1e6:,.0f} |")
            print(f"\n## {size} px, whole loaders\n")
            print("| loader | images/s | of torchvision | processor us/image |\n|---|---|---|---|")
            rates = time_loaders(split, size, arguments.workers, arguments.passes)
            for name, (rate, processor) in rates.items():
                ratio = rate / rates["torchvision"][0]
                print(f"| {name} | {rate:,.0f} | {ratio:.2f} | {processor * 1e6:,.0f} |")


def open_split(data: str | None, folder: Path, limit: int) -> Split:
    if data is not None and not Path(data).is_dir():
        split = open_dataset(data).splits["train"]
        if not Path(split.images.name(0)).is_file():
            raise SystemExit(f"{data} does not consist of image files")
        return select(split, np.arange(min(limit, len(split))))
    if data is None:
        write_photographs(folder, min(limit, 512))
    root = folder if data is None else Path(data)
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    names = np.array([str(path.relative_to(root)) for path in paths[:limit]])
    return Split(ImageFiles(root, names), np.zeros((len(names), 2), np.int8))


def write_photographs(folder: Path, count: int) -> None:
    """JPEGs of 640 x 480 with structure at all scales, so that they compress about as photographs do."""
    generator = np.random.default_rng(0)
    for number in range(count):
        total = np.zeros((480, 640, 3), np.float32)
        for cells in (4, 16, 64, 160):
            noise = generator.integers(0, 256, (cells * 3 // 4, cells, 3), dtype=np.uint8)
            total += (
                np.asarray(Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC)) / cells**0.5
            )
        total = (total - total.min()) / np.ptp(total) * 255
        Image.fromarray(total.astype(np.uint8)).save(folder / f"{number:04d}.jpg", quality=85)


def time_stages(split: Split, size: int) -> Iterator[tuple[str, float]]:
    """(stage, seconds per image), the best of three runs over one batch's worth of images."""
    images = split.images
    indices = np.arange(min(BATCH_SIZE, len(images)))
    full = [images.load(index) for index in indices]
    yield "decode, full size", best(lambda: [images.load(index) for index in indices])
    yield "decode, JPEG draft", best(lambda: [images.load(index, size) for index in indices])
    yield "resize", best(lambda: [resize(image, size, size) for image in full])
    draws = image_uniforms(0, 0, 0, len(indices))
    for name, augmentation in AUGMENTATIONS.items():
        if name != "none":
            pixels = DecodedImages(images, augmentation.working_size(size)).rows(indices).pixels
            yield f"augment, {name}", best(lambda a=augmentation, p=pixels: a.apply(p, size, draws))
    pixels = DecodedImages(images, size).rows(indices).pixels
    yield "collate", best(lambda: np.stack(list(pixels)))
    yield "gather a cached batch", best(lambda: np.take(pixels, indices, axis=0))
    normaliser = Normaliser()
    yield "normalise", best(lambda: normaliser(torch.from_numpy(pixels).permute(0, 3, 1, 2)))


def best(run: Callable[[], object]) -> float:
    times = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) / BATCH_SIZE


def time_loaders(split: Split, size: int, workers: int, passes: int) -> dict[str, tuple[float, float]]:
    """Images per second and processor seconds per image; the loaders alternate, so other load affects all."""
    plain = LoaderSettings(BATCH_SIZE, size, workers, "none")
    with tempfile.TemporaryDirectory() as folder:
        variants = {
            "uncached": plain,
            "memory": LoaderSettings(BATCH_SIZE, size, 0, "none", cache="memory"),
            "disk": LoaderSettings(BATCH_SIZE, size, 0, "none", cache="disk", cache_dir=Path(folder)),
            "memory, photo": LoaderSettings(BATCH_SIZE, size, workers, "photo", cache="memory"),
            "memory, paper": LoaderSettings(BATCH_SIZE, size, workers, "paper", cache="memory"),
        }
        loaders: dict[str, Iterable[Tensor]] = {"torchvision": TorchvisionBatches(split, size, workers)}
        for name, settings in variants.items():
            loader = make_train_loader(split, settings)
            loaders[f"ours, {name}"] = OurBatches(loader, normalised=False)
            if name in ("uncached", "memory"):
                loaders[f"ours, {name}, normalised"] = OurBatches(loader, normalised=True)
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
        for number in range(passes + 1):
            for name, loader in loaders.items():
                start, processor_start = time.perf_counter(), processor_seconds()
                count = sum(len(batch) for batch in loader)
                seconds, processor = time.perf_counter() - start, processor_seconds() - processor_start
                if number:
                    rates[name].append((count / seconds, processor / count))
    return {
        name: (statistics.median(rate for rate, _ in values), statistics.median(cost for _, cost in values))
        for name, values in rates.items()
    }


def processor_seconds() -> float:
    """Processor time so far of this process and its workers, from /proc (Linux, in steps of 10 ms)."""
    total = time.process_time()
    for worker in multiprocessing.active_children():
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class OurBatches:
    """Our batches as the loader gives them (uint8), or made into normalised floats."""

    def __init__(self, loader: Iterable[tuple[Tensor, Tensor, Tensor]], normalised: bool) -> None:
        self._loader, self._normalised = loader, normalised

    def __iter__(self) -> Iterator[Tensor]:
        normaliser = Normaliser()
        for images, _, _ in self._loader:
            yield normaliser(images) if self._normalised else images


class TorchvisionBatches:
    """The usual pipeline: a dataset opening files with Pillow, torchvision transforms, a DataLoader."""

    def __init__(self, split: Split, size: int, workers: int) -> None:
        declare_missing_operators()
        from torchvision import transforms

        transform = transforms.Compose(
            [
                transforms.Resize((size, size)),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        self._loader = DataLoader(
            FolderDataset(split, transform),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def __iter__(self) -> Iterator[Tensor]:
        for images, _ in self._loader:
            yield images


class FolderDataset(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """The loader of torchvision's ImageFolder, with several labels."""

    def __init__(self, split: Split, transform: Callable[[Image.Image], Tensor]) -> None:
        self._paths = [split.images.name(index) for index in range(len(split))]
        self._targets, self._transform = torch.from_numpy(split.targets), transform

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        from torchvision.datasets.folder import default_loader

        return self._transform(default_loader(self._paths[index])), self._targets[index]


class Normaliser:
    """Subtract the mean and divide by the deviation, into one reused buffer.

    Along a row of a channels_last image the three constants repeat; laid out that way they vectorise, where
    a plain broadcast over three channels runs loops of length three (20 times as long at 96 px). A buffer of
    its own for every batch would cost more in page faults than the arithmetic.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0)

    def __call__(self, images: Tensor) -> Tensor:
        batch_size, _, height, width = images.shape
        rows = images.permute(0, 2, 3, 1).reshape(batch_size, height, width * 3)
        if self._buffer.shape != rows.shape:
            self._buffer = torch.empty(rows.shape)
        mean, std = (torch.tensor(constants).repeat(width) for constants in (MEAN, STD))
        self._buffer.copy_(rows).mul_(1 / (255 * std)).sub_(mean / std)
        return self._buffer.view(batch_size, height, width, 3).permute(0, 3, 1, 2)


if __name__ == "__main__":
    main()
