"""The section on uncertainty: sigma of each label, its response to corruption, extreme and unfamiliar
images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from kmcl.data.augmentation import resize
from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Gallery, Heading, Missing, Picture, Section, Table, Text, slug
from kmcl.reports.corruption import CorruptionCurve, corruption_curves
from kmcl.reports.drawing import (
    COLOURS,
    FULL_WIDTH,
    HALF_WIDTH,
    dot_look,
    figure_style,
    legend_below,
    line_look,
    new_axes,
    shorten,
)
from kmcl.reports.measured import Measured
from kmcl.reports.run_parts import RunParts
from kmcl.reports.thumbnails import image_thumbnail, short_name
from kmcl.reports.unfamiliar_images import unfamiliar_blocks

CORRUPTED_IMAGES = 16
"""Each is scored with every corruption at every strength: most of the time of a report on photographs."""

SHOWN_IMAGES = 8
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def uncertainty_section(
    measured: Sequence[Measured], seed: int, advance: Callable[[float], object]
) -> Section:
    """advance: called with the share of the section that is done."""
    section = Section("Uncertainty")
    if not measured:
        section.add(Missing("No run has predictions."))
    for place, one in enumerate(measured):
        ending = f"-{slug(one.name)}" if len(measured) > 1 else ""
        if ending:
            section.add(Heading(one.name))
        sigma = one.predictions.sigma
        if sigma is None:
            section.add(Text(f"{one.name} has no kernels, hence no sigma; entropy is shown instead."))
        with figure_style():
            if sigma is not None:
                section.add(sigma_picture(one, sigma.astype(np.float64), ending))
            curves = _corrupted(one.run, seed, _part_of(advance, place, len(measured)))
            if curves is not None:
                section.add(corruption_picture(one, curves, ending))
            elif not one.run.takes_vectors:
                section.add(Missing(f"{one.name}: blur, noise and occlusion need the model and its images."))
        section.add(extremes_gallery(one), *unfamiliar_blocks(one))
    return section


def sigma_picture(one: Measured, sigma: Values, ending: str) -> Picture:
    """The distribution of each label's sigma, in images with the label and without."""
    predictions = one.predictions
    labels = predictions.labels
    order = np.argsort(np.median(sigma, axis=0), kind="stable")
    wide = len(labels) > 30
    figure, axes = new_axes(
        FULL_WIDTH if wide else HALF_WIDTH, 1.4 + (0.17 if wide else 0.24) * max(len(labels), 8)
    )
    rows = []
    for index, (name, mask) in enumerate(
        (("has it", predictions.positive), ("lacks it", predictions.negative))
    ):
        shift = 0.17 if index == 0 else -0.17
        quantiles = np.array(
            [
                np.quantile(sigma[mask[:, label], label], SHARES)
                if mask[:, label].any()
                else np.full(len(SHARES), np.nan)
                for label in range(len(labels))
            ]
        )[order]
        places = np.arange(len(labels)) + shift
        colour = COLOURS[index]
        axes.hlines(places, quantiles[:, 0], quantiles[:, 4], color=colour, linewidth=1)
        axes.hlines(places, quantiles[:, 1], quantiles[:, 3], color=colour, linewidth=3)
        axes.plot(quantiles[:, 2], places, linestyle="", label=f"image {name}", **dot_look(index))
        rows += [(labels[k], name, *map(float, q)) for k, q in zip(order, quantiles, strict=True)]
    names = shorten(labels)
    axes.set_yticks(np.arange(len(labels)), [names[label] for label in order], fontsize=7.5)
    axes.set(xlabel="sigma", title="Sigma per label" + (f", {one.name}" if ending else ""))
    legend_below(axes, columns=2)
    low, high = labels[order[0]], labels[order[-1]]
    return Picture(
        f"sigma{ending}",
        figure,
        alt=f"Sigma of each label's kernel. Lowest median {low} {np.median(sigma[:, order[0]]):.3f}, highest "
        f"{high} {np.median(sigma[:, order[-1]]):.3f}.",
        caption="Median, middle half and 90 % of the images. By design sigma is above 1.",
        numbers=Table.of(
            "quantiles of sigma", ("label", "image", *(f"{100 * s:.0f} %" for s in SHARES)), rows
        ),
        wide=wide,
    )


