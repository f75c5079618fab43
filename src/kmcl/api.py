"""Every action of `kmcl`: a command parses its arguments, calls a function and prints what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kmcl.errors import InputError, TrainingError
from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from torch import nn

    from kmcl.data import Dataset
    from kmcl.data.check import CheckReport
    from kmcl.data.describe import Description
    from kmcl.evaluation import Evaluation, Predictions
    from kmcl.interop.released import ImportedModel
    from kmcl.labelling import AddedLabel
    from kmcl.labelling.audit_page import audit
    from kmcl.labelling.chosen_files import select
    from kmcl.labelling.findings_table import correct
    from kmcl.models import ComparedComplexity, MeasuredMethod
    from kmcl.reports.evaluation_tables import EvaluatedRuns
    from kmcl.reports.figure_files import Drawn
    from kmcl.reports.monitor import monitor
    from kmcl.runs.evaluation import RunEvaluation
    from kmcl.runs.folder import RunFolder
    from kmcl.runs.resolution import Given
    from kmcl.runs.settings import TrainingSettings
    from kmcl.serving import Predictor
    from kmcl.serving.export import export
    from kmcl.serving.prediction_run import predict
    from kmcl.serving.service.server import serve
    from kmcl.studies.results import StudyResult
    from kmcl.studies.weight_search import WeightResult
    from kmcl.training.plan import Plan

__all__ = [
    "DescribedData",
    "ExtendedRun",
    "Run",
    "add_label",
    "audit",
    "check_data",
    "compare",
    "complexity",
    "convert_data",
    "correct",
    "describe_data",
    "draw_predictions",
    "draw_similarity",
    "evaluate",
    "evaluate_published",
    "evaluate_runs",
    "explain",
    "export",
    "import_released",
    "monitor",
    "plan",
    "predict",
    "published_complexity",
    "push",
    "report",
    "resume",
    "select",
    "serve",
    "shard_data",
    "show_settings",
    "study",
    "train",
]


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

    def __fspath__(self) -> str:
        return str(self.path)

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

        return Predictions.load(self._folder.find_predictions(split))

    def load(self, encoder: nn.Module | None = None, guarantee: str | None = None) -> Predictor:
        """The trained model.

        encoder:   for a run whose encoder was a module of your own
        guarantee: a rate that the thresholds keep, chosen on val, as in "recall=0.9"
        """
        from kmcl.serving.loading import load_in_torch

        return load_in_torch(self.path, encoder, guarantee)

    def report(self, *others: Run | str | Path, output: str | Path | None = None) -> Path:
        """Write the report of this run, and of others beside it, as `kmcl.api.report` does."""
        return report([self, *others], output=output, progress=False)

    def show(self) -> None:
        """Print what came out of it, as `kmcl train` does at its end."""
        from rich.console import Console

        from kmcl.reports.run_summary import print_run_summary

        print_run_summary(Console(), self.path, self.metrics)

    @property
    def _folder(self) -> RunFolder:
        from kmcl.runs.folder import RunFolder

        return RunFolder(self.path)


def show_settings(
    data: str | None = None,
    *,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> str:
    """The settings that `train` would train with as YAML, but for those that it leaves to the run."""
    from kmcl.runs.resolution import read_given, shown_settings

    flags = {**settings, "data_options": dict(options or {}) or None}
    return shown_settings(read_given(data, preset, None if config is None else Path(config), flags))


def plan(
    data: str | Path | Dataset | None = None,
    *,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Plan:
    """What `train` would begin with: its settings, and why. This machine is measured."""
    from kmcl.data import Dataset
    from kmcl.training.machine import ThisMachine
    from kmcl.training.plan import make_plan

    given = _read_given(data, preset, config, options, settings)
    return make_plan(given, ThisMachine.of(given.checked), data if isinstance(data, Dataset) else None)


def train(
    data: str | Path | Dataset | pd.DataFrame | None = None,
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

    data:     a dataset spec such as "table:labels.csv", a `Dataset`, or a DataFrame with an image column; the
              one of `config` if not given
    method:   one of `kmcl.methods.METHODS`; kmcl if not given
    encoder:  a name of timm or of a plug-in, or a module of your own that maps images to a feature map
    output:   folder of the run; runs/DATA-METHOD-seedN-DATE-TIME if not given
    preset:   default, paper or released
    config:   a YAML file of settings, over the preset
    options:  of the dataset's reader, as in {"val_fraction": 0.2}
    progress: print what is done and the time left
    settings: any other setting by the name of its flag, as in learning_rate=1e-3, kernel="gaussian"

    Returns the run when it is finished. An interrupted one has its best model so far complete where that is
    quick, and is continued by `resume`.
    """
    began = time.monotonic()
    from kmcl.data import Dataset
    from kmcl.encoders.module_encoder import module_name
    from kmcl.runs.folder import RunFolder, choose_folder
    from kmcl.runs.launcher import is_first_process, is_restart
    from kmcl.training import pipeline
    from kmcl.training.machine import ThisMachine
    from kmcl.training.plan import make_plan, print_header
    from kmcl.training.states import RunIO

    module = None if encoder is None or isinstance(encoder, str) else encoder
    name = encoder if module is None else module_name(module)
    console = _console(progress)
    given = _read_given(data, preset, config, options, {**settings, "method": method, "encoder": name})
    folder = choose_folder(None if output is None else Path(output), given.checked)
    run = RunFolder(folder)
    if run.is_begun and is_restart(finished=run.metrics_file.is_file()):
        if is_first_process():
            console.print(f"{folder}: continues, with the settings it was started with", soft_wrap=True)
        return resume(folder, encoder=module, progress=progress)
    if is_first_process():
        run.refuse_existing()
    given = _with_table(given, data, options, folder)
    try:
        with console.status("measuring this machine ..."):
            dataset = data if isinstance(data, Dataset) else None
            plan = replace(make_plan(given, ThisMachine.of(given.checked), dataset), began=began)
        print_header(console, plan, folder)
        with _noting_how_to_continue(run):
            pipeline.train(plan, folder, RunIO(console, encoder=module))
    except InputError:
        _remove_table(folder)
        raise
    return Run(folder)


