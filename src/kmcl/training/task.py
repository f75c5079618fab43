"""What is trained: a classifier, the loss of its method, and the choice of the best weights on val."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.distributed.tensor import DTensor

from kmcl.data.batches import Batch
from kmcl.data.dataset import Split
from kmcl.encoders import Encoder
from kmcl.encoders.stages import Stages, find_stages
from kmcl.errors import InputError, TrainingError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_area_under_roc, mean_average_precision
from kmcl.losses.arguments import NonFiniteError
from kmcl.methods import LossTerms, find_method
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier
from kmcl.options.methods import MethodOptions
from kmcl.runs.settings import OptimisationSettings
from kmcl.training.lightning import LightningModule, Trainer
from kmcl.training.sharding import ShardedStrategy, gather_whole, shard, share_buffers, without_weights
from kmcl.training.unknown_labels import IGNORED, UnknownLabels


class NonFiniteLossError(TrainingError):
    """A loss term became infinite or NaN; the message names it, the step and the images."""


@dataclass(frozen=True)
class Best:
    """The best weights so far.

    val_auc:    mean area under the labels' ROC curves, by which they were chosen
    val_map:    both of the head: post-hoc parts are fitted later
    epoch:      that they are from
    is_average: whether they are those of the moving average
    """

    val_auc: float
    val_map: float
    epoch: int
    is_average: bool


class ClassificationTask(LightningModule):
    """Trains `classifier`; validates it and its moving average; calls `on_better` with the better of the two.

    train_split names images in messages; val_split has the targets that val mAP is measured against.
    score: the classifier's output for a batch, whether it holds images or cached features.
    unknown: what the loss makes of labels that are not annotated; val is measured on the others.
    train_sample, an attribute: batches of a few training images, on which mAP is measured after each epoch.
    """

    def __init__(
        self,
        classifier: Classifier,
        options: MethodOptions,
        settings: OptimisationSettings,
        labels: tuple[str, ...],
        train_split: Split,
        val_split: Split | None,
        on_better: Callable[[Classifier, Best], None],
        score: Callable[[Classifier, Tensor], HeadOutput] = Classifier.__call__,
        unknown: UnknownLabels = IGNORED,
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.options = options
        self.compute_loss = find_method(options.name).compute_loss
        self.settings = settings
        self.labels = labels
        self.train_split = train_split
        self.val_split = val_split
        self.on_better = on_better
        self.score = score
        self.unknown = unknown
        self.train_sample: Iterable[Batch] = ()
        self.average: MovingAverage | None = None
        if settings.moving_average > 0:
            self.average = MovingAverage(
                classifier,
                settings.moving_average,
                warmup=settings.moving_average_warmup,
                constant=[f"encoder.backbone.{name}" for name in classifier.encoder.frozen_tensors()],
            )
        self._encoder_parameters = [p for p in classifier.encoder.parameters() if p.requires_grad]
        # Where the weights are sharded; in a tuple, since Lightning would fill a module's missing weights.
        self._modules_alone: tuple[Classifier, ...] = ()
        self._trains_head_alone = False
        self.best: Best | None = None
        self._val_scores: list[tuple[Tensor, Tensor, Tensor | None]] = []

    @property
    def is_sharded(self) -> bool:
        return isinstance(self.trainer.strategy, ShardedStrategy)

    def configure_model(self) -> None:
        strategy = self.trainer.strategy
        if not isinstance(strategy, ShardedStrategy) or self._modules_alone:
            return
        self._modules_alone = (without_weights(self.classifier),)
        mesh = strategy.device_mesh["data_parallel"]
        shard(self.classifier, mesh)
        if self.average is not None:
            shard(self.average.model, mesh)  # type: ignore[arg-type]
        self._encoder_parameters = [p for p in self.classifier.encoder.parameters() if p.requires_grad]

    def configure_optimizers(self) -> Any:
        optimiser, schedule = make_optimiser(
            self.classifier, self.settings, int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        loop = self.trainer.fit_loop
        if loop.restarted_mid_epoch:
            num_done = loop.epoch_loop.batch_progress.current.ready
            self.trainer.train_dataloader.skip(num_done)  # type: ignore[union-attr]
            self._begin_section(num_done)

    def on_train_epoch_start(self) -> None:
        self._begin_section()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        if ends_section(batch_index, self.settings.checkpoint_steps, self.trainer):
            self._begin_section(batch_index + 1)

    def _begin_section(self, num_done: int = 0) -> None:
        """Before the first batch of an epoch and after each checkpoint inside it: what follows is the same
        whether or not training was resumed there. Dropout and stochastic depth draw from this generator.

        num_done: batches of the epoch before it
        """
        place = (self.current_epoch, self.global_rank, *([num_done] if num_done else []))
        torch.manual_seed(_section_seed(self.settings.seed, *place))
        if self.settings.head_epochs:
            self._train_head_alone(self.current_epoch < self.settings.head_epochs)

    def _train_head_alone(self, alone: bool) -> None:
        self._trains_head_alone = alone
        if self.trainer.world_size > 1:
            return  # processes agreed at the start on which gradients they exchange: they are dropped below
        for parameter in self._encoder_parameters:
            parameter.requires_grad_(not alone)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.trainer.world_size > 1 and self._trains_head_alone:
            for parameter in self._encoder_parameters:
                parameter.grad = None

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        try:
            output = self.score(self.classifier, batch.images)
            progress = self.current_epoch / max(self.settings.epochs - 1, 1)
            terms = self.unknown.loss(self.compute_loss, output, batch.targets, self.options, progress)
        except NonFiniteError as error:
            raise NonFiniteLossError(self._describe_failure(str(error), batch, batch_index)) from error
        self._check_finite(terms, batch, batch_index)
        values = {f"train/{name}": value.detach() for name, value in terms.named.items()}
        values["train/loss"] = terms.total.detach()
        self.log_dict(values, on_step=False, on_epoch=True, batch_size=len(batch.indices), sync_dist=True)
        return terms.total

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        if self.average is not None:
            self.average.update(self.classifier)

    def on_validation_epoch_start(self) -> None:
        if self.is_sharded:
            share_buffers(self)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        output = self.score(self.classifier, batch.images)
        if self.trainer.world_size == 1:  # Eq. 7 over processes needs as many images in each
            values = self._val_losses(output, batch)
            self.log_dict(values, on_step=False, on_epoch=True, batch_size=len(batch.indices))
        scores = output.probabilities.float()
        averaged = None
        if self.average is not None:
            averaged = self.score(self.average.model, batch.images).probabilities.float()  # type: ignore[arg-type]
        self._val_scores.append((batch.indices, scores, averaged))

    def on_validation_epoch_end(self) -> None:
        indices = self._gather([indices for indices, _, _ in self._val_scores])
        candidates = {False: self._gather([scores for _, scores, _ in self._val_scores])}
        if self.average is not None:
            candidates[True] = self._gather(
                [scores for _, _, scores in self._val_scores if scores is not None]
            )
        self._val_scores.clear()
        if self.trainer.sanity_checking or self.val_split is None:
            return
        for is_average, scores in candidates.items():
            predictions = self._val_predictions(self.val_split, indices, scores)
            val_map, val_auc = mean_average_precision(predictions), mean_area_under_roc(predictions)
            of = "average" if is_average else "model"
            self.log_dict({f"val/map_{of}": val_map, f"val/auc_{of}": val_auc}, rank_zero_only=True)
            if self.best is None or not val_auc <= self.best.val_auc:  # NaN: keep the newest
                self.best = Best(val_auc, val_map, self.current_epoch, is_average)
                better = self.average.model if is_average and self.average is not None else self.classifier
                whole = self.whole(better)  # type: ignore[arg-type]
                if self.trainer.is_global_zero:
                    self.on_better(whole, self.best)
        if self.best is not None:
            best = {"val/map_best": self.best.val_map, "val/auc_best": self.best.val_auc}
            self.log_dict(best, rank_zero_only=True)
        if self.trainer.is_global_zero or self.is_sharded:
            self._log_train_map()

    def whole(self, classifier: Classifier) -> Classifier:
        """The classifier with all its weights, in the first process; every process must call this."""
        if not self._modules_alone:
            return classifier
        return gather_whole(classifier, *self._modules_alone)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["best"] = None if self.best is None else asdict(self.best)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.best = None if checkpoint["best"] is None else Best(**checkpoint["best"])

    def _val_losses(self, output: HeadOutput, batch: Batch) -> dict[str, Tensor]:
        """The loss and its terms; NaN where training would stop: the next training step says why."""
        try:
            terms = self.compute_loss(output, batch.targets, self.options)
        except NonFiniteError:
            return {"val/loss": batch.targets.new_full((), torch.nan, dtype=torch.float32)}
        return {f"val/{name}": value for name, value in terms.named.items()} | {"val/loss": terms.total}

    def _log_train_map(self) -> None:
        """mAP of the model on the sample of training images."""
        scores, targets = [], []
        for batch in self.train_sample:
            output = self.score(self.classifier, batch.images.to(self.device))
            scores.append(output.probabilities.float().cpu())
            targets.append(batch.targets)
        if scores:
            known = torch.cat(targets).numpy()
            names = tuple(map(str, range(len(known))))
            predictions = Predictions(self.labels, names, torch.cat(scores).numpy(), known)
            self.log("train/map", mean_average_precision(predictions), rank_zero_only=True)

    def _val_predictions(self, split: Split, indices: Tensor, scores: Tensor) -> Predictions:
        rows, first = np.unique(indices.cpu().numpy(), return_index=True)
        return Predictions.of_split(self.labels, split, scores.cpu().numpy()[first], rows)

    def _gather(self, parts: list[Tensor]) -> Tensor:
        """Rows gathered from all processes, whose numbers of rows may differ."""
        mine = torch.cat(parts)
        if self.trainer.world_size == 1:
            return mine
        gathered: list[Any] = [None] * self.trainer.world_size
        torch.distributed.all_gather_object(gathered, mine.cpu())
        return torch.cat(gathered)

    def _check_finite(self, terms: LossTerms, batch: Batch, batch_index: int) -> None:
        if bool(torch.isfinite(terms.total)):
            return
        values = {"total": terms.total, **terms.named}
        broken = [f"{name} is {value.item()}" for name, value in values.items() if not torch.isfinite(value)]
        raise NonFiniteLossError(self._describe_failure(", ".join(broken), batch, batch_index))

    def _describe_failure(self, what: str, batch: Batch, batch_index: int) -> str:
        names = [self.train_split.images.name(int(index)) for index in batch.indices[:3]]
        more = f" and {len(batch.indices) - 3} more" if len(batch.indices) > 3 else ""
        return (
            f"the loss is not finite: {what}; epoch {self.current_epoch + 1}, batch {batch_index + 1}, "
            f"images {', '.join(names)}{more}"
        )


def ends_section(batch_index: int, steps: int | None, trainer: Trainer) -> bool:
    """Whether a checkpoint follows a batch inside an epoch.

    steps: of the optimiser between two of them; None for none
    """
    num_done = batch_index + 1
    if steps is None or num_done >= trainer.num_training_batches:
        return False
    return num_done % (steps * trainer.accumulate_grad_batches) == 0


def _section_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


_Place = tuple[dict[str, Any], str]
"""The table of parameters or buffers that a module has, and the name of one of them."""


class MovingAverage(nn.Module):
    """A copy of a model whose weights follow it: average <- decay · average + (1 - decay) · weights.

    The paper averages with 0.9997 from the first step on, so that the initial weights keep an influence for
    thousands of steps. With `warmup` the decay is at most (1 + n)/(10 + n) at update n, so that short runs
    benefit too. Running statistics of norms are averaged like weights; counters are copied. Tensors named in
    `constant` never change and are skipped.
    """

    def __init__(self, model: nn.Module, decay: float, *, warmup: bool, constant: Iterable[str] = ()) -> None:
        super().__init__()
        self.decay = decay
        self.warmup = warmup
        self._constant = frozenset(constant)
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self._places = _places(self.model, self._constant)
        self._followed: tuple[nn.Module, list[_Place]] | None = None

    def train(self, mode: bool = True) -> MovingAverage:
        """The average is never trained: its norms always use their running statistics."""
        return super().train(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        counter: Tensor = self.num_updates  # type: ignore[assignment]
        counter += 1
        decay = self.decay
        if self.warmup:
            decay = min(decay, (1 + counter.item()) / (10 + counter.item()))
        if self._followed is None or self._followed[0] is not model:
            self._followed = model, _places(model, self._constant)
        averaged, followed = [], []
        for (table, name), (other, _) in zip(self._places, self._followed[1], strict=True):
            tensor, current = table[name], other[name]
            if tensor.is_floating_point():
                averaged.append(tensor)
                followed.append(current)
            else:
                tensor.copy_(current)
        for is_sharded in (False, True):  # parameters may be, buffers never are
            chosen = [place for place, t in enumerate(averaged) if isinstance(t, DTensor) == is_sharded]
            if chosen:
                torch._foreach_lerp_(
                    [averaged[place] for place in chosen], [followed[place] for place in chosen], 1 - decay
                )


def _places(model: nn.Module, constant: Collection[str]) -> list[_Place]:
    """Where the tensors of a model's state are, but for those named in `constant`.

    Found once: making a state dict at every step takes longer than the average itself. The tensors are looked
    up anew each time, since a model that is moved to a device has others.
    """
    places: list[_Place] = []
    for prefix, part in model.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                whole = f"{prefix}.{name}" if prefix else name
                is_state = tensor is not None and name not in part._non_persistent_buffers_set
                if is_state and whole not in constant:
                    places.append((table, name))
    return places


def parameter_groups(classifier: Classifier, settings: OptimisationSettings) -> list[dict[str, Any]]:
    """Separate groups for the encoder's stages and the head; no weight decay on biases and norms (vectors).

    With a layer decay d, the rate of the encoder's last part is that of the settings; each stage before it
    has d times the rate of the one after it.
    """
    head_rate = settings.learning_rate * settings.head_learning_rate_factor
    parts = _encoder_parts(classifier.encoder, settings)
    parts.append((list(classifier.head.parameters()), head_rate))
    groups = []
    for parameters, rate in parts:
        for is_vector, decay in ((False, settings.weight_decay), (True, 0.0)):
            chosen = [p for p in parameters if p.requires_grad and (p.ndim <= 1) == is_vector]
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups


def _encoder_parts(
    encoder: Encoder, settings: OptimisationSettings
) -> list[tuple[list[nn.Parameter], float]]:
    """The encoder's parameters in parts, each with its learning rate."""
    if settings.layer_decay == 1:
        return [(list(encoder.parameters()), settings.learning_rate)]
    try:
        stages = find_stages(encoder.backbone, encoder.name)
    except InputError:  # one part: nothing is known of its order
        return [(list(encoder.parameters()), settings.learning_rate * settings.layer_decay)]
    num_stages = len(stages.stages)
    parts: dict[int, list[nn.Parameter]] = {depth: [] for depth in range(num_stages + 1)}
    for name, parameter in encoder.backbone.named_parameters():
        parts[_depth(name, stages)].append(parameter)
    return [
        (parameters, settings.learning_rate * settings.layer_decay ** (num_stages - depth))
        for depth, parameters in parts.items()
    ]


def _depth(name: str, stages: Stages) -> int:
    """The number of the stage that a parameter belongs to; the stem goes with the first, the rest is last."""
    for depth, stage in enumerate(stages.stages):
        if name.startswith(f"{stage}."):
            return depth
    in_stem = name in stages.parameters or any(name.startswith(f"{part}.") for part in stages.stem)
    return 0 if in_stem else len(stages.stages)


def make_optimiser(
    classifier: Classifier, settings: OptimisationSettings, num_steps: int
) -> tuple[optim.Optimizer, optim.lr_scheduler.LRScheduler]:
    """The paper's optimiser: Adam, its weight decay added to the gradient, and OneCycleLR over
    `num_steps`.
    """
    groups = parameter_groups(classifier, settings)
    optimiser = optim.Adam(groups, lr=settings.learning_rate, foreach=True)
    rise = settings.warmup_fraction
    if rise * max(num_steps, 2) == 1:
        rise *= 1 + 1e-9  # torch divides by the number of steps after the first in which the rate rises
    schedule = optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[group["lr"] for group in groups],
        total_steps=max(num_steps, 2),
        pct_start=rise,
    )
    return optimiser, schedule