def corruption_picture(one: Measured, curves: Sequence[CorruptionCurve], ending: str) -> Picture:
    """Mean sigma under increasing corruption; mean entropy for a model without kernels."""
    uses_sigma = curves[0].sigma is not None
    what = "sigma" if uses_sigma else "entropy"
    figure, axes = new_axes()
    rows = []
    words = []
    for index, curve in enumerate(curves):
        values = curve.entropy if curve.sigma is None else curve.sigma
        changes = 100 * (values / values[0] - 1)
        axes.plot(range(len(values)), changes, label=curve.kind, **line_look(index))
        grows = bool((np.diff(values) >= 0).all())
        words.append(f"{curve.kind} {changes[-1]:+.2f} %" + (", always growing" if grows else ""))
        for place, strength in enumerate(curve.strengths):
            sigma = None if curve.sigma is None else float(curve.sigma[place])
            rows.append((curve.kind, strength, sigma, float(curve.entropy[place])))
    axes.set_xticks(range(len(curves[0].strengths)))
    axes.set(xlabel="strength, from none to strong", ylabel=f"change of mean {what} (%)")
    axes.set_title("Corrupted images" + (f", {one.name}" if ending else ""))
    legend_below(axes)
    change = "; ".join(words)
    return Picture(
        f"corruption{ending}",
        figure,
        alt=f"Mean {what} of {one.name} as images are blurred, made noisy or covered: {change}.",
        caption=f"A useful uncertainty grows to the right. From clean to strongest: {change}. Means over "
        f"{curves[0].num_images} of the {len(one.predictions)} images of {one.split}, drawn at random, and "
        "all labels.",
        numbers=Table.of("means", ("corruption", "strength", "mean sigma", "mean entropy, bits"), rows),
    )


def extremes_gallery(one: Measured) -> Gallery:
    """The most and the least certain images, by mean sigma over labels or mean entropy."""
    predictions = one.predictions
    if predictions.sigma is not None:
        values, what = predictions.sigma.astype(np.float64).mean(axis=1), "mean sigma"
    else:
        scores = np.clip(predictions.scores.astype(np.float64), 1e-12, 1 - 1e-12)
        entropy = -scores * np.log2(scores) - (1 - scores) * np.log2(1 - scores)
        values, what = entropy.mean(axis=1), "mean entropy"
    order = np.argsort(values, kind="stable")
    rows = []
    for heading, chosen in (
        ("most certain", order[:SHOWN_IMAGES]),
        ("least certain", order[::-1][:SHOWN_IMAGES]),
    ):
        thumbnails = []
        for row in map(int, chosen):
            carried = [predictions.labels[k] for k in np.flatnonzero(predictions.targets[row] == 1)]
            words = f"{values[row]:.4f}\nhas: {', '.join(carried) or 'no label'}"
            name = predictions.names[row]
            alt = f"{name}, {what} {values[row]:.4f}"
            thumbnails.append(image_thumbnail(one.run, name, f"{words}\n{short_name(name)}", alt))
        rows.append((f"{heading}, by {what} over the labels", tuple(thumbnails)))
    return Gallery("The most and the least certain images", tuple(rows))


def _part_of(advance: Callable[[float], object], place: int, number: int) -> Callable[[float], object]:
    """The progress of one of several equal parts."""
    return lambda done: advance((place + done) / number)


def _corrupted(run: RunParts, seed: int, advance: Callable[[float], object]) -> list[CorruptionCurve] | None:
    classifier, predictions = run.classifier, run.predictions
    if classifier is None or predictions is None or run.images is None:
        return None
    size = classifier.encoder.input_size
    order = np.random.default_rng(seed).permutation(len(predictions))[:CORRUPTED_IMAGES]
    loaded = [run.load_image(predictions.names[row], size) for row in order]
    pixels = [resize(np.array(image), size, size) for image in loaded if image is not None]
    if not pixels:
        return None
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    return corruption_curves(classifier, images, seed, advance)
