"""What training costs over the bare encoder, as ratios measured in one run.

    python benchmarks/training.py                             on the embedded digits
    python benchmarks/training.py table:PATH/labels.csv       on your images

Steps that are compared alternate, so that other load on the machine affects all of them alike; the median is
reported. The whole loop (loading, augmentation, step, moving average, logging) is timed between its own
batches inside a real run, with bare steps timed right before and after it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kmcl.data import open_dataset
from kmcl.data.loading import LoaderSettings, make_train_loader
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.evaluation.label_rules import LabelRules
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options import read_options
from kmcl.options.methods import KMCL_PRESETS, MethodOptions
from kmcl.runs.resolution import resolve_settings
from kmcl.training.lightning import Callback
from kmcl.training.pipeline import train
from kmcl.training.plan import plan_of
from kmcl.training.states import RunIO
from kmcl.training.task import make_optimiser

ENCODER = "tf_efficientnet_lite0"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="steps of each kind")
    parser.add_argument("--parts", nargs="+", default=["methods", "loop", "layouts", "tresnet"])
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.data}", flush=True)
    images, targets = first_batch(arguments.data, arguments.size, arguments.batch)
    if "methods" in arguments.parts:
        compare_methods(images, targets, arguments.rounds)
        compare_heads(images, targets, arguments.rounds)
    if "loop" in arguments.parts:
        compare_loop(arguments.data, images, arguments.size, arguments.batch)
    if "layouts" in arguments.parts:
        compare_layouts(images, arguments.rounds)
    if "tresnet" in arguments.parts:
        share_of_the_head()


def first_batch(data: str, size: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    split = open_dataset(data).splits["train"]
    settings = LoaderSettings(batch_size=batch_size, image_size=size, augmentation="none", num_workers=0)
    batch = next(iter(make_train_loader(split, settings)))
    return batch.images, batch.targets


def medians(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each step, alternating; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def bare_step(
    images: torch.Tensor, *, channels_last: bool = True, compiled: bool = False
) -> Callable[[], object]:
    """Forward and backward of the encoder alone, on normalised images in memory."""
    encoder = build_encoder(ENCODER, image_size=images.shape[-1]).train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pixels = (images.float() / 255).contiguous(memory_format=layout)
    encoder.to(memory_format=layout)
    if compiled:
        encoder.compile()

    def step() -> None:
        encoder(pixels).pooled.sum().backward()
        encoder.zero_grad()

    return step


def untrained(name: str, images: torch.Tensor, targets: torch.Tensor) -> tuple[Classifier, MethodOptions]:
    """A method with the default preset, as it is while it trains, without post-hoc parts."""
    labels = tuple(map(str, range(targets.shape[1])))
    options = read_options({"name": name}).resolved(pretrained=True, labels=labels)
    classifier = build_classifier(ModelDescription(LabelRules(labels), options, ENCODER, images.shape[-1]))
    return classifier.train().to(memory_format=torch.channels_last), options


def method_step(name: str, images: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    """A whole optimisation step."""
    classifier, options = untrained(name, images, targets)
    optimiser, _ = make_optimiser(classifier, resolve_settings("digits").optimisation, 1000)
    method = find_method(name)

    def step() -> None:
        terms = method.compute_loss(classifier(images), targets, options)
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()

    return step


def head_step(name: str, images: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    """Head and loss alone, forward and backward, on given features."""
    classifier, options = untrained(name, images, targets)
    method = find_method(name)
    with torch.no_grad():
        encoded = classifier.encoder(classifier.normalise(images))

    def step() -> None:
        pooled, spatial = (part.detach().requires_grad_() for part in (encoded.pooled, encoded.spatial))
        output = classifier.head(encoded._replace(pooled=pooled, spatial=spatial))
        method.compute_loss(output, targets, options).total.backward()

    return step


def compare_heads(images: torch.Tensor, targets: torch.Tensor, rounds: int) -> None:
    """What KMCL's head and loss add to ASL's step, by CPU, without the noise of two whole steps."""
    heads = {name: head_step(name, images, targets) for name in ("asl", "kmcl")}
    whole = method_step("asl", images, targets)
    spent: dict[str, list[float]] = {"asl": [], "kmcl": [], "step": []}
    for _ in range(rounds + 1):
        for name, step in (*heads.items(), ("step", whole)):
            start = time.process_time()
            step()
            spent[name].append(time.process_time() - start)
    asl, kmcl, step_of_asl = (1e3 * statistics.median(values[1:]) for values in spent.values())
    print(
        f"head and loss by CPU time: kmcl {kmcl:.1f} ms, asl {asl:.1f} ms; asl's step {step_of_asl:.0f} ms: "
        f"kmcl adds {100 * (kmcl - asl) / step_of_asl:.1f} %",
        flush=True,
    )


def compare_methods(images: torch.Tensor, targets: torch.Tensor, rounds: int) -> None:
    """Alternating steps, each first every second time; the ratio of each pair, by wall-clock and CPU time."""
    steps = {name: method_step(name, images, targets) for name in ("asl", "kmcl")}
    ratios: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        taken = {}
        for name in sorted(steps, reverse=number % 2 == 1):
            start, cpu_start = time.perf_counter(), time.process_time()
            steps[name]()
            taken[name] = (time.perf_counter() - start, time.process_time() - cpu_start)
        ratios.append((taken["kmcl"][0] / taken["asl"][0], taken["kmcl"][1] / taken["asl"][1]))
    for clock, values in zip(("wall", "CPU"), zip(*ratios[1:], strict=True), strict=True):
        low, middle, high = statistics.quantiles(values, n=4)
        print(
            f"step of {len(images)} images at {images.shape[-1]} px, kmcl/asl by {clock} time: median "
            f"{middle:.3f} of {rounds} pairs, half of them {low:.3f} to {high:.3f}",
            flush=True,
        )


class BatchTimes(Callback):
    """When each training batch ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, *_: object) -> None:
        self.ends.append(time.perf_counter())


