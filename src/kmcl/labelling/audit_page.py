"""The page of an audit: each finding with its pictures and reasons, decided by keys; one HTML file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from string import Template
from typing import Any

from rich.console import Console

from kmcl.data import open_dataset
from kmcl.data.dataset import ImageStore, Split
from kmcl.data.selection import join_splits
from kmcl.data.table_writing import table_cells
from kmcl.data.vectors import feature_dim, feature_dim_of
from kmcl.errors import InputError
from kmcl.labelling.audit import Audit, Finding, audit_dataset, percent
from kmcl.labelling.findings_table import COLUMNS, finding_cells, findings_to_csv, source_file
from kmcl.labelling.image_features import FeatureExtractor, pretrained_extractor, vector_extractor
from kmcl.progress import error_console, say
from kmcl.reports.figure_files import data_uri
from kmcl.reports.html_document import html_document
from kmcl.reports.thumbnails import encode, short_name
from kmcl.serving.loading import load_in_torch
from kmcl.storage.atomic import write_text

PICTURE_SIDE, NEIGHBOUR_SIDE = 272, 104
HEADINGS = {"wrong": "given, but likely absent", "missing": "likely present, but not given"}

BODY = Template("""<header><h1>$title</h1>$introduction</header>
<main>
<div class="bar" role="toolbar" aria-label="Decisions"><output id="progress"></output>
<span><kbd>j</kbd> <kbd>k</kbd> next, previous · <kbd>a</kbd> accept · <kbd>r</kbd> reject
· <kbd>u</kbd> undo</span>
<button id="save-decisions">Save decisions.csv</button>
<button id="save-table">Save corrected.csv</button></div>
$sections
</main>
<footer><p>$footer</p></footer>
<script type="application/json" id="data">$data</script>""")


def audit_page(
    audit: Audit, title: str, everything: Split, table: Sequence[Sequence[str | int]] | None, advice: str
) -> str:
    """The page's HTML.

    everything: all images of the dataset, as the findings count them
    table:      header and rows of the dataset as a table, from which the page makes the corrected one
    advice:     a sentence about what to do with the files that the page saves
    """
    script = (files("kmcl.labelling") / "page" / "audit.js").read_text(encoding="utf-8")
    body = BODY.substitute(
        title=escape(title),
        introduction="".join(f"<p>{escape(sentence)}</p>" for sentence in _introduction(audit)),
        sections="\n".join(_sections(audit, everything)),
        footer=escape(advice),
        data=_data(audit, everything, table),
    )
    return html_document(title, body, page_css(), script)


def page_css() -> str:
    """The style of cards and bars, in addition to that of reports."""
    return (files("kmcl.labelling") / "page" / "labelling.css").read_text(encoding="utf-8").replace("\n", "")


def _introduction(audit: Audit) -> list[str]:
    count = f"{audit.num_images} {audit.noun}s, {len(audit.labels)} labels."
    compared = ", as that of an image and a compressed and scaled copy" if audit.noun == "image" else ""
    copies = (
        f"{audit.num_duplicates} pairs of {audit.noun}s are nearly identical (similarity of features of at "
        f"least {audit.copy_similarity:.3f}{compared})."
    )
    sentences = [count, copies]
    if audit.unreadable:
        sentences.append(f"{len(audit.unreadable)} images cannot be read and were left out.")
    return sentences


def _sections(audit: Audit, everything: Split) -> list[str]:
    parts = {
        "Likely missing labels": [one for one in audit.findings if one.kind == "missing"],
        "Likely wrong labels": [one for one in audit.findings if one.kind == "wrong"],
        "Near-duplicates with different labels": [f for f in audit.findings if f.kind == "near-duplicate"],
    }
    found = []
    for title, findings in parts.items():
        cards = "\n".join(_card(audit, everything, finding) for finding in findings) or "<p>None.</p>"
        found.append(f"<section><h2>{title}</h2>\n{cards}\n</section>")
    return found


def _card(audit: Audit, everything: Split, finding: Finding) -> str:
    label = audit.labels[finding.label]
    heading = HEADINGS["wrong" if finding.given else "missing"]
    given = [audit.labels[k] for k, value in enumerate(everything.targets[finding.row]) if value == 1]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in finding.reasons)
    picture = _picture(everything.images, finding.row, PICTURE_SIDE)
    neighbours = "".join(
        f"<figure>{_picture(everything.images, row, NEIGHBOUR_SIDE)}</figure>" for row in finding.neighbours
    )
    is_copy = finding.kind == "near-duplicate"
    without = "without" if finding.given else "with"
    caption = f"The other {audit.noun}" if is_copy else f"Similar {audit.noun}s {without} it"
    shown = f'<p>{caption}</p><div class="thumbnails">{neighbours}</div>' if neighbours else ""
    action = "Remove" if finding.given else "Add"
    return (
        f'<article class="finding"><div class="picture">{picture}</div><div>'
        f"<h3>{escape(label)}: {heading}, {percent(finding.probability)}</h3>"
        f"<ul>{reasons}</ul><p>Given: {escape(', '.join(given) or 'no label')} · "
        f"{escape(everything.images.name(finding.row))}</p>"
        f'<div class="buttons"><button value="accept">{action} {escape(label)}</button>'
        f'<button value="reject">Keep as it is</button></div>{shown}</div></article>'
    )


def _picture(images: ImageStore, row: int, side: int) -> str:
    """An image, or the name of a feature vector."""
    if feature_dim_of(images) is not None:
        return f"<span>{escape(images.name(row))}</span>"
    try:
        jpeg = encode(images.load(row, side), side, quality=75)
    except InputError:
        return '<span class="unreadable">no image</span>'
    name = escape(short_name(images.name(row)))
    return f'<img src="{data_uri(jpeg, "image/jpeg")}" alt="{name}">'


def _data(audit: Audit, everything: Split, table: Sequence[Sequence[str | int]] | None) -> str:
    """What the script needs, as JSON that can stand inside HTML."""
    rows_of_image = defaultdict(list)
    for row in range(len(everything)):
        rows_of_image[everything.images.name(row)].append(row)
    first_column = 0 if table is None else len(table[0]) - len(audit.labels)
    findings = [
        {
            "cells": finding_cells(audit, everything, finding),
            "rows": rows_of_image[everything.images.name(finding.row)],
            "column": first_column + finding.label,
            "suggested": finding.suggested,
        }
        for finding in audit.findings
    ]
    content = json.dumps({"columns": COLUMNS, "findings": findings, "table": table})
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return json.dumps({"digest": digest, **json.loads(content)}).replace("<", "\\u003c")


@dataclass(frozen=True)
class WrittenAudit:
    """An audit and its page.

    everything: all images of the dataset, as the findings count them
    """

    audit: Audit
    everything: Split
    page: Path

    def in_words(self, finding: Finding) -> str:
        """A finding in one line."""
        name = self.everything.images.name(finding.row)
        return f"{percent(finding.probability)}  {name}: {finding.reasons[0]}"


def audit(
    data: str | PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    run: str | PathLike[str] | None = None,
    count: int = 200,
    output: str | PathLike[str] = "audit",
    seed: int = 0,
    progress: bool = True,
) -> WrittenAudit:
    """Find labels that are likely wrong or missing; writes a page to decide about them, and a table.

    run:   whose encoder compares the images; a pretrained one if not given
    count: findings, and as many near-duplicates at most
    """
    dataset = open_dataset(data, **(options or {}))
    everything = join_splits(dataset)
    width = feature_dim(dataset)
    console, folder = error_console(progress), Path(output)
    extractor = _extractor(None if run is None else Path(run), console, width)
    result = audit_dataset(dataset, extractor, count, seed, on_step=console.print)
    source = source_file(fspath(data))
    in_files = width is None and Path(everything.images.name(0)).is_file()
    try:
        table = list(table_cells(dataset, None if source is None else source.parent)) if in_files else None
    except InputError as error:  # the decisions can be saved nevertheless
        say(console, f"The page has no corrected table: {error}")
        table = None
    advice = "" if source is None else f"corrected.csv belongs beside {source.name}: its paths start there. "
    written = "corrected.csv" if width is None else "corrected.npz"
    command = f"kmcl data correct {fspath(data)} decisions.csv --output {written}"
    footer = (
        f"{advice}The command {command} makes the same table from decisions.csv."
        if width is None
        else f"The command {command} applies decisions.csv."
    )
    page = audit_page(result, f"Labels of {dataset.name}", everything, table, footer)
    path = folder / "audit.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "findings.csv", findings_to_csv(result, everything))
        write_text(path, page)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return WrittenAudit(result, everything, path)


def _extractor(run: Path | None, console: Console, feature_dim: int | None) -> FeatureExtractor:
    if feature_dim is not None:
        return vector_extractor(console, feature_dim)  # an encoder would see nothing else
    if run is None:
        return pretrained_extractor(console)
    return FeatureExtractor(load_in_torch(run).classifier, console)
