"""A tiny classifier whose weights two gloo processes share, and what each of them finds."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from forked_processes import CONTEXT
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods.linear import LinearHead
from kmcl.models.classifier import Classifier
from kmcl.options.methods import BceOptions
from kmcl.training.sharding import gather_whole, shard, without_weights
from kmcl.training.task import MovingAverage

WORLD_SIZE = 2


def make_classifier() -> Classifier:
    torch.manual_seed(0)
    encoder = build_encoder("test_convnext", image_size=32)
    return Classifier(encoder, LinearHead(encoder, 3, BceOptions())).to(memory_format=torch.channels_last)


def make_images() -> Tensor:
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def train_one_step(classifier: Classifier, average: MovingAverage, images: Tensor) -> Tensor:
    """A step of plain descent, and the moving average after it; the logits before it."""
    logits = classifier(images).logits
    logits.square().mean().backward()
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    average.update(classifier)
    return logits.detach()


def run_in_two_processes(folder: Path) -> list[dict[str, object]]:
    """What each process found."""
    multiprocessing.start_processes(_run, (str(folder),), WORLD_SIZE, start_method=CONTEXT.get_start_method())
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD_SIZE)]


def _run(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD_SIZE
    )
    classifier = make_classifier()
    average = MovingAverage(classifier, 0.5, warmup=False)
    modules = without_weights(copy.deepcopy(classifier))
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    shard(classifier, mesh)
    shard(average.model, mesh)
    share = make_images().chunk(WORLD_SIZE)[rank]
    logits = train_one_step(classifier, average, share)
    averaged_logits = average.model(share).logits
    held = sum(p.to_local().numel() for p in classifier.parameters() if isinstance(p, DTensor))
    whole = [gather_whole(model, modules) for model in (classifier, average.model)]
    found = {
        "logits": logits,
        "averaged_logits": averaged_logits,
        "held": held,
        "states": [model.state_dict() for model in whole] if rank == 0 else None,
    }
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.barrier()
    os._exit(0)  # see two_processes.py
