"""Learned label similarity and label groups against loops and planted answers."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import kmcl.reports.label_similarity as label_similarity
from kmcl.data.cooccurrence import correlations
from kmcl.errors import InputError
from kmcl.evaluation.agreement import label_cooccurrence
from kmcl.evaluation.predictions import Predictions
from kmcl.kernels import KernelMixture, log_bhattacharyya
from kmcl.methods.kmcl import KernelMixtureHead, QueryBranch
from kmcl.reports.blocks import Section
from kmcl.reports.label_groups import cluster_labels, read_groups
from kmcl.reports.label_similarity import find_mixture, mean_similarity, probability_similarity
from kmcl.reports.labels import _add_learned


def random_mixture(kernel: str, batch: int = 5, labels: int = 4, width: int = 3) -> KernelMixture:
    torch.manual_seed(0)
    head = KernelMixtureHead(width, labels, kernel)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        return head(torch.randn(batch, width))


def kernel_of(mixture: KernelMixture, image: int, label: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = mixture.feature_dim
    variance_label = label if mixture.variances.shape[1] > 1 else 0
    mean = mixture.means[image, label].double().expand(width)
    return mean, torch.diag(mixture.variances[image, variance_label].double().expand(width))


@pytest.mark.parametrize("kernel", ["isotropic", "anisotropic", "mahalanobis", "gaussian"])
def test_mean_similarity_is_the_loop_over_images_with_either_label(kernel, monkeypatch):
    monkeypatch.setattr(label_similarity, "BLOCK_ELEMENTS", 100)  # several blocks
    mixture = random_mixture(kernel)
    targets = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=np.int8)
    found = mean_similarity(mixture, targets, np.random.default_rng(0))
    for k in range(4):
        for m in range(4):
            images = [n for n in range(5) if targets[n, k] == 1 or targets[n, m] == 1]
            values = [
                math.exp(log_bhattacharyya(*kernel_of(mixture, n, k), *kernel_of(mixture, n, m)))
                for n in images
            ]
            expected = 1.0 if k == m else np.mean(values) if values else np.nan
            assert found[k, m] == pytest.approx(expected, nan_ok=True), (k, m)


def test_a_pair_without_images_has_no_value_and_many_images_are_sampled(monkeypatch):
    mixture = random_mixture("isotropic", batch=50)
    targets = np.zeros((50, 4), dtype=np.int8)
    targets[:, 0] = 1
    monkeypatch.setattr(label_similarity, "MOST_ELEMENTS", 16 * 20)
    found = mean_similarity(mixture, targets, np.random.default_rng(0))
    assert np.isnan(found[2, 3])
    assert 0 < found[0, 1] < 1


def test_probability_similarity_is_the_jaccard_index_of_the_probabilities():
    probabilities = np.random.default_rng(0).random((8, 4))
    probabilities[:, 3] = 0
    found = probability_similarity(probabilities)
    for k in range(4):
        for m in range(4):
            together = sum(row[k] * row[m] for row in probabilities)
            either = sum(row[k] + row[m] - row[k] * row[m] for row in probabilities)
            expected = 1.0 if k == m else together / either
            assert found[k, m] == pytest.approx(expected, rel=1e-12), (k, m)
    assert found[0, 3] == 0


def test_certain_probabilities_give_the_co_occurrence_of_the_labels():
    targets = np.random.default_rng(1).integers(0, 2, (40, 5)).astype(np.int8)
    np.testing.assert_allclose(probability_similarity(targets.astype(float)), label_cooccurrence(targets))


def test_labels_that_are_never_likely_are_alike_to_nothing_but_themselves():
    probabilities = np.array([[0.7, 0, 0], [0.2, 0, 0]])
    np.testing.assert_array_equal(probability_similarity(probabilities), np.eye(3))


class HeadOnly(torch.nn.Module):
    """Stands for a classifier: only its head and its post-hoc parts are looked at."""

    def __init__(self, head: torch.nn.Module, **posthoc: torch.nn.Module) -> None:
        super().__init__()
        self.head = torch.nn.Sequential(head)
        self.posthoc = torch.nn.ModuleDict(posthoc)


def predictions_with(features: np.ndarray | None, sigma: np.ndarray | None) -> Predictions:
    scores = np.full((5, 2), 0.5, dtype=np.float32)
    names = tuple(f"{n}.png" for n in range(5))
    return Predictions(("a", "b"), names, scores, scores.astype(np.int8), sigma=sigma, features=features)


def test_kernels_come_from_stored_features_and_must_fit_the_model():
    torch.manual_seed(0)
    head = KernelMixtureHead(3, 2)
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with torch.no_grad():
        sigma = head(torch.from_numpy(features)).label_variances.sqrt().numpy()
    mixture = find_mixture(HeadOnly(head), predictions_with(features, sigma))
    np.testing.assert_allclose(mixture.label_variances.sqrt(), sigma)
    with pytest.raises(InputError, match="sigma"):
        find_mixture(HeadOnly(head), predictions_with(features, 2 * sigma))
    with pytest.raises(InputError, match="features"):
        find_mixture(HeadOnly(head), predictions_with(None, sigma))
    assert find_mixture(HeadOnly(torch.nn.Linear(3, 2)), predictions_with(features, None)) is None


@pytest.mark.parametrize("form", ["paper", "with queries", "linear"])
def test_every_model_has_a_label_similarity_and_the_paper_form_that_of_its_kernels(form):
    torch.manual_seed(0)
    classifier = HeadOnly(torch.nn.Linear(3, 4) if form == "linear" else KernelMixtureHead(3, 4))
    if form == "with queries":
        classifier.head.append(QueryBranch(3, 4, 8))
    rng = np.random.default_rng(0)
    scores, targets = rng.random((30, 4), dtype=np.float32), rng.integers(0, 2, (30, 4)).astype(np.int8)
    features = rng.normal(size=(30, 3)).astype(np.float32)
    names = tuple(f"{n}.png" for n in range(30))
    predictions = Predictions(("a", "b", "c", "d"), names, scores, targets, features=features)
    probabilities = rng.random((30, 4))
    one = SimpleNamespace(
        name="run",
        split="test",
        predictions=predictions,
        decisions=SimpleNamespace(probabilities=probabilities),
        run=SimpleNamespace(classifier=classifier),
    )
    section = Section("Labels")
    _add_learned(section, one, correlations(targets), np.arange(4), "", 0)
    matrix, agreement, *of_kernels = section.blocks
    assert (matrix.name, agreement.name) == ("label-similarity", "label-agreement")
    assert "Jaccard index of the calibrated probabilities" in matrix.caption
    assert "correlation instead of the Jaccard index" in agreement.caption
    assert [block.name for block in of_kernels] == (
        ["kernel-similarity", "kernel-agreement"] if form == "paper" else []
    )
    if of_kernels:
        assert "Bhattacharyya coefficient between two labels' kernels" in of_kernels[0].caption
        assert "Jaccard index instead of the correlation" in of_kernels[1].caption


def planted_targets() -> np.ndarray:
    """Labels a and b together, c and d together, e alone."""
    generator = np.random.default_rng(0)
    choice = generator.integers(3, size=300)
    sets = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], dtype=np.int8)
    targets = sets[choice]
    flipped = generator.random(targets.shape) < 0.05
    return np.where(flipped, 1 - targets, targets).astype(np.int8)


def test_clustering_finds_planted_groups():
    labels = ("a", "c", "b", "d", "e")
    targets = planted_targets()[:, [0, 2, 1, 3, 4]]
    groups = cluster_labels(labels, correlations(targets))
    found = {frozenset(np.array(labels)[groups.of_label == g]) for g in range(len(groups.names))}
    assert found == {frozenset("ab"), frozenset("cd"), frozenset("e")}
    of_images = groups.of_images(np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0] * 5], dtype=np.int8))
    assert of_images[0] == groups.of_label[0]
    assert of_images[1] == groups.of_label[4]
    assert of_images[2] == -1


def test_given_groups_are_read_and_checked(tmp_path):
    file = tmp_path / "groups.json"
    file.write_text(json.dumps({"animals": ["dog", "cat"]}))
    groups = read_groups(file, ("cat", "car", "dog"))
    assert groups.names == ("animals", "other")
    assert groups.of_label.tolist() == [0, 1, 0]
    assert groups.order.tolist() == [0, 2, 1]
    for content, message in (
        ({"animals": ["cow"]}, "'cow', which is no label"),
        ({"animals": ["dog"], "pets": ["dog"]}, "'dog' stands in two groups"),
        (["dog"], "must map the name"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            read_groups(file, ("cat", "car", "dog"))
    for broken in (b"\xff", b"[", 5000 * b"["):
        file.write_bytes(broken)
        with pytest.raises(InputError, match=r"groups\.json: cannot be read as label groups"):
            read_groups(file, ("cat",))
    with pytest.raises(InputError, match="no such file"):
        read_groups(tmp_path / "nothing.yaml", ("cat",))
