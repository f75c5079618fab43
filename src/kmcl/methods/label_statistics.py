"""Co-occurrence of the labels in the training targets, for the methods that start from it.

A head that needs it has a method `set_label_statistics`, called once before training. What the head computes
from it is stored in buffers, saved with the model: loading a model needs no training data.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.kernels.targets import read_targets
from kmcl.shapes import Float


class LabelStatistics(NamedTuple):
    """labels: their names. conditional[i, j]: how often label j is present if i is."""

    labels: tuple[str, ...]
    conditional: Float[Tensor, "L L"]


@runtime_checkable
class UsesLabelStatistics(Protocol):
    """A head that needs the label statistics before training."""

    def set_label_statistics(self, statistics: LabelStatistics) -> None: ...


def set_label_statistics(head: nn.Module, labels: tuple[str, ...], targets: Any) -> None:
    """Give a head the statistics of the training targets (B x L: 1, 0, unknown -1), if it uses them."""
    if isinstance(head, UsesLabelStatistics):
        conditional = conditional_frequencies(torch.as_tensor(targets))
        head.set_label_statistics(LabelStatistics(labels, conditional))


def conditional_frequencies(targets: Tensor) -> Float[Tensor, "L L"]:
    """P(j | i) = images with i and j / images with i of which j is known; 0 where there are none."""
    annotation = read_targets(targets)
    positive, known = annotation.positive.double(), annotation.known.double()
    together, seen = positive.T @ positive, positive.T @ known
    return (together / seen.clamp(min=1)).float()


def reweighted_graph(
    conditional: Float[Tensor, "L L"], threshold: float, neighbour_weight: float
) -> Float[Tensor, "L L"]:
    """ML-GCN's label graph: rare co-occurrences are dropped, and neighbours share a fixed weight.

        A_ij = 1 if P(j | i) >= τ and i ≠ j, else 0
        A'_ij = p A_ij / Σ_k A_ik for i ≠ j,   A'_ii = 1 - p

    τ: threshold. p: neighbour_weight, the total weight of a label's neighbours. A label without neighbours
    keeps all its weight, A'_ii = 1, so every row adds up to 1.
    """
    is_self = torch.eye(len(conditional), dtype=torch.bool, device=conditional.device)
    is_neighbour = (conditional >= threshold) & ~is_self
    count = is_neighbour.sum(dim=1, keepdim=True)
    own = torch.where(count > 0, 1 - neighbour_weight, 1.0)
    return torch.where(is_self, own, neighbour_weight * is_neighbour / count.clamp(min=1))


@lru_cache(maxsize=1)  # their width is needed to build the head, before the head reads them
def read_word_vectors(path: Path, labels: tuple[str, ...]) -> Float[Tensor, "L E"]:
    """The vectors of the labels' names from a text file as GloVe's: a word and its numbers on each line.

    A label gets the vector of its whole name if the file has one, else the mean of the vectors of its words.
    """
    names = {label: (label.lower(), *re.findall(r"[^\W_]+", label.lower())) for label in labels}
    wanted = {word for words in names.values() for word in words}
    found: dict[str, list[float]] = {}
    width = None
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.rstrip().partition(" ")
                if word.lower() not in wanted or word.lower() in found:
                    continue
                found[word.lower()] = vector = _numbers(path, number, word, numbers)
                width = width or len(vector)
                if len(vector) != width:
                    raise InputError(
                        f"{path}, line {number}: {word!r} has {len(vector)} numbers; others have {width}"
                    )
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    vectors = {label: [found[word] for word in words if word in found] for label, words in names.items()}
    missing = [label for label, known in vectors.items() if not known]
    if missing:
        raise InputError(f"{path}: has no vector for the words of label {', '.join(map(repr, missing))}")
    rows = [
        torch.tensor(found.get(label.lower()) or vectors[label]).view(-1, width or 1).mean(dim=0)
        for label in labels
    ]
    return torch.stack(rows)


def _numbers(path: Path, line: int, word: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split()]
    except ValueError:
        raise InputError(f"{path}, line {line}: what follows {word!r} are not all numbers") from None
