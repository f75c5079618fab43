"""The folder of a model with an added label: a run like the one it came from, with one more label."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import nn

from kmcl.data import Dataset, open_dataset
from kmcl.data.dataset import UNKNOWN, Split
from kmcl.data.files import ImageFiles
from kmcl.data.image_paths import find_images
from kmcl.data.readers.registry import READERS
from kmcl.data.recognition import TABLE_SUFFIXES
from kmcl.data.selection import join_splits, select, with_unknown_labels
from kmcl.errors import InputError, suggest
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.summary import choose_on_val, measure_splits, metrics_of
from kmcl.features.run_data import RunData
from kmcl.labelling.label_addition import AddedLabel, add_label
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, load_model, save_model
from kmcl.models.prediction import predict_split
from kmcl.progress import WorkProgress
from kmcl.runs.dataset import open_run_dataset
from kmcl.runs.evaluation import write_evaluation
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.serving.loading import model_folder_of
from kmcl.storage.atomic import write_json

ADDED_FILE = "added_labels.json"
"""What was added to a run, label by label, with what is known of each."""


def add_label_to_run(
    source: Path,
    examples: Sequence[str],
    name: str,
    output: Path,
    *,
    without: Sequence[str] = (),
    share: float | None = None,
    console: Console | None = None,
    encoder: nn.Module | None = None,
) -> AddedLabel:
    """Write a copy of a run, or of a model folder, that predicts one more label.

    examples: images, folders, patterns; or one dataset that has a label of this name
    without:  images that are known not to show it
    share:    of images like those of training, those that show it; estimated if not given
    """
    console = console or Console(quiet=True)
    folder = RunFolder(output)
    folder.refuse_existing()
    if output.resolve() == source.resolve():
        raise InputError(f"{output}: is the run itself; choose another --output")
    if share is not None and not 0 < share < 1:
        raise InputError(f"share must be above 0 and below 1; got {share}")
    classifier, description = load_model(model_folder_of(source), encoder)
    classifier.to("cuda" if torch.cuda.is_available() else "cpu")
    given = read_examples(examples, without, name)
    classifier, description, added = add_label(classifier, description, name, given, share, console)
    run = RunFolder(source)
    if run.is_begun:
        _write_run(run, folder, classifier, description, console)
        write_json(output / ADDED_FILE, [*_former(source), _as_json(added)])
    else:
        save_model(output, classifier, description)
    return added


def read_examples(examples: Sequence[str], without: Sequence[str], name: str) -> Split:
    """The images, each with one target: 1 where it shows the label, 0 where it is known not to."""
    if len(examples) == 1 and _names_dataset(examples[0]):
        if without:
            raise InputError("a dataset says itself which images do not show a label; leave out --without")
        return _of_dataset(open_dataset(examples[0]), name)
    shown = find_images(examples).images
    absent = find_images(without).images if without else []
    twice = sorted({path.absolute() for path in shown} & {path.absolute() for path in absent})
    if twice:
        raise InputError(f"{twice[0]}: is given as an example and in --without")
    paths = [str(path.absolute()) for path in (*shown, *absent)]
    targets = np.array([1] * len(shown) + [0] * len(absent), dtype=np.int8)[:, None]
    return Split(ImageFiles(Path("/"), np.array(paths)), targets)


def _names_dataset(text: str) -> bool:
    """Whether it is a dataset spec or a table, and not an image, a folder or a pattern."""
    kind, colon, _ = text.partition(":")
    return (bool(colon) and kind in READERS) or text.lower().endswith(TABLE_SUFFIXES)


def _of_dataset(dataset: Dataset, name: str) -> Split:
    if name not in dataset.labels:
        near = suggest(name, dataset.labels)
        raise InputError(f"{dataset.name}: has no label {name!r}{near}; it has {', '.join(dataset.labels)}")
    joined = join_splits(dataset)
    targets = joined.targets[:, [dataset.labels.index(name)]]
    rows = np.flatnonzero(targets[:, 0] != UNKNOWN)
    return select(Split(joined.images, targets), rows)


def _write_run(
    former: RunFolder,
    new: RunFolder,
    classifier: Classifier,
    description: ModelDescription,
    console: Console,
) -> None:
    settings = former.read_settings()
    save_model(new.model, classifier, description)
    for file in (former.plan_file, former.settings_file, former.environment_file, former.epochs_file):
        if file.is_file():
            shutil.copyfile(file, new.path / file.name)
    try:
        dataset = open_run_dataset(settings)
        predictions = _predict(classifier, description, dataset, settings, former, console)
    except InputError as error:
        console.print(
            f"val and test are not predicted again: {error}", soft_wrap=True, highlight=False, markup=False
        )
        return
    for name, predicted in predictions.items():
        predicted.save(new.predictions_file(name))
    metrics = former.read_metrics() if former.metrics_file.is_file() else {}
    evaluation = settings.evaluation
    added = len(description.labels) - dataset.num_labels
    counts = (dataset.splits["train"].targets == 1).sum(axis=0)
    chosen = choose_on_val(
        predictions.get("val"),
        threshold=evaluation.threshold,
        criterion=evaluation.threshold_criterion,
        target=evaluation.threshold_target,
        wish=evaluation.guarantee_wish,
    )
    rules, padded = description.rules, np.pad(counts, (0, added))
    summaries = measure_splits(predictions, rules, evaluation.threshold, padded, chosen)
    if chosen.thresholds is not None:  # val says nothing about the added labels
        thresholds = replace(chosen.thresholds, values=rules.score_thresholds)
        chosen = replace(chosen, thresholds=thresholds, guarantee=rules.guarantee)
    write_evaluation(new, rules, summaries)
    write_json(new.metrics_file, metrics | metrics_of(chosen, summaries))


def _predict(
    classifier: Classifier,
    description: ModelDescription,
    dataset: Dataset,
    settings: TrainingSettings,
    former: RunFolder,
    console: Console,
) -> dict[str, Predictions]:
    """The splits that the run predicted; of the added labels nothing is known there."""
    device = str(next(classifier.parameters()).device)
    data = RunData(dataset, settings, classifier, console, device)
    found: dict[str, Predictions] = {}
    for name in ("val", "test"):
        if not former.predictions_file(name).is_file() or name not in dataset.splits:
            continue
        split = with_unknown_labels(dataset.splits[name], len(description.labels) - dataset.num_labels)
        with WorkProgress(console, f"predictions of {name}", len(split)) as progress:
            progress.start(len(split))
            found[name] = predict_split(
                classifier,
                description.labels,
                split,
                data.eval_loader(name),
                from_rows=data.from_rows,
                on_progress=progress.advance,
            )
    return found


def default_output(run: Path, name: str) -> Path:
    """Beside the run, with the label's name after its own."""
    word = re.sub(r"[^\w.-]+", "_", name).strip("_") or "label"
    return run.resolve().with_name(f"{run.resolve().name}-{word}")


def _former(source: Path) -> list[object]:
    path = source / ADDED_FILE
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []


def _as_json(added: AddedLabel) -> dict[str, object]:
    return {
        "label": added.name,
        "examples": added.num_examples,
        "known_absent": added.num_absent,
        "ranked_above": added.ranked_above,
        "ranked_above_interval": [added.low, added.high],
        "share": added.share,
        "threshold": added.threshold,
    }
