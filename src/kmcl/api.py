"""`kmcl.train`, `kmcl.evaluate`, `kmcl.compare`, `kmcl.add_label`: what the commands of these names do, from
Python.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmcl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from kmcl.data import Dataset
    from kmcl.evaluation import Evaluation, Predictions
    from kmcl.runs.folder import RunFolder
    from kmcl.runs.resolution import Given
    from kmcl.runs.settings import TrainingSettings
    from kmcl.serving import Predictor
    from kmcl.studies.results import StudyResult

__all__ = ["Run", "add_label", "compare", "evaluate", "resume", "train"]


@dataclass(frozen=True)
class Run:
    """A training run and its folder.

    >>> import kmcl
    >>> run = kmcl.train("digits", encoder="small_convnet", epochs=1, options={"size": 200}, progress=False)
    >>> 0 < run.metrics["test"]["evaluation"]["mean_average_precision"] < 1
    True
    >>> page = run.report()
    >>> run.load().predict("photo.jpg").to_frame()  # doctest: +SKIP
    """

    path: Path

    @property
    def metrics(self) -> dict[str, Any]:
        """What `metrics.json` holds: `metrics["test"]["evaluation"]["mean_average_precision"]` and more."""
        return self._folder.read_metrics()

    @property
    def settings(self) -> TrainingSettings:
        """The complete settings of the run."""
        return self._folder.read_settings()

    def predictions(self, split: str = "test") -> Predictions:
        """Scores (before calibration) and targets of a split, `val` or `test`."""
        from kmcl.evaluation import Predictions

        self._folder.read_settings()  # refuses what is no run folder
        file = self._folder.predictions_file(split)
        if not file.is_file():
            raise InputError(f"{self.path}: has no predictions of {split} ({file}); is the run finished?")
        return Predictions.load(file)

    def load(self, encoder: nn.Module | None = None, guarantee: str | None = None) -> Predictor:
        """The trained model.

        encoder:   for a run whose encoder was a module of your own
        guarantee: a rate that the thresholds keep, chosen on val, as in "recall=0.9"
        """
        from kmcl.serving.loading import load_in_torch

        return load_in_torch(self.path, encoder, guarantee)

    def report(self, *others: Run | str | Path, output: str | Path | None = None) -> Path:
        """Write the report of this run, and of others beside it; returns the path of its page."""
        from kmcl.reports import write_report

        paths = [self.path, *(other.path if isinstance(other, Run) else Path(other) for other in others)]
        return write_report(paths, self.path / "report" if output is None else Path(output))

    @property
    def _folder(self) -> RunFolder:
        from kmcl.runs.folder import RunFolder

        return RunFolder(self.path)


def train(
    data: str | Path | Dataset | pd.DataFrame,
    *,
    method: str | None = None,
    encoder: str | nn.Module | None = None,
    output: str | Path | None = None,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Train a model, as `kmcl train` does.

    data:     a dataset spec such as "table:labels.csv", a `Dataset`, or a DataFrame with an image column
    method:   one of `kmcl.methods.METHODS`; kmcl if not given
    encoder:  a name of timm or of a plug-in, or a module of your own that maps images to a feature map
    output:   folder of the run; runs/DATA-METHOD-seedN-DATE-TIME if not given
    preset:   default, paper or released
    config:   a YAML file of settings, over the preset
    options:  of the dataset's reader, as in {"val_fraction": 0.2}
    progress: print what is done and the time left
    settings: any other setting by the name of its flag, as in learning_rate=1e-3, kernel="gaussian"

    Returns the run when it is finished. An interrupted one is continued by `resume`.
    """
    from kmcl.data import Dataset
    from kmcl.encoders.module_encoder import module_name
    from kmcl.runs.folder import RunFolder
    from kmcl.runs.resolution import read_given
    from kmcl.training.launcher import is_first_process
    from kmcl.training.planning import plan_run, print_header
    from kmcl.training.starting import choose_folder
    from kmcl.training.train import train as run_training

    module = None if encoder is None or isinstance(encoder, str) else encoder
    dataset = data if isinstance(data, Dataset) else None
    spec, reader_options = _data_settings(data, options)
    flags = {
        **settings,
        "method": method,
        "encoder": encoder if module is None else module_name(module),
        "data_options": reader_options or None,
    }
    began = time.monotonic()
    console = _console(progress)
    given = read_given(spec, preset, None if config is None else Path(config), flags)
    folder = choose_folder(None if output is None else Path(output), given.check())
    if is_first_process():
        RunFolder(folder).refuse_existing()
    given = _with_table(given, data, options, folder)
    try:
        plan = plan_run(given, dataset)
        print_header(console, plan, folder)
        run_training(plan.settings, folder, console, dataset=plan.dataset, encoder=module, began=began)
    except InputError:
        _remove_table(folder)
        raise
    return Run(folder)


