"""The section on labels that lean on others: with, without and with a covered co-occurring label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kmcl.data.groups import has_groups
from kmcl.evaluation.contrasts import MIN_UNITS, Contrast, joint_level
from kmcl.evaluation.leaning import LabelLeaning, measure_leaning, usual_pairs
from kmcl.reports.blocks import Cell, Heading, Missing, Section, Table, Text, percent, slug
from kmcl.reports.drawing import figure_style
from kmcl.reports.leaning_figures import leaning_picture, masked_gallery, masked_picture
from kmcl.reports.leaning_words import finding, interval, masked_finding
from kmcl.reports.masked import MaskedLabel, mask_labels
from kmcl.reports.measured import Measured
from kmcl.reports.new_combinations import add_combinations

TITLE = "Labels that lean on others"


def leaning_section(
    measured: Sequence[Measured], num_masked: int, seed: int, advance: Callable[[float], object]
) -> Section:
    """num_masked: pairs of an image and a label for which the co-occurring label is covered

    advance: called with the share of the section that is done
    """
    section = Section(TITLE)
    if not measured:
        section.add(Missing("No run has predictions."))
    for place, one in enumerate(measured):
        if len(measured) > 1:
            section.add(Heading(one.name))
        ending = f"-{slug(one.name)}" if len(measured) > 1 else ""

        def advance_run(done: float, place: int = place) -> object:
            return advance((place + done) / len(measured))

        _add_run(section, one, num_masked, seed, ending, advance_run)
    return section


def _add_run(
    section: Section,
    one: Measured,
    num_masked: int,
    seed: int,
    ending: str,
    advance: Callable[[float], object],
) -> None:
    predictions = one.predictions
    rules = None if one.run.description is None else one.run.description.rules
    if rules is None or rules.cooccurrence is None or rules.labels != predictions.labels:
        section.add(Missing(f"the model of {one.name} does not say which labels occur together in training."))
        return
    known = predictions.evaluated.sum(axis=0)
    pairs = usual_pairs(rules.cooccurrence, predictions.positive.sum(axis=0) / np.maximum(known, 1))
    if pairs:
        level = joint_level(3 * len(pairs))
        generator = np.random.default_rng(seed)
        found = measure_leaning(predictions, one.decisions.present, pairs, generator, level)
        advance(0.2)
        masked = mask_labels(one, found, num_masked, seed, lambda done: advance(0.2 + 0.7 * done))
        _add_pairs(section, one, found, masked, ending)
        if num_masked:
            _add_masked(section, one, masked, ending)
    else:
        section.add(Text("No label occurs with another one clearly more often than without it."))
    add_combinations(section, one, seed)


def _add_pairs(
    section: Section,
    one: Measured,
    found: Sequence[LabelLeaning],
    masked: Sequence[MaskedLabel],
    ending: str,
) -> None:
    labels, split = one.predictions.labels, one.split
    section.add(
        Text(
            "For each label the label that it most often occurs with in training, compared with how often "
            f"that one occurs at all, and the images of {split} with that label against those without it. A "
            "label that is recognised by itself has the same recall and the same share of false positives in "
            "both. Average precision is that among these images alone, both at the label's share of all "
            "images, since it would be higher where the label is more frequent. The intervals hold for all "
            "labels and the three figures jointly (95 %, Bonferroni; bootstrap over "
            f"{'groups' if has_groups(one.predictions.groups) else 'images'}); only differences whose "
            "interval excludes 0 are called a finding. Photographs with the other label can also be "
            "harder: whether the model looks at that label is what the covered images show."
        )
    )
    of_mask = {each.pair.label: each for each in masked}
    rows: list[tuple[Cell, ...]] = []
    for each in found:
        words = finding(each, labels)
        if each.pair.label in of_mask:
            words += masked_finding(of_mask[each.pair.label], each, labels)
        if words:
            rows.append((labels[each.pair.label], labels[each.pair.other], "; ".join(words)))
    if rows:
        section.add(Table.of("Findings", ("label", "usually with", "found"), rows))
    else:
        section.add(Text(f"No label of {one.name} was found to depend on its co-occurring label."))
    with figure_style():
        section.add(leaning_picture(found, labels, split, ending))
    header = ("label", "usually with", "share of its images", "of all", *_columns())
    section.add(
        Table.of(
            "With and without the co-occurring label, in %; intervals of the differences",
            header,
            [_row(each, labels) for each in found],
            open=False,
        )
    )


def _columns() -> list[str]:
    return [
        f"{name} {what}"
        for name in ("AP", "recall", "false positives")
        for what in ("with", "without", "interval")
    ]


def _row(each: LabelLeaning, labels: Sequence[str]) -> tuple[Cell, ...]:
    pair = each.pair
    cells: list[Cell] = [labels[pair.label], labels[pair.other], percent(pair.share), percent(pair.overall)]
    for contrast in (each.average_precision, each.recall, each.false_positives):
        cells += _cells(contrast)
    return tuple(cells)


def _cells(contrast: Contrast) -> list[Cell]:
    return [
        f"{percent(contrast.first)} ({contrast.num_first})",
        f"{percent(contrast.second)} ({contrast.num_second})",
        interval(contrast.difference) if contrast.difference else f"fewer than {MIN_UNITS}",
    ]


def _add_masked(section: Section, one: Measured, masked: Sequence[MaskedLabel], ending: str) -> None:
    if one.run.takes_vectors:
        return
    if one.run.classifier is None or one.run.images is None:
        section.add(Missing(f"{one.name}: covering co-occurring labels needs the model and its images."))
        return
    judged = [each for each in masked if each.difference is not None]
    if not judged:
        section.add(
            Text(
                "No label was tested by covering its co-occurring label: none is given more often with it, "
                f"with {MIN_UNITS} images that have both and are given the label."
            )
        )
        return
    labels = one.predictions.labels
    with figure_style():
        section.add(masked_picture(judged, labels, one.split, ending))
    section.add(masked_gallery(judged, labels))
