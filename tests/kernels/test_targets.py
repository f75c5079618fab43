"""Targets as masks: what is present, absent and unknown, and what is refused."""

from __future__ import annotations

import pytest
import torch

from kmcl.kernels import Targets, read_targets

NAN = float("nan")


@pytest.mark.parametrize("unknown", [-1.0, NAN])
def test_present_absent_and_unknown(unknown):
    found = read_targets(torch.tensor([[1.0, 0.0, unknown], [unknown] * 3, [0.0, 0.0, 1.0]]))
    assert found.positive.tolist() == [[True, False, False], [False] * 3, [False, False, True]]
    assert found.negative.tolist() == [[False, True, False], [False] * 3, [True, True, False]]
    assert found.known.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert found.num_images.item() == 2
    assert len(found) == 3
    assert (found.shape, found.device) == ((3, 3), torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float16])
def test_any_real_type_is_read(dtype):
    found = read_targets(torch.tensor([[1, 0]]).to(dtype))
    assert (found.positive.tolist(), found.negative.tolist()) == ([[True, False]], [[False, True]])


@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match=r"targets must be 0, 1 or .* got 2 for image 1, label 2$"):
        read_targets(torch.tensor([[0, 1, -1], [0, 1, 2], [3, 3, 3]]))
    with pytest.raises(ValueError, match=r"others must be 0, 1 or .* got 0\.5 for image 0, label 0$"):
        read_targets(torch.tensor([[0.5]]), "others")
    with pytest.raises(ValueError, match=r"^targets must be B x L; got shape \(3,\)"):
        read_targets(torch.zeros(3))
    with pytest.raises(ValueError, match=r"^targets must be a real, integer or bool tensor; got torch.compl"):
        read_targets(torch.zeros(2, 3, dtype=torch.complex64))


def test_checked_targets_cannot_be_changed():
    targets = read_targets(torch.zeros(1, 2))
    with pytest.raises(AttributeError, match="cannot assign"):
        targets.positive = targets.negative  # type: ignore[misc]
    assert isinstance(targets, Targets)
