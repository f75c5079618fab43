"""`kmcl report`: everything about one or several runs as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from kmcl.data.cooccurrence import correlations
from kmcl.errors import InputError
from kmcl.reports.blocks import Cell, Missing, Section, Table, Text, percent
from kmcl.reports.comparison import comparison_section
from kmcl.reports.examples import examples_section
from kmcl.reports.features import features_section
from kmcl.reports.label_groups import LabelGroups, cluster_labels, read_groups
from kmcl.reports.labels import labels_section
from kmcl.reports.leaning import leaning_section
from kmcl.reports.measured import Measured, measure
from kmcl.reports.page import write_page
from kmcl.reports.progress import OnProgress, SectionProgress
from kmcl.reports.run_parts import RunParts, read_runs, refuse_vectors
from kmcl.reports.saliency_section import Choice, saliency_section
from kmcl.reports.scores import scores_section
from kmcl.reports.training import training_section
from kmcl.reports.uncertainty import uncertainty_section
from kmcl.runs.resolution import flat_values

FILE_NAME = "report.html"
EXPLANATION_FILE_NAME = "explanation.html"


@dataclass(frozen=True)
class ReportSettings:
    """Settings of a report.

    groups:     file of label groups; None: found by clustering
    images:     images to explain first
    saliency:   which images of the reported split are explained; "disagreement" needs two runs
    num_images: how many of them
    num_masked: images on which a label's co-occurring label is covered; none where `saliency` is "none"
    seed:       of everything drawn at random
    """

    groups: Path | None = None
    images: tuple[Path, ...] = ()
    saliency: Choice = "random"
    num_images: int = 6
    seed: int = 0
    num_masked: int = 24

    def __post_init__(self) -> None:
        if self.saliency not in get_args(Choice):
            raise InputError(f"saliency must be one of {', '.join(get_args(Choice))}; got {self.saliency!r}")
        if self.num_images < 0:
            raise InputError(f"num_images must be at least 0; got {self.num_images}")
        if self.num_masked < 0:
            raise InputError(f"num_masked must be at least 0; got {self.num_masked}")


@dataclass(frozen=True)
class Contents:
    """What sections are made of.

    measured: the runs that have predictions
    groups:   of the labels; None without predictions
    advance:  to be called with the share of the section that is done, where it takes seconds
    """

    runs: Sequence[RunParts]
    measured: Sequence[Measured]
    groups: LabelGroups | None
    settings: ReportSettings
    advance: Callable[[float], object]


@dataclass(frozen=True)
class ReportPart:
    """A section of the report.

    name:    shown while it is made
    share:   how long it takes, relative to the others, on small runs of photographs
    is_made: whether a report of these runs has it
    """

    name: str
    make: Callable[[Contents], Section]
    share: float = 1
    is_made: Callable[[Sequence[RunParts], ReportSettings], bool] = lambda runs, settings: True


def _are_several_measured(runs: Sequence[RunParts], settings: ReportSettings) -> bool:
    return sum(run.predictions is not None for run in runs) > 1


def _are_images_explained(runs: Sequence[RunParts], settings: ReportSettings) -> bool:
    return (settings.saliency != "none" or bool(settings.images)) and not any(r.takes_vectors for r in runs)


def _saliency(of: Contents) -> Section:
    given = of.settings
    return saliency_section(of.runs, given.images, given.saliency, given.num_images, given.seed)


def _leaning(of: Contents) -> Section:
    num_masked = 0 if of.settings.saliency == "none" else of.settings.num_masked
    return leaning_section(of.measured, num_masked, of.settings.seed, of.advance)


SECTIONS = [
    ReportPart("comparison", lambda of: comparison_section(of.measured), 6, _are_several_measured),
    ReportPart("training", lambda of: training_section(of.runs), 4),
    ReportPart("scores", lambda of: scores_section(of.runs, of.measured), 5),
    ReportPart("labels", lambda of: labels_section(of.measured, of.groups, of.settings.seed), 6),
    ReportPart(
        "features", lambda of: features_section(of.measured, of.groups, of.settings.seed, of.advance), 15
    ),
    ReportPart("saliency", _saliency, 10, _are_images_explained),
    ReportPart("leaning", _leaning, 25),
    ReportPart("uncertainty", lambda of: uncertainty_section(of.measured, of.settings.seed, of.advance), 25),
    ReportPart("examples", lambda of: examples_section(of.measured, of.advance), 10),
    ReportPart("settings", lambda of: settings_section(of.runs)),
]
"""After the summary, in page order."""

METRICS_SHARE, PAGE_SHARE = 4, 14
"""How long measuring the runs and writing the page take, on the scale of the sections."""


def write_report(
    paths: Sequence[Path],
    folder: Path,
    settings: ReportSettings | None = None,
    on_progress: OnProgress | None = None,
) -> Path:
    """Write the report of one run or several into a folder; returns the page's path."""
    settings = settings or ReportSettings()
    if settings.saliency == "disagreement" and len(paths) < 2:
        raise InputError("saliency of disagreements needs two runs; got one")
    runs = read_runs(paths)
    for run in runs:
        run.read_everything_small()
    made = [part for part in SECTIONS if part.is_made(runs, settings)]
    shares = {"metrics": METRICS_SHARE, **{part.name: part.share for part in made}, "page": PAGE_SHARE}
    progress = SectionProgress(shares, on_progress)
    progress.start("metrics")
    measured = []
    for place, run in enumerate(runs):
        progress.advance(place / len(runs))
        if (found := measure(run)) is not None:
            measured.append(found)
    contents = Contents(runs, measured, _groups(measured, settings.groups), settings, progress.advance)
    sections = []
    for part in made:
        progress.start(part.name)
        sections.append(part.make(contents))
    title = " and ".join(run.name for run in runs) if len(runs) <= 3 else f"{len(runs)} runs"
    sections.insert(0, summary_section(runs, measured))
    progress.start("page")
    return write_page(folder, FILE_NAME, f"Report of {title}", _subtitle(runs), sections)