def resume(
    run: str | Path | Run,
    *,
    data: Dataset | None = None,
    encoder: nn.Module | None = None,
    progress: bool = True,
) -> Run:
    """Continue an interrupted run, to the same numbers; a finished one is returned as it is.

    data, encoder: the `Dataset` and the module it was started with, where it was started with such
    """
    from kmcl.training.train import resume as resume_training

    folder = run.path if isinstance(run, Run) else Path(run)
    resume_training(folder, _console(progress), dataset=data, encoder=encoder)
    return Run(folder)


def evaluate(
    run: str | Path | Run | Predictions,
    *,
    data: str | Path | Dataset | pd.DataFrame | None = None,
    options: Mapping[str, Any] | None = None,
    split: str = "test",
    threshold: float | None = None,
    guarantee: str | None = None,
    top_k: int = 3,
    encoder: nn.Module | None = None,
    progress: bool = True,
) -> Evaluation:
    """The metrics of a run on its own data or on other data, or those of any predictions.

    data:      other data to predict and measure, as of `train`; labels are matched by name, and those that
               the model or the data lack are left out and printed
    options:   of the reader of these data
    split:     val or test of the run's own data; train, val, test or all of other data
    threshold: for all labels, a calibrated probability; if not given each label's own, chosen on val. Of bare
               predictions a score, 0.5 if not given
    guarantee: thresholds of a run that keep a rate, chosen on its val, as in "recall=0.9"
    top_k:     labels per image of the top-k metrics
    encoder:   for other data, the module of your own that the run was trained with
    progress:  print what is done on other data
    """
    from kmcl.evaluation import Predictions
    from kmcl.evaluation import evaluate as evaluate_predictions

    if guarantee is not None and (threshold is not None or isinstance(run, Predictions)):
        raise InputError("guarantee chooses thresholds of a run: it takes no threshold, no bare predictions")
    if isinstance(run, Predictions):
        return evaluate_predictions(run, 0.5 if threshold is None else threshold, top_k)
    from kmcl.evaluation.by_rules import evaluate_by_rules
    from kmcl.models.folder import read_description

    found = run if isinstance(run, Run) else Run(Path(run))
    if data is None:
        predictions = found.predictions(split)
    else:
        from kmcl.training.other_data import predict_other_data

        console = _console(progress)
        other = predict_other_data(
            found.path / "model", data, options, split, console=console, encoder=encoder
        )
        for notice in other.notices():
            console.print(notice, soft_wrap=True, highlight=False, markup=False)
        predictions = other.predictions
    rules = read_description(found.path / "model").rules
    if guarantee is not None:
        from kmcl.evaluation.guarantee import GuaranteeWish
        from kmcl.runs.guarantee import rules_for_wish

        rules = rules_for_wish(rules, GuaranteeWish.parse(guarantee), found.path)
    return evaluate_by_rules(predictions, rules, threshold, top_k)