def compare_loop(data: str, images: torch.Tensor, size: int, batch_size: int) -> None:
    """Images per second of a real run of one epoch against the bare encoder before and after it."""
    bare = bare_step(images)
    before = medians({"bare": bare}, 5)["bare"]
    times = BatchTimes()
    flags = {"epochs": 1, "image_size": size, "batch_size": batch_size, "cache": "memory", "encoder": ENCODER}
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(resolve_settings(data, flags=flags))
        train(plan, Path(folder) / "run", RunIO(callbacks=[times]))
    after = medians({"bare": bare}, 5)["bare"]
    seconds = (times.ends[-1] - times.ends[2]) / (len(times.ends) - 3)
    reference = (before + after) / 2
    print(
        f"\nwhole loop: {batch_size / seconds:.1f} images/s over {len(times.ends) - 3} batches; bare encoder "
        f"{batch_size / before:.1f} before, {batch_size / after:.1f} after; "
        f"loop/bare {reference / seconds:.3f}",
        flush=True,
    )


def compare_layouts(images: torch.Tensor, rounds: int) -> None:
    steps = {
        "plain": bare_step(images, channels_last=False),
        "channels_last": bare_step(images),
        "channels_last, compiled": bare_step(images, compiled=True),
    }
    times = medians(steps, rounds)
    print("\nencoder forward + backward, times as fast as the plain layout:")
    for name, seconds in times.items():
        print(f"  {name:<24} {1e3 * seconds:7.0f} ms  {times['plain'] / seconds:.2f}", flush=True)


def share_of_the_head() -> None:
    """Head and loss within a training step of tresnet_m at 224 px, batch 32, 80 labels."""
    torch.manual_seed(0)
    encoder = build_encoder("tresnet_m").train()
    images = torch.randn(32, 3, 224, 224)
    targets = (torch.rand(32, 80) < 2.9 / 80).to(torch.int8)
    method = find_method("kmcl")
    options = KMCL_PRESETS["paper"]
    head = method.build_head(encoder, 80, options)
    spent = {"encoder": 0.0, "head": 0.0}
    for round_ in range(3):
        start = time.perf_counter()
        encoded = encoder(images)
        forward = time.perf_counter() - start
        detached = encoded._replace(pooled=encoded.pooled.detach().requires_grad_())
        start = time.perf_counter()
        method.compute_loss(head(detached), targets, options).total.backward()
        head_seconds = time.perf_counter() - start
        start = time.perf_counter()
        encoded.pooled.backward(detached.pooled.grad)
        backward = time.perf_counter() - start
        encoder.zero_grad()
        if round_:
            spent["encoder"] += forward + backward
            spent["head"] += head_seconds
    share = spent["head"] / sum(spent.values())
    print(
        f"\ntresnet_m, 224 px, batch 32, 80 labels: encoder {spent['encoder'] / 2:.2f} s, head and loss "
        f"{1e3 * spent['head'] / 2:.1f} ms, {100 * share:.2f} % of the step",
        flush=True,
    )


if __name__ == "__main__":
    main()