def write_explanation(
    paths: Sequence[Path],
    images: Sequence[Path],
    folder: Path,
    labels: Sequence[str] = (),
    *,
    full_size: bool = False,
) -> Path:
    """Write the saliency of images by one run or several; returns the page's path.

    full_size: show the images at their original resolution instead of a shorter side of 448 pixels
    """
    runs = read_runs(paths)
    refuse_vectors(runs, "an explanation")
    section = saliency_section(runs, images, "none", 0, 0, labels, full_size)
    problems = [problem for run in runs for problem in run.problems if run.classifier is None]
    if problems:
        raise InputError(problems[0])
    title = f"Saliency of {len(images)} image{'s' if len(images) > 1 else ''}"
    subtitle = f"By {', '.join(run.name for run in runs)}."
    return write_page(folder, EXPLANATION_FILE_NAME, title, subtitle, [section])


def _groups(measured: Sequence[Measured], file: Path | None) -> LabelGroups | None:
    if not measured:
        return None
    predictions = measured[0].predictions
    if file is not None:
        return read_groups(file, predictions.labels)
    return cluster_labels(predictions.labels, correlations(predictions.targets))


def summary_section(runs: Sequence[RunParts], measured: Sequence[Measured]) -> Section:
    """The runs in one table, and their missing parts. Built last, when all parts have been read."""
    section = Section("Summary")
    of_run = {one.name: one for one in measured}
    columns = [_summary(run, of_run.get(run.name)) for run in runs]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    section.add(Table.of("The runs", ("", *(run.name for run in runs)), rows))
    problems = list(dict.fromkeys(problem for run in runs for problem in run.problems))
    section.add(*(Missing(problem) for problem in problems))
    if not problems:
        section.add(Text("Every part of the runs was found and could be read."))
    return section


def _summary(run: RunParts, one: Measured | None) -> dict[str, Cell]:
    settings = {} if run.settings is None else flat_values(run.settings)
    values: dict[str, Cell] = {
        **{name: settings.get(name) for name in ("data", "method", "encoder", "posthoc")},
        "epochs": None if run.epochs is None else len(run.epochs["epoch"]),
    }
    if one is None:
        return values | dict.fromkeys(("images", "labels", "mAP %", "95 % interval"))
    return values | {
        "images": f"{len(one.predictions)} of {one.split}",
        "labels": one.predictions.num_labels,
        "mAP %": percent(one.evaluation.mean_average_precision, 2),
        "95 % interval": one.interval_in_words(),
    }


def settings_section(runs: Sequence[RunParts]) -> Section:
    """The settings of the runs in one table, and the versions they were trained with."""
    section = Section("Settings")
    known = {run.name: flat_values(run.settings) for run in runs if run.settings is not None}
    names = list(dict.fromkeys(name for values in known.values() for name in values))
    if known:
        rows = [(name, *(str(values.get(name, "")) for values in known.values())) for name in names]
        if len(known) > 1:
            rows.sort(key=lambda row: len(set(row[1:])) == 1)
            caption = "Settings, those that differ first"
        else:
            caption = "Settings"
        section.add(Table.of(caption, ("setting", *known), rows, open=False))
    else:
        section.add(Missing("No run has readable settings."))
    for run in runs:
        if run.environment is not None:
            packages = run.environment.get("packages")
            versions = packages.items() if isinstance(packages, dict) else ()
            rows = [("python", str(run.environment.get("python"))), *((k, str(v)) for k, v in versions)]
            section.add(Table.of(f"Versions, {run.name}", ("package", "version"), rows, open=False))
    return section


def _subtitle(runs: Sequence[RunParts]) -> str:
    data = dict.fromkeys(run.settings.data.spec for run in runs if run.settings is not None)
    return f"Data: {', '.join(data)}." if data else "The runs' settings cannot be read."
