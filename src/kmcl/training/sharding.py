"""Training with sharded weights: every process holds a part of the model, its gradients and Adam's moments.

Fully sharded data parallel (torch's FSDP2) through Lightning's strategy for it. The weights of a stage are
gathered when it runs and dropped after it. Checkpoints and saved models are whole: those of any other run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from kmcl.encoders.stages import find_stages
from kmcl.errors import InputError
from kmcl.models.classifier import Classifier
from kmcl.runs.recipes import NOT_OF_SHARDED_WEIGHTS
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import LightningOptimizer, ModelParallelStrategy

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
PARTIAL = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=False)


def check_sharding(settings: TrainingSettings) -> None:
    """InputError for settings that sharded weights do not go with."""
    machine = settings.machine
    if machine.strategy != "fsdp":
        return
    if settings.encoder.cached_views or "cached_views" in settings.recipe.to_choose:
        raise InputError(NOT_OF_SHARDED_WEIGHTS)
    if machine.precision == "16":
        raise InputError("--strategy fsdp: --precision must be 32 or bf16; got 16")
    if machine.compile:
        raise InputError("--strategy fsdp: --compile is not supported with it")


def shard(classifier: Classifier, mesh: DeviceMesh) -> None:
    """Leave to each process its part of the weights; those of a stage of the encoder are gathered at a time.

    Of an encoder whose stages are not known, all weights are gathered at once.
    """
    classifier.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    encoder = classifier.encoder
    try:
        stages = find_stages(encoder.backbone, encoder.name).stages
    except InputError:
        stages = ()
    for name in stages:
        fully_shard(encoder.backbone.get_submodule(name), mesh=mesh, reshard_after_forward=True)
    # The root, too, drops what it gathered: the moving average and checkpoints read parts alone.
    fully_shard(classifier, mesh=mesh, reshard_after_forward=True)


def without_weights(classifier: Classifier) -> Classifier:
    """The modules of a classifier that is about to be sharded, for `gather_whole`."""
    return copy.deepcopy(classifier).to("meta")


def gather_whole(classifier: Classifier, modules: Classifier) -> Classifier:
    """The classifier with all its weights in the first process; every process must call this."""
    state = get_model_state_dict(classifier, options=WHOLE)
    whole = copy.deepcopy(modules)
    if distributed.get_rank() == 0:
        whole.load_state_dict(state, assign=True)
    return whole


def share_buffers(module: nn.Module) -> None:
    """Give every process the buffers of the first: running statistics of norms, as DDP does."""
    for buffer in module.buffers():
        distributed.broadcast(buffer, src=0)


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy, with checkpoints that a process alone, or DDP, reads and writes too."""

    def __init__(self, num_processes: int) -> None:
        super().__init__(
            data_parallel_size=num_processes, tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        inner = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        named = get_optimizer_state_dict(self._module, inner, options=WHOLE)
        return _numbered(named) if self.global_rank == 0 else {}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint = self.checkpoint_io.load_checkpoint(
            Path(checkpoint_path), map_location="cpu", weights_only=weights_only
        )
        set_model_state_dict(self._module, checkpoint["state_dict"], options=WHOLE)
        name_of = {parameter: name for name, parameter in self._module.named_parameters()}
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            named = _named(state, [name_of[parameter] for parameter in parameters])
            set_optimizer_state_dict(self._module, optimizer, named, options=PARTIAL)
            for parameter in parameters:  # torch made up a first step of those that were not trained yet
                if name_of[parameter] not in named["state"]:
                    del optimizer.state[parameter]
        return dict(checkpoint)

    @property
    def _module(self) -> nn.Module:
        if self.model is None:
            raise RuntimeError("the strategy has no model yet")
        return self.model


def _numbered(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimiser with parameters numbered in the order of their groups, as torch saves it."""
    names = [name for group in state["param_groups"] for name in group["params"]]
    number_of = {name: number for number, name in enumerate(names)}
    groups = [
        group | {"params": [number_of[name] for name in group["params"]]} for group in state["param_groups"]
    ]
    return {
        "state": {number_of[name]: values for name, values in state["state"].items()},
        "param_groups": groups,
    }


def _named(state: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """What `_numbered` made, with the names of the parameters again."""
    groups = [
        group | {"params": [names[number] for number in group["params"]]} for group in state["param_groups"]
    ]
    return {
        "state": {names[number]: values for number, values in state["state"].items()},
        "param_groups": groups,
    }
