"""The section on features: the test images by t-SNE, and how many labels neighbours share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Missing, Picture, Section, Table, Text, percent, slug
from kmcl.reports.drawing import (
    COLOURS,
    FULL_WIDTH,
    HALF_WIDTH,
    INK,
    MARKERS,
    PAPER,
    figure_style,
    legend_below,
    new_axes,
    shorten,
)
from kmcl.reports.label_groups import LabelGroups
from kmcl.reports.measured import Measured

MOST_POINTS = 1500
LEAST_POINTS = 10
NEIGHBOURS = 10
MOST_HALF_WIDE = 30


def features_section(
    measured: Sequence[Measured], groups: LabelGroups | None, seed: int, advance: Callable[[float], object]
) -> Section:
    """advance: called with the share of the section that is done."""
    section = Section("Features")
    drawn = [
        one
        for one in measured
        if one.predictions.features is not None and one.predictions.labels == measured[0].predictions.labels
    ]
    if not drawn or groups is None:
        section.add(Missing("No run has predictions with features."))
        return section
    section.add(
        Text(
            "t-SNE keeps neighbours together; distances between far groups mean little. Each image has the "
            "colour of the group most of its labels belong to; a label stands at the mean of its images, by "
            "name where there is room."
        )
    )
    with figure_style():
        for place, one in enumerate(drawn):
            advance(place / len(drawn))
            rows = choose_rows(len(one.predictions), seed)
            if len(rows) < LEAST_POINTS:
                section.add(Missing(f"{one.name} has fewer than {LEAST_POINTS} images, too few for t-SNE."))
            else:
                section.add(tsne_picture(one, rows, groups, f"-{slug(one.name)}" if drawn[1:] else "", seed))
    return section


def choose_rows(num_images: int, seed: int) -> npt.NDArray[np.int64]:
    """Random rows, the same for every run with as many images."""
    return np.sort(np.random.default_rng(seed).permutation(num_images)[:MOST_POINTS])


def tsne_picture(
    one: Measured, rows: npt.NDArray[np.int64], groups: LabelGroups, ending: str, seed: int
) -> Picture:
    predictions = one.predictions
    features = reduced_features(predictions, rows)
    positions = embed(features, seed)
    targets = predictions.targets[rows]
    shared = neighbours_sharing_a_label(features, targets)
    wide = predictions.num_labels > MOST_HALF_WIDE
    figure, axes = new_axes(*((FULL_WIDTH, 7.0) if wide else (HALF_WIDTH, 4.6)))
    of_image = groups.of_images(targets)
    for group in range(-1, len(groups.names)):
        members = positions[of_image == group]
        if len(members):
            name = "no label" if group < 0 else groups.names[group]
            colour = COLOURS[-1] if group < 0 else COLOURS[group % (len(COLOURS) - 1)]
            marker = "." if group < 0 else MARKERS[group % len(MARKERS)]
            axes.scatter(
                members[:, 0],
                members[:, 1],
                s=9,
                label=name,
                color=colour,
                marker=marker,
                linewidths=0,
                alpha=0.55,
                rasterized=True,
            )
    centroids = label_centroids(positions, targets)
    names = shorten(predictions.labels, 14)
    named = labels_with_room(centroids, np.ptp(positions, axis=0), (targets == 1).sum(axis=0))
    for label, (x, y) in enumerate(centroids):
        if np.isfinite(x):
            colour = COLOURS[int(groups.of_label[label]) % (len(COLOURS) - 1)]
            axes.plot(x, y, "o", color=colour, markersize=6, markeredgecolor=INK, markeredgewidth=0.8)
            if label not in named:
                continue
            box = {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.75}
            axes.annotate(
                names[label], (x, y), (4, 3), textcoords="offset points", fontsize=6 if wide else 7, bbox=box
            )
    axes.set(xticks=[], yticks=[], xlabel="t-SNE, first axis", ylabel="t-SNE, second axis")
    axes.set_title("Features" + (f", {one.name}" if ending else ""))
    legend_below(axes, columns=2)
    table = [
        (
            predictions.labels[label],
            groups.names[int(groups.of_label[label])],
            int((targets[:, label] == 1).sum()),
            float(x),
            float(y),
        )
        for label, (x, y) in enumerate(centroids)
    ]
    return Picture(
        f"features{ending}",
        figure,
        alt=f"t-SNE of the features of {len(rows)} images by {one.name}, coloured by label group "
        f"({'; '.join(groups.names)}), with the centroid of each label.",
        caption=f"{len(rows)} images of {one.split}. Of an image's {NEIGHBOURS} nearest neighbours by their "
        f"features, {percent(shared)} % share a label with it.",
        numbers=Table.of("label centroids", ("label", "group", "images", "x", "y"), table),
        wide=wide,
    )


def reduced_features(predictions: Predictions, rows: npt.NDArray[np.int64]) -> Values:
    """The rows' features on their first 50 principal axes; with more, t-SNE only gets slower."""
    from sklearn.decomposition import PCA

    if predictions.features is None:
        raise ValueError("the predictions have no features")
    features = predictions.features[rows].astype(np.float64)
    num_axes = min(50, features.shape[1], len(features) - 1)
    return np.asarray(PCA(num_axes, svd_solver="covariance_eigh").fit_transform(features))


def embed(features: Values, seed: int) -> Values:
    """N x 2 by t-SNE; the same for the same seed."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", random_state=seed, max_iter=600)
    return np.asarray(model.fit_transform(features), dtype=np.float64)


def label_centroids(positions: Values, targets: npt.NDArray[np.int8]) -> Values:
    """L x 2 means over the images that carry each label; NaN for a label without any."""
    carries = (targets == 1).astype(np.float64)
    counts = carries.sum(axis=0)[:, None]
    return np.asarray(np.where(counts > 0, carries.T @ positions / np.maximum(counts, 1), np.nan))


def labels_with_room(
    centroids: Values,
    extent: Values,
    counts: npt.NDArray[np.integer],
    room: tuple[float, float] = (0.12, 0.03),
) -> set[int]:
    """Labels whose names fit beside their centroids without overlap, frequent ones first.

    room: width and height of a name as shares of the figure's extent.
    """
    named: list[int] = []
    for label in np.argsort(-counts, kind="stable"):
        gaps = np.abs(centroids[named] - centroids[label]) / np.maximum(extent, 1e-12)
        if np.isfinite(centroids[label]).all() and not (gaps < room).all(axis=1).any():
            named.append(int(label))
    return set(named)


def neighbours_sharing_a_label(features: Values, targets: npt.NDArray[np.int8]) -> float:
    """Mean share of an image's nearest neighbours that have a label in common with it.

    Over images that carry a label; NaN when none does.
    """
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(features) - 1)
    found = NearestNeighbors(n_neighbors=count).fit(features).kneighbors(return_distance=False)
    carries = targets == 1
    shares = (carries[found] & carries[:, None, :]).any(axis=2).mean(axis=1)
    labelled = carries.any(axis=1)
    return float(shares[labelled].mean()) if labelled.any() else float("nan")
