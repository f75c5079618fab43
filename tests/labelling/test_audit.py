"""An audit finds planted errors, says why, and leaves out what cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coloured_squares import squares
from kmcl.data import Dataset, open_dataset
from kmcl.data.selection import join_splits, select
from kmcl.errors import InputError
from kmcl.labelling import audit as module
from kmcl.labelling.audit import Audit, audit_dataset, describe_splits, percent
from kmcl.labelling.image_features import FeatureExtractor
from kmcl.labelling.near_duplicates import (
    NearDuplicate,
    degraded_copy,
    find_near_duplicates,
    similarity_of_copies,
)
from miniature_datasets import voc_object, write_voc
from mislabelled_squares import COPIED, COPY, MISSING_GREEN, WRONG_RED, row_of, write_squares


def test_planted_errors_come_first(audit: Audit, dataset: Dataset) -> None:
    missing = [finding for finding in audit.findings if finding.kind == "missing"]
    wrong = [finding for finding in audit.findings if finding.kind == "wrong"]
    assert (len(missing), len(wrong)) == (8, 8)
    assert (missing[0].row, missing[0].label) == (row_of(dataset, MISSING_GREEN), 0)
    assert {(one.row, one.label) for one in wrong[:2]} == {
        (row_of(dataset, WRONG_RED), 1),
        (row_of(dataset, COPY), 0),
    }
    assert (missing[0].given, missing[0].suggested) == (0, 1)
    assert (wrong[0].given, wrong[0].suggested) == (1, 0)
    assert min(missing[0].probability, wrong[1].probability) > 0.5
    assert max(missing[1].probability, wrong[2].probability) < 0.5


def test_reasons_and_neighbours_say_what_is_suggested(audit: Audit, dataset: Dataset) -> None:
    finding = next(one for one in audit.findings if one.row == row_of(dataset, MISSING_GREEN))
    assert finding.reasons[0].startswith("green is given as absent; from the image it is")
    assert finding.reasons[0].endswith(f"and {percent(finding.share)} of the images have it")
    assert "most similar images have it" in finding.reasons[1]
    targets = np.concatenate([split.targets for split in dataset.splits.values()])
    assert len(finding.neighbours) == 3
    assert (targets[list(finding.neighbours), finding.label] == 1).all()


def test_a_copy_with_another_label_is_found(
    dataset: Dataset, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, copied = row_of(dataset, COPY), row_of(dataset, COPIED)
    # The model sees only how much there is of each colour, so that all images of a kind are alike to it.
    pair = NearDuplicate(min(copy, copied), max(copy, copied), 0.9954)
    monkeypatch.setattr(module, "find_near_duplicates", lambda *_: [pair])
    result = audit_dataset(dataset, extractor, count=8)
    assert result.num_duplicates == 1
    finding = next(one for one in result.findings if one.kind == "near-duplicate")
    assert (finding.row, finding.neighbours) == (copy, (copied,))
    assert (result.labels[finding.label], finding.given) == ("green", 1)
    assert "a nearly identical image (similarity 0.995) has green absent" in finding.reasons[0]


def test_the_similarity_of_copies_is_that_of_most(dataset: Dataset, extractor: FeatureExtractor) -> None:
    everything, features = join_splits(dataset), describe_splits(dataset, extractor)
    least = similarity_of_copies(everything.images, extractor, features)
    pixels = [everything.images.load(int(row)) for row in features.rows]
    copies = features.directions_of(extractor.describe_pixels([degraded_copy(one) for one in pixels]))
    share = ((copies * features.directions).sum(axis=1) >= least).mean()
    assert share == pytest.approx(0.9, abs=0.08)


def test_unreadable_images_are_left_out(tmp_path: Path, extractor: FeatureExtractor) -> None:
    table = write_squares(tmp_path)
    (tmp_path / "images" / MISSING_GREEN).write_bytes(b"no image")
    dataset = open_dataset(f"table:{table}")
    result = audit_dataset(dataset, extractor, count=5)
    broken = row_of(dataset, MISSING_GREEN)
    assert list(result.unreadable) == [broken]
    assert broken not in [finding.row for finding in result.findings]
    assert row_of(dataset, WRONG_RED) in [one.row for one in result.findings if one.kind == "wrong"][:2]


def test_unknown_labels_are_no_findings(dataset: Dataset, extractor: FeatureExtractor) -> None:
    splits = {}
    for name, split in dataset.splits.items():
        targets = split.targets.copy()
        targets[:, 1] = np.where(np.arange(len(targets)) % 2, targets[:, 1], -1)
        splits[name] = replace(split, targets=targets)
    result = audit_dataset(replace(dataset, splits=splits), extractor, count=300)
    everything = np.concatenate([split.targets for split in splits.values()])
    assert all(everything[finding.row, finding.label] >= 0 for finding in result.findings)


def test_objects_that_voc_excludes_are_no_findings(tmp_path: Path, extractor: FeatureExtractor) -> None:
    """Green squares are dogs, red ones cats; every third dog has a difficult cat, which it does not show."""
    root = tmp_path / "VOC2007"
    images = [
        (image, name) for name in ("dog", "cat") for image in squares(30, name == "dog", name == "cat")[0]
    ]
    difficult = [row for row, (_, name) in enumerate(images) if name == "dog" and row % 3 == 0]
    annotations = {
        f"{row:06}": voc_object(name) + (voc_object("cat", "1") if row in difficult else "")
        for row, (_, name) in enumerate(images)
    }
    lists = {"trainval": "\n".join(list(annotations)[1::2]), "test": "\n".join(list(annotations)[::2])}
    write_voc(root, annotations, lists)
    for row, (image, _) in enumerate(images):
        Image.fromarray(image).save(root / "JPEGImages" / f"{row:06}.jpg", quality=95)
    dataset = open_dataset(f"voc2007:{root}")
    excluded = {(row_of(dataset, f"{row:06}.jpg"), dataset.labels.index("cat")) for row in difficult}
    result = audit_dataset(dataset, extractor, count=20 * len(images))
    judged = {(finding.row, finding.label) for finding in result.findings}
    assert len(excluded) == 10
    assert judged & excluded == set()
    assert len(judged) == 20 * len(images) - len(excluded)


def test_too_few_images_are_refused(dataset: Dataset, extractor: FeatureExtractor) -> None:
    few = replace(dataset, splits={"train": select(dataset.splits["train"], np.arange(5))})
    with pytest.raises(InputError, match="5 images are too few"):
        audit_dataset(few, extractor)
    with pytest.raises(InputError, match="count must be at least 1; got 0"):
        audit_dataset(dataset, extractor, count=0)


def test_alike_images_do_not_flood_the_near_duplicates() -> None:
    """Of 400 nearly equal images, those in the closest pairs; a threshold that all pass says nothing."""
    rng = np.random.default_rng(0)
    vectors = np.ones((400, 64)) + 0.05 * rng.normal(size=(400, 64))
    vectors[7] = vectors[3] + 1e-4 * rng.normal(size=64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert (vectors @ vectors.T).min() > 0.99
    pairs = find_near_duplicates(vectors.astype(np.float32), least=0.9)
    assert (pairs[0].first, pairs[0].second) == (3, 7)
    assert len({place for pair in pairs for place in pair[:2]}) <= 70
    assert min(pair.similarity for pair in pairs) > 0.997


def test_near_duplicates_of_unit_vectors() -> None:
    angles = np.array([0.0, 2.0, 0.1, 4.0, 2.01])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pairs = find_near_duplicates(vectors, least=0.99)
    assert [(pair.first, pair.second) for pair in pairs] == [(1, 4), (0, 2)]
    assert pairs[0].similarity == pytest.approx(np.cos(0.01), abs=1e-5)


def test_a_degraded_copy_is_smaller_and_brighter() -> None:
    image = np.full((40, 60, 3), 100, dtype=np.uint8)
    copy = degraded_copy(image)
    assert copy.shape == (30, 45, 3)
    assert copy.mean() == pytest.approx(110, abs=2)


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (0.0, "0 %"),
        (0.0001, "less than 0.05 %"),
        (0.0034, "0.3 %"),
        (0.02, "2 %"),
        (0.994, "99 %"),
        (0.9999, "over 99 %"),
        (1.0, "100 %"),
    ],
)
def test_a_small_probability_is_not_rounded_to_none(probability: float, words: str) -> None:
    assert percent(probability) == words
