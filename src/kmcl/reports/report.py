"""`kmcl report`: everything about one or several runs as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from kmcl.data.label_correlations import correlations
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
from kmcl.reports.progress import SHARES, OnProgress, SectionProgress
from kmcl.reports.run_parts import RunParts, read_runs, refuse_vectors
from kmcl.reports.saliency_section import Choice, saliency_section
from kmcl.reports.scores import scores_section
from kmcl.reports.training import training_section
from kmcl.reports.uncertainty import uncertainty_section
from kmcl.training.resolution import flat_values

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
    progress = SectionProgress(_section_names(len(runs), settings), on_progress)
    progress.start("metrics")
    measured = []
    for place, run in enumerate(runs):
        progress.advance(place / len(runs))
        run.read_everything_small()
        if (found := measure(run)) is not None:
            measured.append(found)
    sections = []
    for name, make in _sections(runs, measured, settings, progress.advance):
        progress.start(name)
        sections.append(make())
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


def _section_names(num_runs: int, settings: ReportSettings) -> list[str]:
    """The steps of a report that finds all parts of its runs."""
    left_out = set() if num_runs > 1 else {"comparison"}
    if settings.saliency == "none" and not settings.images:
        left_out.add("saliency")
    return [name for name in SHARES if name not in left_out]


def _sections(
    runs: Sequence[RunParts],
    measured: Sequence[Measured],
    settings: ReportSettings,
    advance: Callable[[float], object],
) -> list[tuple[str, Callable[[], Section]]]:
    """The sections in page order, built one by one."""
    groups = _groups(measured, settings.groups)
    seed = settings.seed
    sections: list[tuple[str, Callable[[], Section]]] = []
    if len(measured) > 1:
        sections.append(("comparison", lambda: comparison_section(measured)))
    sections += [
        ("training", lambda: training_section(runs)),
        ("scores", lambda: scores_section(runs, measured)),
        ("labels", lambda: labels_section(measured, groups, seed)),
        ("features", lambda: features_section(measured, groups, seed, advance)),
    ]
    shows_images = not any(run.takes_vectors for run in runs)
    if shows_images and (settings.saliency != "none" or settings.images):
        choice, count = settings.saliency, settings.num_images
        sections.append(("saliency", lambda: saliency_section(runs, settings.images, choice, count, seed)))
    num_masked = 0 if settings.saliency == "none" else settings.num_masked
    return [
        *sections,
        ("leaning", lambda: leaning_section(measured, num_masked, seed, advance)),
        ("uncertainty", lambda: uncertainty_section(measured, seed, advance)),
        ("examples", lambda: examples_section(measured, advance)),
        ("settings", lambda: settings_section(runs)),
    ]


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
        "95 % interval": f"{percent(one.interval.low)}–{percent(one.interval.high)}",
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
