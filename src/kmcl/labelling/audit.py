"""Which labels of a dataset are likely to be wrong or missing, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset, Split
from kmcl.data.selection import join_splits
from kmcl.data.vectors import feature_dim
from kmcl.errors import InputError
from kmcl.labelling.image_features import FeatureExtractor, ImageFeatures
from kmcl.labelling.label_suspicion import Suspicion, suspect_labels
from kmcl.labelling.left_out_scores import left_out_scores
from kmcl.labelling.near_duplicates import find_near_duplicates, similarity_of_copies

NUM_NEIGHBOURS = 10
SHOWN_NEIGHBOURS = 3
LEAST_IMAGES = 20
LEAST_PUSH = 0.2
"""In logits: other labels that change less are not named as a reason."""

Kind = Literal["wrong", "missing", "near-duplicate"]


@dataclass(frozen=True)
class Finding:
    """A label of an image that is likely to be wrong.

    kind:       "wrong" where the label is given and likely absent, "missing" where it is not given and likely
                present, "near-duplicate" where a nearly identical image has it otherwise
    row:        place of the image among all images of the dataset, splits one after the other
    given:      1 or 0; the suggestion is the other
    probability: that the given value is wrong, see `kmcl.labelling.label_regression`
    share:      of the images that have the label, as given
    from_image: probability that the label is present, from the image
    from_all:   the same with the image's other labels and the images of its group
    reasons:    sentences
    neighbours: the most similar images that have what is suggested; of a near-duplicate, that image
    """

    kind: Kind
    row: int
    label: int
    given: int
    probability: float
    share: float
    from_image: float
    from_all: float
    reasons: tuple[str, ...]
    neighbours: tuple[int, ...]

    @property
    def suggested(self) -> int:
        return 1 - self.given


@dataclass(frozen=True)
class Audit:
    """findings:       missing labels, wrong labels, labels that differ between near-duplicates
    unreadable:     row -> why the image could not be read
    num_duplicates: pairs of near-duplicates, with equal labels or not
    copy_similarity: of the least similar of these pairs
    noun:           what the samples are: "image", or "row" for feature vectors
    """

    labels: tuple[str, ...]
    findings: tuple[Finding, ...]
    num_images: int
    unreadable: dict[int, str]
    num_duplicates: int
    copy_similarity: float
    noun: str = "image"


class _Material(NamedTuple):
    """What reasons are taken from; rows of all of them are those of `features`."""

    labels: tuple[str, ...]
    targets: npt.NDArray[np.int8]
    features: ImageFeatures
    suspicion: Suspicion
    noun: str


def audit_dataset(
    dataset: Dataset,
    extractor: FeatureExtractor,
    count: int = 100,
    seed: int = 0,
    on_step: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Rank the labels of all splits by how likely they are wrong; at most `count` of each kind.

    Missing and wrong labels are two lists: in one, the hard images of the one kind would hide the other kind.

    on_step: called with what begins, once features are there
    """
    if count < 1:
        raise InputError(f"count must be at least 1; got {count}")
    noun = "image" if feature_dim(dataset) is None else "row"
    everything = join_splits(dataset)
    features = describe_splits(dataset, extractor)
    if len(features.rows) < LEAST_IMAGES:
        raise InputError(
            f"{dataset.name}: {len(features.rows)} {noun}s are too few to judge labels by; "
            f"an audit needs {LEAST_IMAGES}"
        )
    targets = everything.trusted_targets[features.rows]
    groups = None if everything.groups is None else everything.groups[features.rows]
    on_step(f"judging {len(dataset.labels)} labels of {len(targets)} {noun}s")
    scores = left_out_scores(features.directions, targets, groups, seed)
    suspicion = suspect_labels(scores, targets, groups, seed)
    material = _Material(dataset.labels, targets, features, suspicion, noun)
    on_step(f"comparing {noun}s with one another")
    least = similarity_of_copies(everything.images, extractor, features, seed)
    pairs = find_near_duplicates(features.directions, least)
    duplicates = islice((finding for pair in pairs for finding in _of_pair(material, *pair)), count)
    return Audit(
        labels=dataset.labels,
        findings=(
            *_most_suspicious(material, 0, count),
            *_most_suspicious(material, 1, count),
            *duplicates,
        ),
        num_images=len(everything),
        unreadable=features.unreadable,
        num_duplicates=len(pairs),
        copy_similarity=min((pair.similarity for pair in pairs), default=least),
        noun=noun,
    )


