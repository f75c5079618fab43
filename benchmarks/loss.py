"""Time and peak memory of the contrastive loss against the dense textbook form, in one run.

    python benchmarks/loss.py            the whole table (about five minutes on two cores)
    python benchmarks/loss.py --quick    the rows the documentation quotes

Each row runs forward and backward in its own processes, so that peak memory is that row's alone; for the
times the two forms alternate after --in-a-row calls, and the median is reported: 5 shows a loss in its steady
state, 1 with the caches full of the other's data, as they are after an encoder. Above --limit GB dense is not
run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from dense import dense_contrastive_loss
from kmcl.kernels import KERNELS, KernelMixture
from kmcl.losses import contrastive_loss

LABELS_PER_IMAGE = {20: 1.5, 80: 2.9}
QUICK = [
    ("isotropic", 128, 80, 2048),
    ("gaussian", 128, 80, 2048),
    ("anisotropic", 32, 20, 512),
    ("mahalanobis", 32, 20, 512),
    ("anisotropic", 64, 80, 2048),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only the rows the documentation quotes")
    parser.add_argument("--limit", type=float, default=6.0, help="GB above which the dense form is not run")
    parser.add_argument("--in-a-row", type=int, default=5, help="calls of one form before the other's turn")
    parser.add_argument("--row", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        kernel, *sizes, form = arguments.row
        batch_size, num_labels, feature_dim, in_a_row = map(int, sizes)
        print(json.dumps(measure(kernel, batch_size, num_labels, feature_dim, in_a_row, form)))
        return
    rows = (
        QUICK
        if arguments.quick
        else list(itertools.product(KERNELS, (32, 64, 128, 256, 512), (20, 80), (512, 2048)))
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; forward + backward\n")
    print("| kernel | B | L | D | dense ms | ours ms | times as fast | dense MB | ours MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kernel, batch_size, num_labels, feature_dim in rows:
        family = KERNELS[kernel]
        if not family.means_per_dimension and feature_dim != 2048:
            continue  # D is a factor there, not an axis
        input_gb = 4e-9 * batch_size * num_labels * (feature_dim if family.means_per_dimension else 1)
        if input_gb > 0.5:
            continue
        # Forward and backward of the dense form keep about eight tensors of B x B x L (x D).
        dense_gb = 8 * batch_size * input_gb
        row = (kernel, batch_size, num_labels, feature_dim)
        in_a_row = arguments.in_a_row
        ours = run_row(*row, in_a_row, "ours")
        cells = [
            "-",
            f"{ours['ours_ms']:.1f}",
            "-",
            f"needs about {dense_gb:.0f} GB",
            f"{ours['peak_mb']:.0f}",
        ]
        if dense_gb < arguments.limit:
            both, dense = run_row(*row, in_a_row, "both"), run_row(*row, in_a_row, "dense")
            ratio = both["dense_ms"] / both["ours_ms"]
            times = [f"{both['dense_ms']:.1f}", f"{both['ours_ms']:.1f}", f"{ratio:.1f}"]
            cells = [*times, f"{dense['peak_mb']:.0f}", f"{ours['peak_mb']:.0f}"]
        print(
            "| " + " | ".join([kernel, str(batch_size), str(num_labels), str(feature_dim), *cells]) + " |",
            flush=True,
        )


def run_row(*row: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--row", *map(str, row)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def measure(
    kernel: str, batch_size: int, num_labels: int, feature_dim: int, calls_in_a_row: int, form: str
) -> dict[str, float]:
    """Median milliseconds of each form and megabytes above the process's size with its inputs."""
    mixture, targets = make_inputs(kernel, batch_size, num_labels, feature_dim)
    losses = {"ours": contrastive_loss, "dense": dense_contrastive_loss}
    chosen = {name: loss for name, loss in losses.items() if form in (name, "both")}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: dict[str, list[float]] = {name: [] for name in chosen}
    deadline = time.perf_counter() + 2
    while min(map(len, times.values())) < 3 or (
        time.perf_counter() < deadline and min(map(len, times.values())) < 50
    ):
        for name, loss in chosen.items():
            for _ in range(calls_in_a_row):
                start = time.perf_counter()
                loss(mixture, targets).backward()
                times[name].append(time.perf_counter() - start)
                mixture.means.grad = mixture.variances.grad = None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mb": (peak - before) / 1024} | {
        f"{name}_ms": 1e3 * statistics.median(values[1:]) for name, values in times.items()
    }


def make_inputs(
    kernel: str, batch_size: int, num_labels: int, feature_dim: int
) -> tuple[KernelMixture, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    family = KERNELS[kernel]
    mean_shape = (batch_size, *family.mean_shape(num_labels, feature_dim))
    variance_shape = (batch_size, *family.variance_shape(num_labels, feature_dim))
    mixture = KernelMixture(
        torch.zeros(batch_size, num_labels),
        (0.05 * torch.randn(mean_shape, generator=generator)).requires_grad_(),
        (2 + 0.05 * torch.rand(variance_shape, generator=generator)).requires_grad_(),
        feature_dim,
        kernel,
    )
    # Long-tailed label frequencies, as real sets have, scaled to the wanted number of labels an image.
    frequencies = 1 / torch.arange(1, num_labels + 1)
    frequencies = (frequencies * LABELS_PER_IMAGE[num_labels] / frequencies.sum()).clamp(max=0.9)
    targets = (torch.rand(batch_size, num_labels, generator=generator) < frequencies).float()
    return mixture, targets


if __name__ == "__main__":
    main()
