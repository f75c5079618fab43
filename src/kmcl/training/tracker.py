"""What a tracking service gets of a run, whichever service it is."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kmcl.errors import InputError
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import flat_values
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import write_json
from kmcl.training.lightning import Logger

EXPERIMENT = "kmcl"

Say = Callable[[str], None]


class Tracker(ABC):
    """A run as a tracking service has it. Methods other than `open` raise nothing: they say what failed."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, run: RunFolder, settings: TrainingSettings, say: Say) -> None:
        self._run, self._say = run, say
        self._id_file = run.logs / f"{self.name}.json"
        self._known_id: str | None = None
        if self._id_file.is_file():
            self._known_id = json.loads(self._id_file.read_text(encoding="utf-8"))["id"]

    @property
    @abstractmethod
    def logger(self) -> Logger: ...

    def open(self) -> None:
        """Begin the run there, or go on with it; InputError if the service cannot be used."""
        try:
            self._open()
        except Exception as error:
            raise InputError(f"--log {self.name}: {first_line(error)}{self._advice()}") from error

    def log_settings(self, settings: TrainingSettings) -> None:
        """Send the complete settings of a run that begins, and keep its id."""
        if self._known_id is None:
            write_json(self._id_file, {"id": self.logger.version})
            self.send(lambda: self.logger.log_hyperparams(flat_values(settings)))

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Send the results, the model and the files of a run that has ended."""
        self.send(lambda: self._send_results(metrics))

    def add_page(self, page: Path) -> None:
        """Send a report of the run."""
        self.send(lambda: self._send_page(page))

    def send(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._say(f"{self.title} did not take everything: {first_line(error)}; the run folder has it all")

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Leave it; called once, however the run ends."""

    def _advice(self) -> str:
        return ""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _send_results(self, metrics: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _send_page(self, page: Path) -> None: ...

    @property
    def _files(self) -> list[Path]:
        run = self._run
        files = (run.settings_file, run.environment_file, run.epochs_file, run.metrics_file)
        return [path for path in files if path.is_file()]


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def result_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The results of each split as `test/mean_average_precision`, `test/at_threshold/CF1` and so on.

    Decisions are those at the thresholds that were chosen on val, where there are any.
    """
    numbers: dict[str, float] = {}
    for split, found in _measured(metrics):
        for name, value in found.items():
            inner = value if isinstance(value, Mapping) else {"": value}
            for key, number in inner.items():
                if isinstance(number, int | float) and not isinstance(number, bool):
                    numbers["/".join(filter(None, (split, name, key)))] = float(number)
    return numbers


def label_tables(metrics: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """For each split a row of metrics per label."""
    return {split: found["labels"] for split, found in _measured(metrics) if found["labels"]}


def _measured(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (split, metrics[split].get("evaluation_own_thresholds") or metrics[split]["evaluation"])
        for split in ("val", "test")
        if metrics.get(split)
    ]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