def describe_splits(dataset: Dataset, extractor: FeatureExtractor) -> ImageFeatures:
    """The features of all images; each split has its own file in the cache, which trainings share."""
    described = [extractor.describe(split, name) for name, split in dataset.splits.items() if len(split)]
    sizes = [len(split) for split in dataset.splits.values() if len(split)]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return ImageFeatures(
        rows=np.concatenate([start + one.rows for start, one in zip(starts, described, strict=True)]),
        statistics=np.concatenate([one.statistics for one in described]),
        widths=described[0].widths,
        unreadable={
            start + row: reason
            for start, one in zip(starts, described, strict=True)
            for row, reason in one.unreadable.items()
        },
    )


def _most_suspicious(material: _Material, given: int, count: int) -> list[Finding]:
    """Of the labels with this value, those that are most likely wrong."""
    has_value = material.targets == given
    is_wrong = np.where(has_value, material.suspicion.is_wrong, -1.0)
    order = np.argsort(-is_wrong, axis=None, kind="stable")[: min(count, int(has_value.sum()))]
    places = zip(*np.unravel_index(order, is_wrong.shape), strict=True)
    return [_finding(material, int(row), int(label)) for row, label in places]


def _finding(material: _Material, row: int, label: int) -> Finding:
    directions, targets = material.features.directions, material.targets
    given = int(targets[row, label])
    similar = np.argsort(-(directions @ directions[row]), kind="stable")
    similar = similar[(similar != row) & (targets[similar, label] >= 0)][:NUM_NEIGHBOURS]
    speaking = similar[targets[similar, label] == 1 - given]
    have = int((targets[similar, label] == 1).sum())
    name, suspicion, noun = material.labels[label], material.suspicion, material.noun
    from_image, from_all = float(suspicion.from_image[row, label]), float(suspicion.from_all[row, label])
    share = float((targets[:, label] == 1).sum() / max((targets[:, label] >= 0).sum(), 1))
    judged = (
        f"{name} is given as {'present' if given else 'absent'}; from the {noun} it is {percent(from_image)} "
        f"likely, with all that is known {percent(from_all)}, and {percent(share)} of the {noun}s have it"
    )
    reasons = [judged, f"{have} of the {len(similar)} most similar {noun}s have it"]
    reasons += _pushing(material, row, label, 1 - given)
    return Finding(
        kind="wrong" if given else "missing",
        row=int(material.features.rows[row]),
        label=label,
        given=given,
        probability=float(suspicion.is_wrong[row, label]),
        share=share,
        from_image=from_image,
        from_all=from_all,
        reasons=tuple(reasons),
        neighbours=tuple(int(material.features.rows[other]) for other in speaking[:SHOWN_NEIGHBOURS]),
    )


def _pushing(material: _Material, row: int, label: int, suggested: int, most: int = 3) -> list[str]:
    """What else moves the probability to what is suggested: other labels, as given, and the group."""
    of_labels, of_group = material.suspicion.pushes(row, label)
    sign = 1 if suggested else -1
    order = np.argsort(-sign * of_labels, kind="stable")[:most].tolist()
    values = {1: "present", 0: "absent"}
    named = [
        f"{material.labels[other]} {values.get(int(material.targets[row, other]), 'unknown')}"
        for other in order
        if sign * of_labels[other] >= LEAST_PUSH
    ]
    reasons = [f"other labels that say so: {', '.join(named)}"] if named else []
    if sign * of_group >= LEAST_PUSH:
        reasons.append(f"so do the other {material.noun}s of its group")
    return reasons


def _of_pair(material: _Material, first: int, second: int, similarity: float) -> list[Finding]:
    """For each label that two near-duplicates have differently: the one that is more likely wrong."""
    targets, is_wrong = material.targets, material.suspicion.is_wrong
    differ = (targets[first] != targets[second]) & (targets[first] >= 0) & (targets[second] >= 0)
    findings = []
    for label in np.flatnonzero(differ).tolist():
        row, other = (first, second) if is_wrong[first, label] >= is_wrong[second, label] else (second, first)
        found = _finding(material, row, label)
        reason = (
            f"a nearly identical {material.noun} (similarity {similarity:.3f}) has {material.labels[label]} "
            f"{'absent' if found.given else 'present'}"
        )
        neighbours = (int(material.features.rows[other]),)
        reasons = (reason, *found.reasons)
        findings.append(replace(found, kind="near-duplicate", reasons=reasons, neighbours=neighbours))
    return findings


def percent(probability: float) -> str:
    """Without decimals, but neither 0 nor 100 of what is not."""
    if 0 < probability < 0.005:
        return f"{100 * probability:.1g} %" if probability >= 0.0005 else "less than 0.05 %"
    return "over 99 %" if 0.995 <= probability < 1 else f"{100 * probability:.0f} %"


def images_of(split: Split, finding: Finding) -> tuple[str, ...]:
    """The names of the images of a finding: its own, then its neighbours'."""
    return tuple(split.images.name(row) for row in (finding.row, *finding.neighbours))
