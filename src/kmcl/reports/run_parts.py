"""A run as a report reads it: its parts, and a sentence for each part that is missing or broken."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.normalisation import IDENTITY
from kmcl.data.vectors import feature_dim
from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription, load_model, read_description
from kmcl.runs.dataset import take_part
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings

Part = TypeVar("Part")


class RunParts:
    """The parts of one run folder, read on first access; None if a part is not available.

    name:     what the report calls the run
    problems: why parts are missing, in the order of access, each once
    opened:   datasets that runs share, by what names them: reading one may take seconds
    """

    def __init__(self, path: Path, name: str, opened: dict[str, Dataset] | None = None) -> None:
        if not path.is_dir():
            raise InputError(f"{path}: there is no such folder")
        self.folder = RunFolder(path)
        self.name = name
        self.problems: list[str] = []
        self._opened = {} if opened is None else opened
        known = ("settings.yaml", "epochs.csv", "metrics.json", "model", "predictions")
        if not any((path / part).exists() for part in known):
            raise InputError(f"{path}: is no run folder: it has none of {', '.join(known)}")

    def read_everything_small(self) -> None:
        """Read all parts but model weights and images, so that `problems` is complete."""
        for part in ("settings", "environment", "epochs", "metrics", "description", "val", "test"):
            getattr(self, part)

    @cached_property
    def settings(self) -> TrainingSettings | None:
        return self._try(self.folder.read_settings)

    @cached_property
    def environment(self) -> JsonObject | None:
        return self._try(lambda: _read_json(self.folder.environment_file))

    @cached_property
    def epochs(self) -> dict[str, Values] | None:
        """The columns of epochs.csv; NaN where a row has no value."""
        return self._try(lambda: _read_epochs(self.folder.epochs_file))

    @cached_property
    def metrics(self) -> JsonObject | None:
        return self._try(lambda: _read_json(self.folder.metrics_file))

    @cached_property
    def description(self) -> ModelDescription | None:
        return self._try(lambda: read_description(self.folder.model))

    @cached_property
    def classifier(self) -> Classifier | None:
        loaded = self._try(lambda: load_model(self.folder.model))
        return None if loaded is None else loaded[0]

    @cached_property
    def val(self) -> Predictions | None:
        return self._try(lambda: Predictions.load(self.folder.predictions_file("val")))

    @cached_property
    def test(self) -> Predictions | None:
        return self._try(lambda: Predictions.load(self.folder.predictions_file("test")))

    @property
    def split_name(self) -> str:
        """The split the report is about: test, or val where there is no test."""
        return "test" if self.test is not None and len(self.test) else "val"

    @property
    def predictions(self) -> Predictions | None:
        found = self.test if self.split_name == "test" else self.val
        return found if found is not None and len(found) else None

    @cached_property
    def dataset(self) -> Dataset | None:
        """The dataset of the run, if it can still be opened."""
        if self.settings is None:
            return None
        data = self.settings.data
        key = json.dumps([data.spec, data.options], sort_keys=True, default=str)
        if key not in self._opened:
            found = self._try(
                lambda: open_dataset(data.spec, **data.options),
                f"the images of {self.name} cannot be shown: ",
            )
            if found is None:
                return None
            self._opened[key] = found
        return self._opened[key]

    @property
    def takes_vectors(self) -> bool:
        """Whether the model takes feature vectors, so that there are no images to show."""
        return self.description is not None and self.description.encoder == IDENTITY

    @cached_property
    def images(self) -> Split | None:
        """The images the predictions were made from; None for feature vectors."""
        dataset = self.dataset
        if dataset is None:
            return None
        if feature_dim(dataset) is not None:
            self._add_problem(
                f"{self.name} has feature vectors instead of images: what shows or alters images is left "
                "out, and rows are shown by their names"
            )
            return None
        if self.split_name not in dataset.splits:
            self._add_problem(
                f"the images of {self.name} cannot be shown: {dataset.name}: has no {self.split_name} split "
                "any more"
            )
        split = dataset.splits.get(self.split_name)
        if split is not None and self.predictions is not None and not self._rows_in(split, self.predictions):
            self._add_problem(
                f"the images of {self.name} cannot be shown: {dataset.name} now has none of those that were "
                f"predicted, such as {self.predictions.names[0]!r}"
            )
            return None
        return split

    @cached_property
    def train_targets(self) -> npt.NDArray[np.int8] | None:
        """The targets that the run was trained with; None if its labels have changed since."""
        settings, dataset, predictions = self.settings, self.dataset, self.predictions
        if settings is None or dataset is None or predictions is None:
            return None
        if dataset.labels != predictions.labels:
            return None
        return self._try(lambda: take_part(settings, dataset).splits["train"].targets)

    @cached_property
    def _image_rows(self) -> dict[str, int]:
        split, predictions = self.images, self.predictions
        return {} if split is None or predictions is None else self._rows_in(split, predictions)

    @staticmethod
    def _rows_in(split: Split, predictions: Predictions) -> dict[str, int]:
        """The rows of the predicted images in their split, by their names in the predictions."""
        names = [split.images.name(row) for row in range(len(split))]
        # Runs that were started with a relative path had such names.
        if len(predictions) == len(names) and all(
            whole.endswith(f"/{name}") for whole, name in zip(names, predictions.names, strict=True)
        ):
            names = list(predictions.names)
        predicted = set(predictions.names)
        return {name: row for row, name in enumerate(names) if name in predicted}

    def load_image(self, name: str, size: int) -> npt.NDArray[np.uint8] | None:
        """An image of the reported split by its name in the predictions, shorter side about `size`."""
        row = self._image_rows.get(name)
        if row is None or self.images is None:
            return None
        try:
            return self.images.images.load(row, min_side=size)
        except InputError as error:
            self._add_problem(str(error))
            return None

    def _try(self, read: Callable[[], Part], prefix: str = "") -> Part | None:
        try:
            return read()
        except InputError as error:
            self._add_problem(prefix + str(error))
            return None

    def _add_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def read_runs(paths: Sequence[Path]) -> list[RunParts]:
    """Runs with distinct names: the folder's own, with as many parents as needed."""
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise InputError(f"{path}: is given twice")
    names = [path.name for path in resolved]
    depth = 1
    while len(set(names)) < len(names):
        depth += 1
        names = ["/".join(path.parts[-depth:]) for path in resolved]
    opened: dict[str, Dataset] = {}
    return [RunParts(path, name, opened) for path, name in zip(paths, names, strict=True)]


def refuse_vectors(runs: Sequence[RunParts], what: str) -> None:
    """Raise an InputError if one of the runs takes feature vectors; `what` is to be made of images."""
    for run in runs:
        if run.takes_vectors:
            raise InputError(f"{what} needs images, and {run.name} takes feature vectors")


def _read_json(path: Path) -> JsonObject:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: is not a JSON object")
    return values


def _read_epochs(path: Path) -> dict[str, Values]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; was no epoch finished?") from None
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not rows or "epoch" not in rows[0]:
        raise InputError(f"{path}: has no epochs")
    columns = {}
    for name in rows[0]:
        values = []
        for line, row in enumerate(rows, start=2):
            try:
                values.append(float(row[name]) if row.get(name) else math.nan)
            except (TypeError, ValueError):
                raise InputError(f"{path}, line {line}: {name} is not a number: {row[name]!r}") from None
        columns[name] = np.array(values)
    return columns