def resume(
    run: str | Path | Run,
    *,
    data: Dataset | None = None,
    encoder: nn.Module | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    progress: bool = True,
) -> Run:
    """Continue an interrupted run, to the same numbers; a finished one is returned as it is.

    data, encoder:  the `Dataset` and the module it was started with, where it was started with such
    devices, nodes: where there are now more or fewer than before
    """
    from kmcl.runs.folder import RunFolder
    from kmcl.training import pipeline
    from kmcl.training.states import RunIO

    folder, io = Path(run), RunIO(_console(progress), encoder=encoder)
    with _noting_how_to_continue(RunFolder(folder)):
        pipeline.resume(folder, io, dataset=data, devices=devices, nodes=nodes)
    return Run(folder)


@contextmanager
def _noting_how_to_continue(folder: RunFolder) -> Iterator[None]:
    from kmcl.storage.atomic import WriteError

    try:
        yield
    except (TrainingError, WriteError, KeyboardInterrupt, SystemExit) as stop:
        for line in folder.how_to_continue():
            stop.add_note(line)
        raise


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
    console = _console(progress)
    folder = _path(run)
    return _evaluate_run(
        folder, data, options, split, console, encoder, threshold=threshold, guarantee=guarantee, top_k=top_k
    ).evaluation


def evaluate_runs(
    runs: str | Path | Run | Sequence[str | Path | Run],
    *,
    data: str | Path | Dataset | pd.DataFrame | None = None,
    options: Mapping[str, Any] | None = None,
    split: str = "test",
    threshold: float | None = None,
    guarantee: str | None = None,
    abstain: float | None = None,
    top_k: int = 3,
    resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> EvaluatedRuns:
    """All that `kmcl evaluate` shows of a run, or of two with the paired difference of their mAP.

    abstain: the share of the decisions that are left to a person
    resamples, seed: of the bootstrap

    The other arguments are those of `evaluate`.
    """
    from kmcl.evaluation.bootstrap import paired_difference
    from kmcl.reports.evaluation_tables import EvaluatedRuns

    paths = _paths(runs)
    if len(paths) > 2:
        raise InputError(f"kmcl evaluate takes one run or two; got {len(paths)}")
    if len(paths) == 2 and paths[0].resolve() == paths[1].resolve():
        raise InputError(f"{paths[0]}: is given twice")
    if data is None and split not in ("val", "test"):
        raise InputError(f"--split must be val or test; got {split!r}; --data takes every split")
    if data is None and options:
        raise InputError("--option is for the reader of --data, and there is none")
    if guarantee is not None and threshold is not None:
        raise InputError("--guarantee chooses thresholds; --threshold cannot be given with it")
    if abstain is not None and (threshold is not None or data is not None):
        raise InputError("--abstain is about the run's own thresholds and data; give it without others")
    how: dict[str, Any] = {"threshold": threshold, "guarantee": guarantee, "top_k": top_k, "abstain": abstain}
    how |= {"resamples": resamples, "seed": seed}
    found = [_evaluate_run(path, data, options, split, _errors(progress), **how) for path in paths]
    difference = None
    if len(found) == 2:
        difference = paired_difference([found[1].predictions], [found[0].predictions], resamples, seed)
    named = data if data is None or isinstance(data, str | Path) else getattr(data, "name", "a DataFrame")
    return EvaluatedRuns(found, None if named is None else str(named), difference)


def evaluate_published(
    runs: str | Path | Run | Sequence[str | Path | Run],
    *,
    split: str = "test",
    threshold: float | None = None,
) -> str:
    """Runs among the paper's figures of their dataset, as text."""
    from kmcl.studies.published_tables import runs_among_published

    return runs_among_published(_paths(runs), split, threshold)


def _evaluate_run(
    folder: Path,
    data: str | Path | Dataset | pd.DataFrame | None,
    options: Mapping[str, Any] | None,
    split: str,
    console: Console,
    encoder: nn.Module | None = None,
    *,
    guarantee: str | None = None,
    **how: Any,
) -> RunEvaluation:
    """What is shown of a run, or of its model on other data; its figures are computed when asked for.

    how: fields of `RunEvaluation`
    """
    from kmcl.evaluation.guarantee import GuaranteeWish
    from kmcl.models.folder import read_description
    from kmcl.runs.evaluation import RunEvaluation
    from kmcl.runs.folder import RunFolder

    other = None
    if data is None:
        RunFolder(folder).find_predictions(split)  # says what is missing of the run
    else:
        from kmcl.models.prediction import predict_other_data
        from kmcl.progress import say

        RunFolder(folder).read_settings()  # refuses what is no run folder
        found = predict_other_data(folder / "model", data, options, split, console=console, encoder=encoder)
        for notice in found.notices():
            say(console, notice)
        other = found.predictions
    wish = None if guarantee is None else GuaranteeWish.parse(guarantee)
    return RunEvaluation(folder, read_description(folder / "model").rules, split, other, wish=wish, **how)


def compare(
    data: str | Path | pd.DataFrame | None = None,
    methods: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    reference: str | None = None,
    search: str | None = None,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    jobs: int = 1,
    ray: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> StudyResult:
    """Train methods with the same budget and every seed, and compare them, as `kmcl compare` does.

    methods:   "asl", "kmcl:kernel=gaussian", "wide=kmcl:kernel=anisotropic"; asl and kmcl if not given
    seeds:     every method is trained with each; 0, 1 and 2 if not given
    reference: the others' differences are to this one; the first if not given
    search:    a setting chosen for each method on val first, as in "learning_rate=3e-4,1e-3"
    resume:    the folder of a study to go on with, beside which nothing else is given
    config:    a file of settings; or the study.yaml of a study, which is repeated with what else is given
    jobs:      trainings at a time
    ray:       address of a Ray cluster to train on, "auto" or "local"
    The other arguments are those of `train`; an option of a method is for the methods that have it.

    Each training has a process of its own, so call this under `if __name__ == "__main__":` in a script. The
    `folder` of the result has table.md, table.csv, results.json and the figure; the same call again continues
    an interrupted study.
    """
    found: StudyResult = _run_study(
        "compare",
        {"methods": methods, "reference": reference, "search": search},
        settings,
        data=data,
        output=output,
        resume=resume,
        preset=preset,
        config=config,
        options=options,
        seeds=seeds,
        jobs=jobs,
        ray=ray,
        progress=progress,
    )
    return found


def study(
    kind: Literal["kernels", "terms", "data-size", "weights"],
    data: str | Path | pd.DataFrame | None = None,
    *,
    methods: Sequence[str] | None = None,
    fractions: Sequence[float] | None = None,
    same_steps: bool | None = None,
    points: int | None = None,
    low: float | None = None,
    high: float | None = None,
    sampler: Literal["random", "tpe"] | None = None,
    seeds: Sequence[int] | None = None,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    preset: str = "default",
    config: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    jobs: int = 1,
    ray: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> StudyResult | WeightResult:
    """One of the paper's studies, as `kmcl study` does: the `WeightResult` of weights, else a `StudyResult`.

    methods, fractions, same_steps: of data-size: what is trained with which fractions of the training images,
               0.1, 0.2, 0.4, 0.6, 0.8 and 1 if not given, and whether with more epochs where images are fewer
    points, low, high, sampler: of weights: how many settings of the three weights are tried, 15 if not given,
               between 0.01 and 1, drawn by "random", or "tpe", which uses the results of earlier points
    seeds:     every variant is trained with each; 0, 1 and 2 if not given, of weights 0
    The other arguments are those of `compare`.
    """
    own = {
        **{"methods": methods, "fractions": fractions, "same_steps": same_steps},
        **{"points": points, "low": low, "high": high, "sampler": sampler},
    }
    found: StudyResult | WeightResult = _run_study(
        f"study {kind}",
        own,
        settings,
        data=data,
        output=output,
        resume=resume,
        preset=preset,
        config=config,
        options=options,
        seeds=seeds,
        jobs=jobs,
        ray=ray,
        progress=progress,
    )
    return found


def report(
    runs: str | Path | Run | Sequence[str | Path | Run],
    *,
    output: str | Path | None = None,
    groups: str | Path | None = None,
    images: Sequence[str | Path] = (),
    saliency: Literal["random", "disagreement", "none"] = "random",
    num_images: int = 6,
    num_masked: int = 24,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Write the report of a run, or of several beside each other; returns the path of its page.

    output:     folder; RUN/report, or report next to the first of several, if not given
    groups:     file with groups of labels; found by clustering if not given
    images:     to explain first
    saliency:   which test images are explained besides, `num_images` of them
    num_masked: images on which the label that a label usually occurs with is covered
    """
    from kmcl.reports import ReportSettings, write_report
    from kmcl.reports.progress import ReportProgress
    from kmcl.runs.folder import RunFolder

    paths = _paths(runs)
    usual = paths[0] if len(paths) == 1 else paths[0].resolve().parent
    pictures = tuple(Path(image) for image in images)
    settings = ReportSettings(_given_path(groups), pictures, saliency, num_images, seed, num_masked)
    console = _errors(progress)
    with ReportProgress(console) as on_progress:
        page = write_report(paths, _given_path(output) or usual / "report", settings, on_progress)
    if len(paths) == 1 and any(RunFolder(paths[0]).logs.glob("*.json")):
        from kmcl.progress import say
        from kmcl.training.tracking import track_page  # loads Lightning, which takes seconds

        track_page(paths[0], page, partial(say, console))
    return page


def explain(
    run: str | Path | Run,
    images: str | Path | Sequence[str | Path],
    *,
    others: Sequence[str | Path | Run] = (),
    labels: Sequence[str] = (),
    full_size: bool = False,
    output: str | Path = "explanation",
    progress: bool = True,
) -> Path:
    """Show which regions of images support labels; returns the path of the page.

    others:    further runs to compare with
    labels:    those to explain; the predicted ones if not given
    full_size: show images at their original resolution
    """
    from kmcl.data.image_paths import find_images
    from kmcl.progress import say
    from kmcl.reports import write_explanation

    found = find_images(_texts(images))
    if found.left_out.note:
        say(_errors(progress), f"kmcl: {found.left_out.note}")
    paths = [_path(one) for one in (run, *others)]
    return write_explanation(paths, found.images, Path(output), labels, full_size=full_size)


def draw_predictions(
    run: str | Path | Run, *, output: str | Path = "figures", num_images: int = 6, seed: int = 0
) -> Drawn:
    """Draw what a run predicts for random test images, as SVG, PNG and CSV files."""
    from kmcl.reports.figure_files import draw_to_folder
    from kmcl.reports.prediction_figure import predictions_picture

    return draw_to_folder(predictions_picture(_path(run), num_images, seed), Path(output))


def draw_similarity(*, output: str | Path = "figures") -> Drawn:
    """Draw the paper's figure of the similarities of two kernels, as SVG, PNG and CSV files."""
    from kmcl.reports.figure_files import draw_to_folder
    from kmcl.reports.similarity_figure import similarity_picture

    return draw_to_folder(similarity_picture(), Path(output))


def push(run: str | Path | Run, repository: str, *, private: bool = False, message: str | None = None) -> str:
    """Publish a model with its card on the Hugging Face hub, as OWNER/NAME; returns the commit's address."""
    from kmcl.serving.hub import push as push_model
    from kmcl.serving.loading import load_in_torch

    return push_model(load_in_torch(_path(run)), repository, private=private, message=message)


@dataclass(frozen=True)
class ExtendedRun(Run):
    """A run whose model was given another label; `added` says how sure that label is."""

    added: AddedLabel


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
) -> ExtendedRun:
    """Give a trained model a new label from a few examples; returns the new run.

    images:  that show the label: files, folders or patterns; or a dataset that has it, "table:more.csv"
    without: images that are known not to show it
    share:   of the images that will be predicted, those that show it; estimated if not given
    output:  the new folder; beside the run if not given
    encoder: for a run whose encoder was a module of your own

    The given run is not changed.
    """
    from kmcl.labelling.added_run import add_label_to_run, default_output

    source = _path(run)
    folder = _given_path(output) or default_output(source, name)
    added = add_label_to_run(
        source,
        _texts(images),
        name,
        folder,
        without=_texts(without),
        share=share,
        console=_errors(progress),
        encoder=encoder,
    )
    return ExtendedRun(folder, added)


def import_released(
    checkpoint: str | Path,
    *,
    output: str | Path | None = None,
    dataset: str | None = None,
    labels: str | Path | None = None,
    image_size: int | None = None,
    threshold: float = 0.8,
) -> ImportedModel:
    """Convert weights that the authors of KMCL or ASL released to a model folder.

    output:  the folder; FILE-model if not given
    dataset: what it was trained on; found by the number of labels if not given
    labels:  a text file with the labels, one per line, in the order of the outputs
    """
    from kmcl.interop.released import import_to_folder

    file = Path(checkpoint)
    return import_to_folder(
        file,
        _given_path(output) or file.with_name(f"{file.stem}-model"),
        dataset=dataset,
        labels=_given_path(labels),
        image_size=image_size,
        threshold=threshold,
    )


def complexity(
    encoder: str = "tf_efficientnet_lite0",
    *,
    method: str | None = None,
    kernel: str | None = None,
    labels: int = 20,
    image_size: int | None = None,
) -> list[MeasuredMethod]:
    """Parameters and multiply-accumulates per image of every method on an encoder, or of one method."""
    from kmcl.models.method_complexity import measure_methods

    return measure_methods(encoder, labels, image_size, method=method, kernel=kernel)


def published_complexity() -> list[ComparedComplexity]:
    """The paper's figures of complexity beside ours."""
    from kmcl.models.published_complexity import compare_with_paper

    return compare_with_paper()


class DescribedData(NamedTuple):
    """What a dataset has, and the files of its figures."""

    description: Description
    figures: Sequence[Path]


def describe_data(
    data: str | Path | Dataset | pd.DataFrame,
    *,
    options: Mapping[str, Any] | None = None,
    figures: str | Path | None = None,
) -> DescribedData:
    """Sizes, labels per image, counts per label, correlations and image sizes; with a folder also figures."""
    from kmcl.data import open_dataset
    from kmcl.data.describe import describe

    description = describe(open_dataset(data, **(options or {})))
    if figures is None:
        return DescribedData(description, ())
    from kmcl.data.figures import save_figures

    return DescribedData(description, save_figures(description, Path(figures)))


def check_data(
    data: str | Path, *, options: Mapping[str, Any] | None = None, threads: int = 2, progress: bool = True
) -> CheckReport:
    """Decode every image of a dataset and list all problems, rows that cannot be used among them."""
    from kmcl.data.check import check_spec
    from kmcl.progress import counting_bar

    with counting_bar(_errors(progress), "decoding") as bar:
        task = bar.add_task("decoding", total=None)
        return check_spec(
            str(data),
            options or {},
            threads,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def convert_data(
    data: str | Path | Dataset | pd.DataFrame,
    target: str,
    *,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> str:
    """Write a dataset in another format, "coco:FOLDER" and others; returns the spec that opens it."""
    from kmcl.data import open_dataset
    from kmcl.data.writers.registry import write_dataset

    dataset = open_dataset(data, **(options or {}))
    with _writing(dataset, progress) as on_image:
        return write_dataset(dataset, target, on_image)


def shard_data(
    data: str | Path | Dataset | pd.DataFrame,
    folder: str | Path,
    *,
    images: int = 1000,
    form: Literal["tar", "litdata"] = "tar",
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[Path]:
    """Write a dataset as shards of so many images, which "shards:FOLDER" opens; returns their files.

    form: tar, as WebDataset's, or litdata, chunks of LitData, of which the folders are returned
    """
    from kmcl.data import open_dataset
    from kmcl.data.litdata_writing import write_chunks
    from kmcl.data.shard_writing import write_shards

    dataset = open_dataset(data, **(options or {}))
    write = write_chunks if form == "litdata" else write_shards
    with _writing(dataset, progress) as on_image:
        return write(dataset, Path(folder), images, on_image)


_HOMES = {
    "audit": "kmcl.labelling.audit_page",
    "correct": "kmcl.labelling.findings_table",
    "export": "kmcl.serving.export",
    "monitor": "kmcl.reports.monitor",
    "predict": "kmcl.serving.prediction_run",
    "select": "kmcl.labelling.chosen_files",
    "serve": "kmcl.serving.service.server",
}
"""The actions that are a function of one package, each with its module."""

__getattr__ = lazy_names(__name__, _HOMES)


def _run_study(
    kind: str,
    own: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    data: Any,
    output: str | Path | None,
    resume: str | Path | None,
    preset: str,
    config: str | Path | None,
    options: Mapping[str, Any] | None,
    seeds: Sequence[int] | None,
    jobs: int,
    ray: str | None,
    progress: bool,
) -> Any:
    """Plan a study from what was given, or go on with one, and run it."""
    from kmcl.reports.study_figures import run_drawn_study
    from kmcl.runs.resolution import Given, read_given
    from kmcl.studies.plan import default_folder
    from kmcl.studies.study import described_plan, plan_study, repeated_values, resumed_plan

    console, folder = _console(progress), _given_path(output)
    own, given = ({k: v for k, v in each.items() if v is not None} for each in (own, settings))
    if resume is not None:
        if own or given or any(x is not None for x in (data, output, config, options, seeds)):
            raise InputError(
                "--resume continues a study with the settings it was started with; give nothing else"
            )
        folder = Path(resume)
        plan = resumed_plan(kind, folder)
    else:
        _check_study_data(data, output)
        spec, reader_options = (None, options) if data is None else _data_settings(data, options)
        flags = {**given, **({"data_options": dict(reader_options)} if reader_options else {})}
        file = _given_path(config)
        repeated = None if file is None else described_plan(kind, file, preset)
        if repeated is None:
            base = read_given(spec, preset, file, flags)
        else:
            base = Given(repeated_values(repeated, flags | ({} if spec is None else {"data": spec})))
        if folder is not None:
            base = _with_table(base, data, options, folder)
        values = {**base.options, **base.values}
        plan = plan_study(kind, values, own, given=given, seeds=seeds, repeated=repeated)
        folder = folder or default_folder(plan)
    console.print(f"study folder: {folder}", soft_wrap=True, highlight=False)
    return run_drawn_study(plan, folder, jobs=jobs, ray=ray, console=console)


def _check_study_data(data: Any, output: str | Path | None) -> None:
    from kmcl.data import Dataset

    if _is_frame(data) and output is None:
        raise InputError("output must be given where the data are a DataFrame")
    if isinstance(data, Dataset):
        raise InputError(
            "a study trains in processes of their own, which cannot share a Dataset in memory; give a "
            "dataset spec or a DataFrame"
        )


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def _paths(runs: str | Path | Run | Sequence[str | Path | Run]) -> list[Path]:
    return [_path(run) for run in ([runs] if isinstance(runs, str | Path | Run) else runs)]


def _given_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


@contextmanager
def _writing(dataset: Dataset, progress: bool) -> Iterator[Callable[[int], object]]:
    """A progress bar; what it gives is called with the number of images that were written."""
    from kmcl.progress import counting_bar

    with counting_bar(_errors(progress), "writing") as bar:
        task = bar.add_task("writing", total=sum(len(split) for split in dataset.splits.values()))
        yield lambda count: bar.advance(task, count)


def _texts(paths: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]


def _read_given(
    data: Any,
    preset: str,
    config: str | Path | None,
    options: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> Given:
    from kmcl.runs.resolution import read_given

    spec, reader_options = (None, dict(options or {})) if data is None else _data_settings(data, options)
    flags = {**settings, "data_options": reader_options or None}
    return read_given(spec, preset, None if config is None else Path(config), flags)


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
    return replace(given, values={**given.values, "data": f"table:{table}"})


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


def _errors(progress: bool) -> Any:
    from kmcl.progress import error_console

    return error_console(progress)
