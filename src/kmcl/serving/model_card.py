"""The card of a model: architecture, training data, metrics, labels and limits.

Written from the files of the run. Paths of the machine that trained it are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kmcl.data.normalisation import IDENTITY
from kmcl.errors import InputError
from kmcl.evaluation.figures import FIGURES, HEADLINES
from kmcl.models.folder import ModelDescription
from kmcl.options.methods import KmclOptions
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings

METADATA = """---
library_name: kmcl
pipeline_tag: image-classification
tags:
- kmcl
- multi-label
- timm
---
"""
VECTOR_METADATA = METADATA.replace("pipeline_tag: image-classification\n", "").replace("- timm\n", "")
"""Of a model of feature vectors."""


def write_model_card(description: ModelDescription, source: Path | None = None) -> str:
    """The card in Markdown; `source` is the run or model folder the model came from, if any."""
    run = _find_run(source)
    settings = metrics = None
    if run is not None:
        settings = run.read_settings()
        if run.metrics_file.is_file():
            metrics = run.read_metrics()
    kind, metadata = "Multi-label image classifier", METADATA
    if description.encoder == IDENTITY:
        kind, metadata = "Multi-label classifier of feature vectors", VECTOR_METADATA
    parts = [
        metadata,
        f"# {kind} with {len(description.labels)} labels\n",
        _what_it_is(description),
        _use(description),
        _data(settings, metrics),
        _metrics(metrics),
        _labels(description, metrics),
        _limits(description, metrics),
    ]
    return "\n".join(part for part in parts if part)


def _find_run(source: Path | None) -> RunFolder | None:
    for folder in (source, source.parent if source is not None else None):
        if folder is not None and (run := RunFolder(folder)).is_begun:
            try:
                run.read_settings()
            except InputError:
                continue  # a settings.yaml of another program
            return run
    return None


def _what_it_is(description: ModelDescription) -> str:
    kernels = (
        f" with {description.method.kernel} kernels, which gives each label a standard deviation (sigma)"
        if isinstance(description.method, KmclOptions) and description.method.has_kernels
        else ""
    )
    size = "the encoder's own size" if description.image_size is None else f"{description.image_size} px"
    calibrated = "calibrated on val" if description.rules.is_calibrated else "not calibrated"
    what = f"Encoder `{description.encoder}` (timm) on square images of {size}"
    if description.encoder == IDENTITY:
        what = f"Takes feature vectors of {description.in_channels} numbers, not images"
    return f"{what}; method `{description.method.name}`{kernels}. Probabilities are {calibrated}.\n"


def _use(description: ModelDescription) -> str:
    sample = '"photograph.jpg"' if description.encoder != IDENTITY else "vector"
    return (
        '## Use\n\n```python\nimport kmcl\n\nmodel = kmcl.load("OWNER/NAME")  # or this folder\n'
        f"for label in model.predict({sample})[0].present:\n"
        "    print(label.label, label.probability, label.low, label.high)\n```\n"
    )


def _data(settings: TrainingSettings | None, metrics: dict[str, Any] | None) -> str:
    if settings is None:
        return "## Training data\n\nNot recorded in the model.\n"
    kind, _, place = settings.data.spec.partition(":")
    name = f"`{kind}`" + (f" (`{Path(place).name}`)" if kind == "table" and place else "")
    options = {k: v for k, v in settings.data.options.items() if not isinstance(v, str) or "/" not in v}
    lines = [f"## Training data\n\nDataset {name}, options {json.dumps(options)}."]
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    if measured:
        lines.append(f"{measured['evaluation']['num_images']} held-out images were used for the metrics.")
    lines.append(
        f"{settings.optimisation.epochs} epochs at most, batches of {settings.optimisation.batch_size}, "
        f"augmentation `{settings.data.augmentation}`, seed {settings.optimisation.seed}.\n"
    )
    return " ".join(lines)


def _metrics(metrics: dict[str, Any] | None) -> str:
    shown = [figure for figure in FIGURES if figure.title in HEADLINES]
    rows = []
    for split in ("test", "val"):
        measured = (metrics or {}).get(split)
        if measured is None:
            continue
        if not measured.get("evaluation_own_thresholds"):
            measured = measured | {"evaluation_own_thresholds": measured["evaluation"]}
        if not measured.get("calibration_temperature_and_bias"):
            measured = measured | {"calibration_temperature_and_bias": measured["calibration_raw"]}
        interval = measured["map_interval"]
        cells = [_percent(figure.of(measured)) for figure in shown]
        cells[0] += f" ({_percent(interval['low'])} to {_percent(interval['high'])})"
        rows.append(f"| {split} | {measured['evaluation']['num_images']} | {' | '.join(cells)} |")
    if not rows:
        return "## Metrics\n\nNone recorded in the model.\n"
    titles = [figure.title.partition(",")[0] for figure in shown]
    return (
        "## Metrics\n\nIn %, CF1 and OF1 at each label's own threshold (chosen on val); the interval is the "
        "95 % bootstrap's.\n\n"
        f"| split | images | {' | '.join(titles)} |\n{'|---' * (len(titles) + 2)}|\n" + "\n".join(rows) + "\n"
    )


def _labels(description: ModelDescription, metrics: dict[str, Any] | None) -> str:
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    by_label = {row["label"]: row for row in measured["evaluation"]["labels"]} if measured else {}
    lines = [
        "## Labels\n",
        "| label | threshold (a probability) | average precision | positives measured |",
        "|---|---|---|---|",
    ]
    for label, threshold in zip(description.labels, description.rules.probability_thresholds, strict=True):
        row = by_label.get(label, {})
        escaped = label.replace("|", "\\|").replace("\n", " ")
        precision, positives = row.get("average_precision"), row.get("num_positives", "-")
        lines.append(f"| {escaped} | {threshold:.3f} | {_percent(precision)} | {positives} |")
    return "\n".join(lines) + "\n"


def _limits(description: ModelDescription, metrics: dict[str, Any] | None) -> str:
    limits = [
        "It scores the labels above only; an image without any of them gets scores too.",
        "The metrics hold for images like the held-out ones; for others, refit thresholds and calibration.",
        "Images are resized to a square without keeping the aspect ratio; small objects may get lost.",
    ]
    if description.encoder == IDENTITY:
        limits[2] = "Vectors must come from the encoder that those of the training data came from."
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    if measured:
        rare = [row["label"] for row in measured["evaluation"]["labels"] if row["num_positives"] < 10]
        if rare:
            limits.append(f"Measured on fewer than 10 positive images, hence unreliably: {', '.join(rare)}.")
    else:
        limits.append("No metrics were recorded for this model.")
    if description.rules.guarantee is not None:
        limits.append(description.rules.guarantee.in_words(description.labels))
    if isinstance(description.method, KmclOptions):
        limits.append("Sigma is the width of a label's kernel, not the probability of an error.")
    return "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"