def compare(
    data: str | Path | pd.DataFrame,
    methods: Sequence[str] = ("asl", "kmcl"),
    *,
    seeds: Sequence[int] = (0, 1, 2),
    reference: str | None = None,
    search: str | None = None,
    output: str | Path | None = None,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    jobs: int = 1,
    progress: bool = True,
    **settings: Any,
) -> StudyResult:
    """Train methods with the same budget and every seed, and compare them, as `kmcl compare` does.

    methods:   as of `kmcl compare`: "asl", "kmcl:kernel=gaussian", "wide=kmcl:kernel=anisotropic"
    reference: the others' differences are to this one; the first if not given
    search:    a setting chosen for each method on val first, as in "learning_rate=3e-4,1e-3"
    jobs:      trainings at a time
    The other arguments are those of `train`; an option of a method is for the methods that have it.

    Each training has a process of its own, so call this under `if __name__ == "__main__":` in a script. The
    folder gets table.md, table.csv, results.json and the figure; the same call again continues an interrupted
    study.
    """
    from kmcl.data import Dataset
    from kmcl.reports.study_figures import run_drawn_study
    from kmcl.runs.resolution import read_given
    from kmcl.studies.equal_search import parse_search
    from kmcl.studies.plan import check_options_are_used, default_folder, make_plan
    from kmcl.studies.variants import parse_variants

    if _is_frame(data) and output is None:
        raise InputError("output must be given where the data are a DataFrame")
    if isinstance(data, Dataset):
        raise InputError(
            "compare trains in processes of their own, which cannot share a Dataset in memory; give a "
            "dataset spec or a DataFrame"
        )
    spec, reader_options = _data_settings(data, options)
    variants = parse_variants(methods)
    check_options_are_used(settings, variants)
    flags = {**settings, "data_options": reader_options or None}
    given = read_given(spec, preset, None if config is None else Path(config), flags)
    folder = None if output is None else Path(output)
    if folder is not None:
        given = _with_table(given, data, options, folder)
    searched = None if search is None else parse_search(search)
    plan = make_plan("compare", {**given.options, **given.values}, variants, seeds, reference, searched)
    return run_drawn_study(plan, folder or default_folder(plan), jobs=jobs, console=_console(progress))


def add_label(
    run: str | Path | Run,
    images: str | Path | Sequence[str | Path],
    *,
    name: str,
    without: str | Path | Sequence[str | Path] = (),
    share: float | None = None,
    output: str | Path | None = None,
    encoder: nn.Module | None = None,
    progress: bool = True,
) -> Run:
    """Give a trained model a new label from a few examples, as `kmcl add-label` does; returns the new run.

    images:  that show the label: files, folders or patterns; or a dataset that has it, "table:more.csv"
    without: images that are known not to show it
    share:   of the images that will be predicted, those that show it; estimated if not given
    output:  the new folder; beside the run if not given
    encoder: for a run whose encoder was a module of your own

    The given run is not changed.
    """
    from kmcl.labelling.added_run import add_label_to_run, default_output

    source = run.path if isinstance(run, Run) else Path(run)
    folder = default_output(source, name) if output is None else Path(output)
    console = _console(progress)
    added = add_label_to_run(
        source,
        _texts(images),
        name,
        folder,
        without=_texts(without),
        share=share,
        console=console,
        encoder=encoder,
    )
    console.print(added.in_words(), soft_wrap=True, highlight=False, markup=False)
    return Run(folder)


def _texts(paths: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]


def _data_settings(data: Any, options: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Spec and options that the settings record; the spec of a DataFrame is a name, until `_with_table`."""
    from kmcl.data import Dataset
    from kmcl.data.table_writing import READER_OPTIONS
    from kmcl.runs.dataset import IN_MEMORY

    if isinstance(data, Dataset):
        if options:
            raise InputError(f"a Dataset takes no options; got {', '.join(options)}")
        return f"{IN_MEMORY}{data.name}", {}
    return ("table:dataframe", dict(READER_OPTIONS)) if _is_frame(data) else (str(data), dict(options or {}))


def _with_table(given: Given, data: Any, options: Mapping[str, Any] | None, folder: Path) -> Given:
    """With a DataFrame as a table in the folder, so that reports and a resumed run find the data."""
    from kmcl.data import open_dataset
    from kmcl.data.table_writing import write_table
    from kmcl.runs.folder import TABLE_FILE

    if not _is_frame(data):
        return given
    table = folder.absolute() / TABLE_FILE
    write_table(open_dataset(data, **dict(options or {})), table)
    return given._replace(values={**given.values, "data": f"table:{table}"})


def _remove_table(folder: Path) -> None:
    """Remove the table of a DataFrame where nothing else is left of a run that did not start."""
    from kmcl.runs.folder import TABLE_FILE

    if folder.is_dir() and [path.name for path in folder.iterdir()] == [TABLE_FILE]:
        (folder / TABLE_FILE).unlink()
        folder.rmdir()


def _is_frame(data: object) -> bool:
    return type(data).__name__ == "DataFrame"


def _console(progress: bool) -> Any:
    from rich.console import Console

    return Console() if progress else Console(quiet=True)
