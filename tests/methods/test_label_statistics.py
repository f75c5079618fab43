"""Co-occurrence, ML-GCN's graph of it, and word vectors, against loops and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.methods import find_method
from kmcl.methods.label_statistics import conditional_frequencies, reweighted_graph, set_label_statistics
from kmcl.methods.mlgcn import mean_word_vectors
from kmcl.models.folder import ModelDescription, build_classifier, load_model, save_model
from kmcl.options.methods import AslOptions, MLGCNOptions
from random_inputs import DEGENERATE_TARGETS, make_targets

CASES = {"some unknown": make_targets(20, 4, unknown=0.3), **DEGENERATE_TARGETS}


@pytest.mark.parametrize("targets", CASES.values(), ids=CASES)
def test_conditional_frequencies_equal_loops(targets):
    conditional = conditional_frequencies(targets)
    for i in range(targets.shape[1]):
        for j in range(targets.shape[1]):
            rows = [row for row in targets.tolist() if row[i] == 1 and row[j] != -1]
            expected = sum(row[j] == 1 for row in rows) / len(rows) if rows else 0
            assert conditional[i, j].item() == pytest.approx(expected)


def test_graph_by_hand():
    conditional = torch.tensor(
        [[1.0, 0.4, 0.5, 0.1], [0.9, 1.0, 0.39, 0.0], [0.0, 0.1, 1.0, 0.2], [0, 0, 0, 0]]
    )
    expected = torch.tensor([[0.8, 0.1, 0.1, 0], [0.2, 0.8, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    torch.testing.assert_close(reweighted_graph(conditional, 0.4, 0.2), expected)


def test_word_vectors_of_names_and_of_their_words(tmp_path: Path):
    file = tmp_path / "vectors.txt"
    file.write_text("the 9 9\ncat 1 2\nDining 3 4\ntable 5 8\nhot-dog 0 1\nhot 7 7\n")
    vectors = mean_word_vectors(file, ("Cat", "dining_table", "hot-dog"))
    torch.testing.assert_close(vectors, torch.tensor([[1.0, 2.0], [4.0, 6.0], [0.0, 1.0]]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2\n", r"vectors\.txt: has no vector for the words of label 'dog', 'two words'"),
        ("cat 1 2\ndog 1 2 3\n", r"line 2: 'dog' has 3 numbers; others have 2"),
        ("cat\n", r"line 1: no numbers follow 'cat'"),
        ("cat 1 x\n", r"line 1: what follows 'cat' are not all numbers"),
    ],
)
def test_unusable_word_vectors_are_named(text, message, tmp_path: Path):
    file = tmp_path / "vectors.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        mean_word_vectors(file, ("cat", "dog", "two words"))
    with pytest.raises(InputError, match=r"missing\.txt: cannot be read: No such file"):
        mean_word_vectors(tmp_path / "missing.txt", ("cat",))


def test_statistics_are_saved_with_the_model(tmp_path: Path):
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2\nb 3 4\nc 5 6\n")
    labels = ("a", "b", "c")
    options = MLGCNOptions(graph_width=16, word_vectors=file).resolved(pretrained=True, labels=labels)
    assert options.label_embedding_dim == 2
    description = ModelDescription(LabelRules(labels), options, "test_resnet", 32)
    classifier = build_classifier(description).eval()
    images = torch.rand(2, 3, 32, 32)
    without = classifier(images).logits
    targets = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 1, 1]])
    set_label_statistics(classifier.head, labels, targets)
    torch.testing.assert_close(
        classifier.head.graph, torch.tensor([[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0.2, 0.8]])
    )
    torch.testing.assert_close(
        classifier.head.label_embeddings.data, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    )
    assert not classifier.head.label_embeddings.requires_grad
    logits = classifier(images).logits
    assert not torch.allclose(logits, without)
    file.unlink()  # a model needs no file but its own
    save_model(tmp_path / "model", classifier, replace(description, method=options.for_model()))
    loaded, read = load_model(tmp_path / "model")
    torch.testing.assert_close(loaded(images).logits, logits)
    assert read.method.word_vectors is None


def test_word_vectors_of_another_width_are_refused(tmp_path: Path):
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2 3\nb 3 4 5\nc 5 6 7\n")
    options = MLGCNOptions(graph_width=16, label_embedding_dim=2, word_vectors=file)
    head = find_method("mlgcn").build_head(build_encoder("test_resnet"), 3, options)
    with pytest.raises(InputError, match="have 3 numbers; label_embedding_dim is 2"):
        set_label_statistics(head, ("a", "b", "c"), make_targets(5, 3))


def test_heads_without_use_for_statistics_are_left_alone():
    head = find_method("asl").build_head(build_encoder("test_resnet"), 3, AslOptions())
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    set_label_statistics(head, ("a", "b", "c"), make_targets(5, 3))
    torch.testing.assert_close(head.state_dict(), before)
