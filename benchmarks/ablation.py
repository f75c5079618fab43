"""What each part of the method is worth: networks trained with and without it, judged on folds or on test.

    python benchmarks/ablation.py DATA OUT --variants 'asl;kmcl' --folds 4      # choices: train and val alone
    python benchmarks/ablation.py DATA OUT --variants 'asl;kmcl' --seeds 0,1,2  # test, once all is chosen
    python benchmarks/ablation.py DATA OUT --table [--reference asl]

    [--repeats 3] [--groups '[0-9]{8}'] [--fraction 0.1] [--unknown 0.5 | --unknown single] [--part 0/2]

The frozen features of all images are computed once (EfficientNet-Lite0, --image-size 128, --views 3). Each
network trains the last stage and its head on them as `kmcl train` does: optimiser, schedule and moving
average are the package's, the best epoch is chosen on val. Then post-hoc parts are fitted to it and weighted
on val: none, the Gaussian process, the kernel vote, both.

--folds:   train and val are divided into folds, groups kept together; each is judged by networks that were
           trained and chosen on the others. Test is not opened. --repeats divides them anew each time.
--unknown: the share of the training labels that are deleted at random; single: all but one positive label of
           each image. They are trained on as `kmcl train` does by default.
--part:    which of several processes this is. Each appends to OUT; a network that is there is not trained
           again.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn

from ablation_table import CHOICES, print_table
from ablation_variants import RATE, VARIANTS, Variant
from kmcl.data import open_dataset
from kmcl.data.loading import LoaderSettings
from kmcl.data.splitting import stratify
from kmcl.encoders import Encoder
from kmcl.encoders.opening import open_encoder
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_area_under_roc, mean_average_precision
from kmcl.features.store import FeatureCache
from kmcl.methods import find_method
from kmcl.methods.label_statistics import set_label_statistics
from kmcl.models.classifier import Classifier
from kmcl.posthoc import find_part
from kmcl.posthoc.interface import PosthocPart
from kmcl.runs.settings import DataSettings, OptimisationSettings
from kmcl.training.calibration import auc_of_logits
from kmcl.training.task import MovingAverage, make_optimiser
from kmcl.training.unknown_labels import UnknownLabels

Rows = npt.NDArray[np.int64]
FROZEN_STAGES = 6
BATCH = 64
STEPS_OF_FEW = 160
"""With a part of the training images: as many epochs as give about this many steps."""
SHARE_OF_VAL = 0.12
"""Of the images of the other folds."""


class Part(NamedTuple):
    """Rows of train, val and the images that are judged."""

    train: Rows
    val: Rows
    judged: Rows


class Images:
    """The frozen features and labels of a dataset's images."""

    def __init__(
        self,
        data: str,
        image_size: int,
        views: int,
        groups: str | None,
        *,
        with_test: bool,
        encoder: str = "lite0",
        frozen_stages: int = FROZEN_STAGES,
    ) -> None:
        dataset = open_dataset(data)
        self.encoder_name, self.frozen_stages = encoder, frozen_stages
        self.name = Path(data.partition(":")[2] or data).parent.name
        self.labels, self.image_size = dataset.labels, image_size
        splits = {name: dataset.splits[name] for name in ("train", "val", "test")[: 2 + with_test]}
        loading = LoaderSettings(batch_size=BATCH, image_size=image_size, augmentation="photo", cache="none")
        features = FeatureCache(
            Classifier(self.encoder(), nn.Identity()), loading, views, Console(), runtime="onnxruntime"
        )
        found, names = [], []
        for name, split in splits.items():
            num_views = 1 if name == "test" else views
            found.append(features.views(split, name, num_views)[0])
            names += [split.images.name(row) for row in range(len(split))]
        self.views = [
            np.concatenate([of_split[min(view, len(of_split) - 1)] for of_split in found])
            for view in range(views)
        ]
        self.targets = np.concatenate([split.targets for split in splits.values()])
        self.split = np.repeat(list(splits), [len(split) for split in splits.values()])
        self.groups = np.array([_group(name, groups) for name in names])

    def encoder(self) -> Encoder:
        return open_encoder(
            f"tf_efficientnet_{self.encoder_name}",
            f"{self.encoder_name}-pypi",
            in_channels=3,
            image_size=self.image_size,
            frozen_stages=self.frozen_stages,
            taps=True,
        )

    @cached_property
    def statistics(self) -> Tensor:
        """What the Gaussian process observes of each image."""
        process = find_part("frozen_gp")(self.encoder(), len(self.labels))
        classifier = Classifier(self.encoder(), nn.Identity())
        with torch.inference_mode():
            batches = [
                process.observe(classifier.encode_rows(torch.from_numpy(rows)), None)  # type: ignore[arg-type]
                for rows in np.array_split(self.views[0], len(self.targets) // 256 + 1)
            ]
        return torch.cat(batches).clone()

    def folds(self, number: int, repeats: int = 1) -> Iterator[Part]:
        pool = np.flatnonzero(self.split != "test")
        for repeat in range(repeats):
            fold_of = stratify(self.targets[pool], [1 / number] * number, repeat, self.groups[pool])
            for fold in range(number):
                others = pool[fold_of != fold]
                shares = [1 - SHARE_OF_VAL, SHARE_OF_VAL]
                is_val = stratify(self.targets[others], shares, fold, self.groups[others])
                yield Part(others[is_val == 0], others[is_val == 1], pool[fold_of == fold])

    def given(self) -> Part:
        return Part(*(np.flatnonzero(self.split == name) for name in ("train", "val", "test")))


def _group(name: str, pattern: str | None) -> str:
    found = re.search(pattern, Path(name).name) if pattern else None
    return found[0] if found else name


def treatment_of(targets: npt.NDArray[np.int8]) -> UnknownLabels:
    return UnknownLabels.of_run(DataSettings(spec="-"), targets)


class Scores(NamedTuple):
    """Logits of a network for some images, and the features that its kernels would act on."""

    logits: Tensor
    features: Tensor


class Network:
    """A classifier that is trained on cached features."""

    def __init__(
        self, images: Images, part: Part, variant: Variant, targets: npt.NDArray[np.int8], seed: int
    ) -> None:
        torch.manual_seed(seed)
        encoder, labels = images.encoder(), images.labels
        self.images, self.part, self.targets, self.seed = images, part, targets, seed
        self.options = variant.resolved(labels)
        self.rate = variant.rates.get(images.name, RATE)
        method = find_method(variant.method)
        self.classifier = Classifier(encoder, method.build_head(encoder, len(labels), self.options))
        self.compute_loss = method.compute_loss
        set_label_statistics(self.classifier.head, labels, targets[part.train])

    def train(self, epochs: int) -> Classifier:
        """The best of the network and its moving average after each epoch, by mean AUC on val."""
        best, kept, val = -1.0, self.classifier, self.part.val
        for candidates in self.epochs(epochs):
            for candidate in candidates:
                logits = scores_of(candidate, self.images, val).logits
                found = mean_area_under_roc(predictions_of(self.images, val, logits))
                if found > best:
                    best, kept = found, copy.deepcopy(candidate)
        return kept

    def epochs(self, epochs: int) -> Iterator[tuple[Classifier, Classifier]]:
        """The network and its moving average, after each epoch."""
        settings = OptimisationSettings(learning_rate=self.rate, epochs=epochs, seed=self.seed)
        steps = max(1, len(self.part.train) // BATCH)
        optimiser, schedule = make_optimiser(self.classifier, settings, steps * epochs)
        frozen = [f"encoder.backbone.{name}" for name in self.classifier.encoder.frozen_tensors()]
        average = MovingAverage(self.classifier, settings.moving_average, warmup=True, constant=frozen)
        unknown = treatment_of(self.targets[self.part.train])
        for epoch in range(epochs):
            torch.manual_seed(1000 * self.seed + epoch)
            self.classifier.train()
            for rows, features in self._batches(epoch, steps):
                output = self.classifier.score_rows(features)
                targets = torch.from_numpy(self.targets[rows])
                progress = epoch / max(epochs - 1, 1)
                terms = unknown.loss(self.compute_loss, output, targets, self.options, progress)
                optimiser.zero_grad()
                terms.total.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                average.update(self.classifier)
            yield self.classifier, average.model  # type: ignore[misc]

    def _batches(self, epoch: int, steps: int) -> Iterator[tuple[Rows, Tensor]]:
        """Of each image another view in each epoch, until all have been used."""
        train, views = self.part.train, self.images.views
        turn, place = divmod(epoch, len(views))
        order = np.random.default_rng([self.seed, epoch]).permutation(len(train))
        drawn = np.random.default_rng([self.seed, turn, 1]).random((len(train), len(views))).argsort(axis=1)
        for chosen in np.array_split(order[: max(BATCH * steps, 1)], steps):
            rows = train[chosen]
            features = np.stack(
                [views[view][row] for view, row in zip(drawn[chosen, place], rows, strict=True)]
            )
            yield rows, torch.from_numpy(features)


@torch.inference_mode()
def scores_of(classifier: nn.Module, images: Images, rows: Rows) -> Scores:
    classifier.eval()
    outputs = [
        classifier.score_rows(torch.from_numpy(images.views[0][some]))
        for some in np.array_split(rows, len(rows) // 256 + 1)
    ]
    logits, features = (torch.cat([getattr(o, name) for o in outputs]) for name in ("logits", "features"))
    return Scores(logits.clone(), features.clone())


def predictions_of(images: Images, rows: Rows, logits: Tensor) -> Predictions:
    names = tuple(map(str, rows))
    groups = tuple(map(str, images.groups[rows]))
    return Predictions(
        images.labels, names, logits.float().sigmoid().numpy(), images.targets[rows], groups=groups
    )


def mean_ap(images: Images, rows: Rows, logits: Tensor) -> float:
    return mean_average_precision(predictions_of(images, rows, logits))


class Parts:
    """Post-hoc parts for the networks of one part of the data; the process does not depend on the network."""

    def __init__(self, images: Images, part: Part, targets: npt.NDArray[np.int8]) -> None:
        self.images, self.part = images, part
        known = targets[part.train]
        self.targets = treatment_of(known).for_fitting(torch.from_numpy(known))
        self.process = self._fitted("frozen_gp", images.statistics[part.train])

    def _fitted(self, name: str, observations: Tensor) -> PosthocPart:
        kind = find_part(name)
        made = kind(self.images.encoder(), len(self.images.labels))
        made.fit(observations, self.targets, kind.Options(), 0)
        return made

    def correct(self, classifier: nn.Module) -> dict[str, Tensor]:
        """Logits of the images that are judged, with each choice of parts."""
        train, val, judged = (scores_of(classifier, self.images, rows) for rows in self.part)
        vote = self._fitted("kernel_vote", train.features)
        statistics = self.images.statistics
        seen = {
            "frozen_gp": (self.process, statistics[self.part.val], statistics[self.part.judged]),
            "kernel_vote": (vote, val.features, judged.features),
        }
        score = auc_of_logits(predictions_of(self.images, self.part.val, val.logits))
        corrected = {}
        for choice in CHOICES:
            on_val, on_judged = val.logits.double(), judged.logits.double()
            for name in choice.split("+") if choice != "none" else ():
                part, of_val, of_judged = seen[name]
                on_val = part.tune(of_val, on_val, score)
                on_judged = on_judged + part(of_judged)
            corrected[choice] = on_judged
        return corrected


def delete_labels(targets: npt.NDArray[np.int8], rows: Rows, unknown: str, seed: int) -> npt.NDArray[np.int8]:
    """Targets in which some labels of these rows are unknown, -1."""
    changed, rng = targets.copy(), np.random.default_rng([seed, 7])
    kept = changed[rows]
    if unknown == "single":
        drawn = np.where(kept == 1, rng.random(kept.shape), -1.0)
        first = np.zeros_like(kept, dtype=bool)
        first[np.arange(len(kept)), drawn.argmax(axis=1)] = True
        changed[rows] = np.where(first & (kept == 1), 1, -1)
    else:
        changed[rows] = np.where(rng.random(kept.shape) < float(unknown), -1, kept)
    return changed


def main() -> None:
    arguments = parse_arguments()
    if arguments.table:
        print_table(arguments.out, arguments.reference)
        return
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    index, number = map(int, arguments.part.split("/"))
    images = Images(
        arguments.data,
        arguments.image_size,
        arguments.views,
        arguments.groups,
        with_test=arguments.folds == 0,
    )
    if arguments.folds:
        parts = list(enumerate(images.folds(arguments.folds, arguments.repeats)))
    else:
        parts = [(seed, images.given()) for seed in map(int, arguments.seeds.split(","))]
    for seed, part in parts[index::number]:
        run(images, part, seed, arguments)


def run(images: Images, part: Part, seed: int, arguments: argparse.Namespace) -> None:
    """Train all variants on one part of the data."""
    epochs, targets = arguments.epochs, images.targets
    if arguments.fraction < 1:
        drawn = np.random.default_rng([seed, 3]).permutation(np.unique(images.groups[part.train]))
        kept = drawn[: max(1, round(arguments.fraction * len(drawn)))]
        part = part._replace(train=part.train[np.isin(images.groups[part.train], kept)])
        epochs = max(epochs, round(STEPS_OF_FEW / (len(part.train) / BATCH)))
    if arguments.unknown:
        targets = delete_labels(targets, part.train, arguments.unknown, seed)
    setting = f"{images.name} {arguments.fraction:g} {arguments.unknown or 'known'}"
    places = {
        name: arguments.out / f"{setting} {name} {'fold' if arguments.folds else 'seed'} {seed}.npz"
        for name in arguments.variants.split(";")
    }
    missing = {name: file for name, file in places.items() if not file.is_file()}
    if not missing:
        return
    parts = Parts(images, part, targets)
    for name, file in missing.items():
        classifier = Network(images, part, VARIANTS[name], targets, seed).train(epochs)
        corrected = parts.correct(classifier)
        about = {"variant": name, "setting": setting, "seed": seed, "folds": arguments.folds}
        shown = {choice: 100 * mean_ap(images, part.judged, logits) for choice, logits in corrected.items()}
        print(json.dumps(about | {choice: round(value, 2) for choice, value in shown.items()}), flush=True)
        np.savez(
            file,
            about=json.dumps(about),
            labels=np.array(images.labels),
            targets=images.targets[part.judged],
            groups=images.groups[part.judged],
            **{choice: logits.numpy().astype(np.float32) for choice, logits in corrected.items()},
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--variants", default=";".join(VARIANTS), help=f"with semicolons: {'; '.join(VARIANTS)}"
    )
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--groups", metavar="PATTERN", help="of the part of a name that is the group")
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--unknown", default="")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--reference", default="asl")
    return parser.parse_args()


if __name__ == "__main__":
    main()
