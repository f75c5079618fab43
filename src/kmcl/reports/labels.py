"""The section on labels: how many an image has, which go together, and whether the model learned it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.cooccurrence import correlations
from kmcl.errors import InputError
from kmcl.evaluation.agreement import Agreement, label_agreement, label_cooccurrence
from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Missing, Picture, Section, Table, percent, slug
from kmcl.reports.drawing import COLOURS, DIVERGING, SEQUENTIAL, figure_style, new_axes
from kmcl.reports.label_groups import LabelGroups
from kmcl.reports.label_similarity import find_mixture, mean_similarity, probability_similarity
from kmcl.reports.matrix import matrix_picture
from kmcl.reports.measured import Measured

PHI, JACCARD = "correlation", "Jaccard index"
"""Measures of co-occurrence in the targets: corrected for chance, and not."""


def labels_section(measured: Sequence[Measured], groups: LabelGroups | None, seed: int) -> Section:
    section = Section("Labels")
    if not measured or groups is None:
        section.add(Missing("No run has predictions with targets."))
        return section
    first = measured[0]
    targets = first.predictions.targets
    phi = correlations(targets)
    order = groups.order
    labels = first.predictions.labels
    with figure_style():
        section.add(labels_per_image_picture(targets, first.split))
        section.add(
            matrix_picture(
                "label-correlation",
                phi,
                labels,
                order,
                title="Correlation in the ground truth",
                caption=f"Correlation (phi) of the labels over the images of {first.split}; labels of one "
                "group are adjacent.",
                value="correlation",
                colours=DIVERGING,
                limits=_symmetric_limits(phi),
            )
        )
        for one in measured:
            if one.predictions.labels == labels:
                _add_learned(
                    section, one, phi, order, f"-{slug(one.name)}" if len(measured) > 1 else "", seed
                )
    return section


def _add_learned(
    section: Section, one: Measured, phi: Values, order: npt.NDArray[np.int64], ending: str, seed: int
) -> None:
    learned = _Learned(section, one, phi, order, ending, np.random.default_rng(seed))
    learned.add(
        "label",
        probability_similarity(one.decisions.probabilities),
        "How likely two labels are in an image together, relative to how likely either is (Jaccard index of "
        f"the calibrated probabilities), over the images of {one.split}.",
        (JACCARD, PHI),
    )
    classifier = one.run.classifier
    if classifier is None:
        section.add(Missing(f"the model of {one.name} cannot be loaded, so its kernels are unknown."))
        return
    try:
        mixture = find_mixture(classifier, one.predictions)
    except InputError as error:
        section.add(Missing(f"similarity of the kernels of {one.name}: {error}."))
        return
    if mixture is not None:
        targets = one.predictions.targets[:, : mixture.logits.shape[1]]
        learned.add(
            "kernel",
            mean_similarity(mixture, targets, learned.generator),
            "Mean Bhattacharyya coefficient between two labels' kernels over the images that carry either.",
            (PHI, JACCARD),
        )


@dataclass(frozen=True)
class _Learned:
    """Adds learned similarities of one run to the section, each beside the co-occurrence in the targets."""

    section: Section
    one: Measured
    phi: Values
    order: npt.NDArray[np.int64]
    ending: str
    generator: np.random.Generator

    def add(self, what: str, similarity: Values, caption: str, truths: tuple[str, str]) -> None:
        """what: `label` or `kernel`, whose similarity it is"""
        predictions = self.one.predictions
        added = predictions.num_labels - len(similarity)
        similarity = np.pad(similarity, (0, added), constant_values=np.nan)  # nothing was learned about these
        whose = f" by {self.one.name}" if self.ending else ""
        title = "Similarity learned" if what == "label" else "Similarity of the kernels"
        self.section.add(
            matrix_picture(
                f"{what}-similarity{self.ending}",
                similarity,
                predictions.labels,
                self.order,
                title=f"{title}{whose}",
                caption=caption,
                value="similarity",
                colours=SEQUENTIAL,
                limits=None,
            )
        )
        occurs = (predictions.targets == 1).any(axis=0)
        if occurs.sum() < 3:
            self.section.add(Missing("agreement needs at least three labels that occur."))
            return
        kept = np.ix_(occurs, occurs)
        matrices = {PHI: self.phi, JACCARD: label_cooccurrence(predictions.targets)}
        agreements = {
            truth: label_agreement(matrices[truth][kept], similarity[kept], self.generator)
            for truth in truths
        }
        names = tuple(label for label, there in zip(predictions.labels, occurs, strict=True) if there)
        self.section.add(
            agreement_picture(
                what, names, matrices[truths[0]][kept], similarity[kept], agreements, whose, self.ending
            )
        )


def labels_per_image_picture(targets: npt.NDArray[np.int8], split: str) -> Picture:
    """The paper's histogram."""
    counts = np.bincount((targets == 1).sum(axis=1))
    shares = counts / counts.sum()
    figure, axes = new_axes()
    axes.bar(range(len(shares)), shares, color=COLOURS[0], width=0.85)
    axes.set_xticks(range(0, len(shares), max(1, len(shares) // 15)))
    axes.set(xlabel="labels per image", ylabel="relative frequency", title=f"Labels per image, {split}")
    axes.grid(False, axis="x")
    most = int(counts.argmax())
    return Picture(
        "labels-per-image",
        figure,
        alt=f"Histogram of labels per image: {percent(shares[most])} % of the images have {most}, the most "
        f"common number; at most {len(shares) - 1}.",
        caption=f"{len(targets)} images, {(targets == 1).sum() / len(targets):.2f} labels each on average.",
        numbers=Table.of(
            "labels per image",
            ("labels", "images", "share"),
            [(number, int(count), float(shares[number])) for number, count in enumerate(counts)],
        ),
    )


def agreement_picture(
    what: str,
    labels: tuple[str, ...],
    truth: Values,
    similarity: Values,
    agreements: Mapping[str, Agreement],
    whose: str,
    ending: str,
) -> Picture:
    """Every pair of labels as a point: co-occurrence in the targets against learned similarity.

    what:       whose similarity: `label` or `kernel`
    agreements: with `truth` first, then with the other measure of it, by name
    """
    (name, agreement), (other_name, other) = agreements.items()
    rows, columns = np.triu_indices(len(labels), k=1)
    figure, axes = new_axes()
    axes.scatter(
        truth[rows, columns], similarity[rows, columns], s=14, color=COLOURS[0], alpha=0.6, linewidths=0
    )
    axes.set(xlabel=f"{name} in the ground truth", ylabel="learned similarity", title=f"Agreement{whose}")
    words = (
        f"Rank correlation {agreement.correlation:.3f} over {agreement.num_pairs} pairs of labels, "
        f"permutation p = {agreement.p_value:.3g} ({agreement.num_permutations} permutations)"
    )
    order = np.argsort(-truth[rows, columns], kind="stable")
    pairs = [
        (
            f"{labels[rows[pair]]} – {labels[columns[pair]]}",
            float(truth[rows[pair], columns[pair]]),
            float(similarity[rows[pair], columns[pair]]),
        )
        for pair in order
    ]
    return Picture(
        f"{what}-agreement{ending}",
        figure,
        alt=f"Learned similarity against {name} for each pair of labels. {words}.",
        caption=f"{words}; with the {other_name} instead of the {name} {other.correlation:.3f}, "
        f"p = {other.p_value:.3g}.",
        numbers=Table.of("pairs of labels", ("pair", name, "similarity"), pairs),
    )


def _symmetric_limits(matrix: Values) -> tuple[float, float]:
    """Symmetric limits around 0, without the diagonal."""
    off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
    largest = max(float(np.abs(off_diagonal).max(initial=0.0)), 0.05)
    return -largest, largest
