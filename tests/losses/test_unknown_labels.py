"""Labels that are not annotated, before and inside the losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kmcl.losses.unknown_labels import complete_targets, largest_losses, weak_negative_weight
from kmcl.methods import find_method
from kmcl.methods.output import HeadOutput
from kmcl.options import read_options
from kmcl.runs.settings import DataSettings
from kmcl.training.unknown_labels import UnknownLabels
from random_inputs import make_targets


def _logits(rows: int = 6, labels: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, labels, generator=torch.Generator().manual_seed(2), dtype=dtype)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.33, 0.5, 1.0])
def test_the_largest_losses_are_those_of_a_loop(share):
    logits, targets = _logits(), make_targets(6, 5, unknown=0.5)
    places = [(i, k) for i in range(6) for k in range(5) if targets[i, k] == -1]
    losses = {place: -torch.log1p(-logits[place].sigmoid()).item() for place in places}
    wanted = sorted(places, key=lambda place: -losses[place])[: int(share * len(places))]
    found = largest_losses(logits, targets, share)
    assert {tuple(place) for place in found.nonzero().tolist()} == set(wanted)


@pytest.mark.parametrize(
    "targets",
    [
        torch.ones(1, 1, dtype=torch.int8),
        torch.zeros(2, 3, dtype=torch.int8),
        -torch.ones(2, 3, dtype=torch.int8),
        torch.tensor([[1.0, float("nan"), 0.0]]),
        torch.zeros(0, 4, dtype=torch.int8),
    ],
)
def test_degenerate_batches(targets):
    unknown = (targets != 0) & (targets != 1)
    logits = torch.zeros(targets.shape)
    assert int(largest_losses(logits, targets, 0.5).sum()) == int(unknown.sum()) // 2
    assert not (largest_losses(logits, targets, 1.0) & ~unknown).any()
    absent = complete_targets(logits, targets, "negative")
    assert (absent[unknown] == 0).all()
    assert torch.equal(absent[~unknown], targets[~unknown])


def test_what_each_treatment_makes_of_unknown_labels():
    logits = torch.tensor([[3.0, -1.0, 0.5, 2.0]])
    targets = torch.tensor([[-1, -1, 1, -1]], dtype=torch.int8)
    expected = {
        "ignore": [-1, -1, 1, -1],
        "negative": [0, 0, 1, 0],
        "weak_negative": [0, 0, 1, 0],
        "ll_r": [-1, 0, 1, 0],
        "ll_ct": [1, 0, 1, 0],
    }
    for treatment, row in expected.items():
        assert complete_targets(logits, targets, treatment, 0.4).tolist() == [row]  # type: ignore[arg-type]


def test_a_share_outside_0_to_1_is_refused():
    with pytest.raises(ValueError, match="share must be"):
        largest_losses(_logits(), make_targets(6, 5), 1.5)


def _output(logits: torch.Tensor) -> HeadOutput:
    return HeadOutput(logits, torch.zeros(len(logits), 2), None)


def test_weak_negatives_have_their_weight_in_value_and_gradient():
    """Binary cross-entropy by a loop, with the weight 1 / (L - 1) on what is assumed absent."""
    targets = torch.tensor([[1, -1, -1, 0], [-1, -1, 1, -1]], dtype=torch.int8)
    logits = _logits(2, 4, torch.float64).requires_grad_()
    terms = UnknownLabels("weak_negative").loss(
        find_method("bce").compute_loss, _output(logits), targets, read_options({"name": "bce"})
    )
    expected = torch.zeros((), dtype=torch.float64)
    for i in range(2):
        for k in range(4):
            weight = 1 / 3 if targets[i, k] == -1 else 1.0
            sign = 1 if targets[i, k] == 1 else -1
            expected = expected - weight * torch.nn.functional.logsigmoid(sign * logits[i, k]) / 2
    torch.testing.assert_close(terms.total, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (terms.total, expected))
    )
    assert weak_negative_weight(4) == pytest.approx(1 / 3)
    assert weak_negative_weight(1) == 1


def test_rejected_labels_have_no_gradient_and_corrected_ones_rise():
    targets = torch.tensor([[1, -1, -1]], dtype=torch.int8)
    compute, options = find_method("bce").compute_loss, read_options({"name": "bce"})
    gradients = {}
    for treatment in ("negative", "ll_r", "ll_ct"):
        logits = torch.tensor([[0.0, 2.0, -2.0]], requires_grad=True)
        unknown = UnknownLabels(treatment, large_loss_share=0.5)  # type: ignore[arg-type]
        unknown.loss(compute, _output(logits), targets, options, progress=1.0).total.backward()
        assert logits.grad is not None
        gradients[treatment] = logits.grad[0].tolist()
    assert gradients["negative"][1] > 0
    assert gradients["ll_r"][1] == 0
    assert gradients["ll_ct"][1] < 0
    assert gradients["ll_r"][2] == gradients["ll_ct"][2] == gradients["negative"][2] > 0


def test_in_the_first_epoch_large_losses_count_as_absent():
    targets = torch.tensor([[1, -1, -1]], dtype=torch.int8)
    compute, options = find_method("asl").compute_loss, read_options({"name": "asl"})
    output = _output(torch.tensor([[0.0, 2.0, -2.0]]))
    first = UnknownLabels("ll_r", 0.9).loss(compute, output, targets, options, progress=0.0)
    negative = UnknownLabels("negative").loss(compute, output, targets, options)
    torch.testing.assert_close(first.total, negative.total)


def test_known_targets_are_the_same_under_every_treatment():
    output, targets = _output(_logits()), make_targets(6, 5)
    compute, options = find_method("asl").compute_loss, read_options({"name": "asl"})
    expected = compute(output, targets, options).total
    for treatment in ("ignore", "negative", "weak_negative", "ll_r", "ll_ct"):
        unknown = UnknownLabels(treatment, 0.5)  # type: ignore[arg-type]
        torch.testing.assert_close(unknown.loss(compute, output, targets, options, 1.0).total, expected)


def test_auto_ignores_unless_nothing_is_known_to_be_absent():
    some, single = np.array([[1, 0, -1]], np.int8), np.array([[1, -1, -1]], np.int8)
    settings = DataSettings(spec="digits")
    assert UnknownLabels.of_run(settings, some).treatment == "ignore"
    chosen = UnknownLabels.of_run(settings, single)
    assert chosen.treatment != "ignore"
    assert "no label is known to be absent" in (chosen.notice(single) or "")
    assert chosen.notice(np.array([[1, 0]], np.int8)) is None
    given = UnknownLabels.of_run(DataSettings(spec="digits", unknown="ignore"), single)
    assert given.treatment == "ignore"
