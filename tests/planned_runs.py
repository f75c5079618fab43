"""Plans as commands and functions make them, of data of any size on a machine of a fixed speed."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.main import get_command

import kmcl
from kmcl.cli.app import make_app
from kmcl.data import Dataset, Split
from kmcl.data.readers.options import ReaderOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.registry import READERS
from kmcl.data.vectors import FeatureVectors
from kmcl.errors import InputError
from kmcl.runs import recipes
from kmcl.runs.planning import CANDIDATES, Candidate
from kmcl.runs.resolution import (
    flat_values,
    read_given,
    read_settings_file,
    settings_from_values,
)
from kmcl.runs.settings import TrainingSettings
from kmcl.studies.plan import StudyPlan
from kmcl.training.machine import ThisMachine, Throughput

IMAGES_A_SECOND = 60.0
"""Of the cheapest candidate's features, on the machine that plans are made for."""
TRAINED_IMAGES_A_SECOND = 400.0
"""Of its accelerator, when all stages are trained."""


Outcome = dict[str, Any] | str
"""Settings that are not the defaults, by flat names; or a refusal."""


class DrawnOptions(ReaderOptions):
    """How many training images or rows there are, and how large the images are."""

    size: int = 1000
    side: int = 300


@dataclass(frozen=True)
class DrawnImages:
    """Squares of one colour, or without colour."""

    size: int
    side: int
    is_grey: bool

    def __len__(self) -> int:
        return self.size

    def name(self, index: int) -> str:
        return f"drawn[{index}]"

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        colour = (90, 90, 90) if self.is_grey else (200, 90, 20)
        return np.full((self.side, self.side, 3), colour, dtype=np.uint8)


def _reader(store: Callable[[int, int], Any], *, gives_vectors: bool = False) -> Reader:
    def read(options: DrawnOptions) -> Dataset:
        splits = {}
        for name, share in {"train": 1.0, "val": 0.25, "test": 0.25}.items():
            size = round(share * options.size)
            targets = np.random.default_rng(size).integers(0, 2, (size, 3)).astype(np.int8)
            splits[name] = Split(store(size, options.side), targets)
        return Dataset("drawn", ("a", "b", "c"), splits)

    return Reader(read, DrawnOptions, gives_vectors=gives_vectors)


DRAWN = {
    "photos": _reader(lambda size, side: DrawnImages(size, side, is_grey=False)),
    "scans": _reader(lambda size, side: DrawnImages(size, side, is_grey=True)),
    "rows": _reader(lambda size, side: FeatureVectors(np.zeros((size, 5), np.float32)), gives_vectors=True),
}
"""Kinds of data that `planning_only` adds to the readers."""


class Planned(Exception):  # noqa: N818
    """Ends a command or call where training would begin."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan


def _stop(plan: object, *_: object, **__: object) -> None:
    raise Planned(plan)


@contextlib.contextmanager
def planning_only(*, accelerator: bool = False) -> Iterator[None]:
    """Every run and comparison ends where training would begin, on a machine of a fixed speed."""

    def measure(self: object, encoder: str, weights: str | None, size: int | None, *_: object) -> Throughput:
        seconds = Candidate(encoder, size or 224, 1).cost / CANDIDATES[0].cost / IMAGES_A_SECOND
        return Throughput({"torch": 2 * seconds, "onnxruntime": seconds}, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        for kind, reader in DRAWN.items():
            patch.setitem(READERS._builtin, kind, reader)
        patch.setattr(ThisMachine, "time_features", measure)
        patch.setattr(ThisMachine, "time_training", lambda *_: 1 / TRAINED_IMAGES_A_SECOND)
        patch.setattr(recipes, "installed_runtime", lambda: "onnxruntime")
        patch.setattr("torch.cuda.is_available", lambda: accelerator)
        patch.setattr("torch.cuda.get_device_name", lambda: "an accelerator")
        patch.setattr("kmcl.training.pipeline.train", _stop)
        patch.setattr("kmcl.reports.study_figures.run_drawn_study", _stop)
        yield


def by_command(data: str, given: Mapping[str, Any], folder: Path) -> Outcome:
    """The settings that `kmcl train` would train with, or its refusal."""
    return _outcome(lambda: _run("train", data, given))


def by_api(data: str, given: Mapping[str, Any], folder: Path) -> Outcome:
    """Those of `kmcl.train`."""
    return _outcome(lambda: kmcl.train(data, output=folder / "run", progress=False, **given))


def shown(data: str, given: Mapping[str, Any], folder: Path) -> Outcome:
    """What `kmcl train --show-settings` prints: the settings that are decided, and names of the others."""
    try:
        text = _run("train", data, given, "--show-settings")
    except InputError as error:
        return f"refused: {error}"
    file = folder / "shown.yaml"
    file.write_text(text)
    printed = read_settings_file(file)
    differences = {
        name: value
        for name, value in _differences(read_given(None, file=file).checked).items()
        if name in printed
    }
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    return differences | ({"left to the run": comment.partition(": ")[2]} if comment else {})


def compared_by_command(data: str, given: Mapping[str, Any], folder: Path) -> Outcome:
    """The settings of the first training of `kmcl compare --methods METHOD`."""
    method, others = _split_method(given)
    return _outcome(lambda: _run("compare", data, others, "--methods", method))


def compared_by_api(data: str, given: Mapping[str, Any], folder: Path) -> Outcome:
    """Those of `kmcl.compare`."""
    method, others = _split_method(given)
    return _outcome(lambda: kmcl.compare(data, [method], output=folder, progress=False, **others))


def planned_study(*words: str) -> StudyPlan:
    """The plan of a study that a command would run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kmcl.reports.study_figures.run_drawn_study", _stop)
        with pytest.raises(Planned) as stopped, contextlib.redirect_stdout(io.StringIO()):
            _program().main([*words], standalone_mode=False)
    found: StudyPlan = stopped.value.plan
    return found


ENTRY_POINTS = {
    "train": by_api,
    "command": by_command,
    "show-settings": shown,
    "compare": compared_by_api,
    "compare command": compared_by_command,
}


def plain_values(settings: TrainingSettings) -> dict[str, Any]:
    """All settings by flat names, as YAML can hold them."""
    values = flat_values(settings)
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value if value is None or isinstance(value, str | int | float | dict) else str(value)


def _differences(settings: TrainingSettings) -> dict[str, Any]:
    """The method, and the settings that are not its defaults."""
    data, method = settings.data, settings.method.name
    defaults = settings_from_values({"data": data.spec, "data_options": data.options, "method": method})
    usual = plain_values(defaults)
    found = plain_values(settings)
    return {k: v for k, v in found.items() if k not in usual or v != usual[k]} | {"method": method}


def _split_method(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return given.get("method", "kmcl"), {name: value for name, value in given.items() if name != "method"}


def _run(command: str, data: str, given: Mapping[str, Any], *more: str) -> str:
    arguments = [command, data]
    for name, value in given.items():
        if name == "options":
            arguments += [word for option in value.items() for word in ("--option", "=".join(option))]
        elif isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        else:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            _program().main([*arguments, *more], standalone_mode=False)
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            raise InputError(error.format_message()) from error  # a flag that the command does not have
    return printed.getvalue()


@functools.cache
def _program() -> Any:
    return get_command(make_app())


def _outcome(plan: Callable[[], Any]) -> Outcome:
    try:
        plan()
    except Planned as stopped:
        planned = stopped.plan
    except InputError as error:
        return f"refused: {error}"
    is_study = isinstance(planned, StudyPlan)
    return _differences(planned.members(Path())[0].settings if is_study else planned.settings)
