"""The card of a model: what it is, what it was trained on, how well it does, and what it is not for.

Written from the run's own files, so that no figure is typed by hand. Names of places on the machine of the
training stay out of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kmcl.errors import InputError
from kmcl.methods.model_folder import ModelDescription
from kmcl.training.run_folder import RunFolder
from kmcl.training.settings import TrainingSettings

METADATA = """---
library_name: kmcl
pipeline_tag: image-classification
tags:
- kmcl
- multi-label
- timm
---
"""


def write_model_card(description: ModelDescription, source: Path | None = None) -> str:
    """The card in Markdown; `source` is the run or model folder the model came from, if any."""
    run = _find_run(source)
    settings = metrics = None
    if run is not None:
        settings = run.read_settings()
        if run.metrics_file.is_file():
            metrics = run.read_metrics()
    parts = [
        METADATA,
        f"# Multi-label image classifier with {len(description.labels)} labels\n",
        _what_it_is(description),
        _use(),
        _data(settings, metrics),
        _figures(metrics),
        _labels(description, metrics),
        _limits(description, metrics),
    ]
    return "\n".join(part for part in parts if part)


def _find_run(source: Path | None) -> RunFolder | None:
    for folder in (source, source.parent if source is not None else None):
        if folder is not None and (run := RunFolder(folder)).settings_file.is_file():
            try:
                run.read_settings()
            except InputError:
                continue  # a settings.yaml of something else, beside the model by chance
            return run
    return None


def _what_it_is(description: ModelDescription) -> str:
    kernels = (
        f" with {description.options.kernel} kernels, which gives each label a standard deviation (sigma)"
        if description.method == "kmcl"
        else ""
    )
    size = "the encoder's own size" if description.image_size is None else f"{description.image_size} px"
    calibrated = "calibrated on val" if description.temperatures is not None else "not calibrated"
    return (
        f"Encoder `{description.encoder}` (timm) on square images of {size}; method "
        f"`{description.method}`{kernels}. Probabilities are {calibrated}.\n"
    )


def _use() -> str:
    return (
        '## Use\n\n```python\nimport kmcl\n\nmodel = kmcl.load("OWNER/NAME")  # or this folder\n'
        'for label in model.predict("photograph.jpg")[0].present:\n'
        "    print(label.label, label.probability, label.sigma)\n```\n"
    )


def _data(settings: TrainingSettings | None, metrics: dict[str, Any] | None) -> str:
    if settings is None:
        return "## Training data\n\nNot recorded in the model.\n"
    kind, _, place = settings.data.partition(":")
    name = f"`{kind}`" + (f" (`{Path(place).name}`)" if kind == "table" and place else "")
    options = {k: v for k, v in settings.data_options.items() if not isinstance(v, str) or "/" not in v}
    lines = [f"## Training data\n\nDataset {name}, options {json.dumps(options)}."]
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    if measured:
        lines.append(f"{measured['evaluation']['num_images']} images were held back to measure with.")
    lines.append(
        f"{settings.epochs} epochs at most, batches of {settings.batch_size}, augmentation "
        f"`{settings.augmentation}`, seed {settings.seed}.\n"
    )
    return " ".join(lines)


def _figures(metrics: dict[str, Any] | None) -> str:
    rows = []
    for split in ("test", "val"):
        measured = (metrics or {}).get(split)
        if measured is None:
            continue
        own = measured.get("evaluation_own_thresholds") or measured["evaluation"]
        interval, at_threshold = measured["map_interval"], own["at_threshold"]
        calibrated = measured.get("calibration_temperature_and_bias") or measured["calibration_raw"]
        rows.append(
            f"| {split} | {own['num_images']} | {_percent(interval['estimate'])} "
            f"({_percent(interval['low'])} to {_percent(interval['high'])}) "
            f"| {_percent(at_threshold['CF1'])} | {_percent(at_threshold['OF1'])} "
            f"| {_percent(calibrated['mean_label_error'])} |"
        )
    if not rows:
        return "## Figures\n\nNone recorded in the model.\n"
    return (
        "## Figures\n\nIn %, CF1 and OF1 at each label's own threshold (chosen on val); the interval is the "
        "95 % bootstrap's.\n\n"
        "| split | images | mAP | CF1 | OF1 | calibration error |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _labels(description: ModelDescription, metrics: dict[str, Any] | None) -> str:
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    by_label = {row["label"]: row for row in measured["evaluation"]["labels"]} if measured else {}
    thresholds = description.thresholds or (0.5,) * len(description.labels)
    lines = [
        "## Labels\n",
        "| label | threshold | average precision | positives measured |",
        "|---|---|---|---|",
    ]
    for label, threshold in zip(description.labels, thresholds, strict=True):
        row = by_label.get(label, {})
        escaped = label.replace("|", "\\|").replace("\n", " ")
        precision, positives = row.get("average_precision"), row.get("num_positives", "-")
        lines.append(f"| {escaped} | {threshold:.3f} | {_percent(precision)} | {positives} |")
    return "\n".join(lines) + "\n"


def _limits(description: ModelDescription, metrics: dict[str, Any] | None) -> str:
    limits = [
        "It knows the labels above and nothing else: an image without any of them still gets scores.",
        "Figures hold for images like those held back; on others, choose thresholds and calibration anew.",
        "Images are resized to a square, whatever their proportions; small things may vanish.",
    ]
    measured = (metrics or {}).get("test") or (metrics or {}).get("val")
    if measured:
        rare = [row["label"] for row in measured["evaluation"]["labels"] if row["num_positives"] < 10]
        if rare:
            limits.append(f"Measured on fewer than 10 positive images, hence hardly: {', '.join(rare)}.")
    else:
        limits.append("Nothing was measured with this model where it was saved.")
    if description.method == "kmcl":
        limits.append("Sigma is the width of a label's kernel, not the probability of an error.")
    return "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
