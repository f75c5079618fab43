"""A training step waits for its device once to check its inputs, and where it must know a size."""

from __future__ import annotations

import pytest
import torch

from kmcl.kernels import KERNELS
from kmcl.kernels.targets import Targets, read_targets
from kmcl.losses import asymmetric_loss, kmcl_objective
from kmcl.losses.arguments import NonFiniteError, check_inputs
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import AslOptions
from random_inputs import make_mixture, make_targets
from synchronisations import CountSynchronisations


def test_the_count_sees_what_waits():
    values = torch.arange(4.0)
    with CountSynchronisations() as seen:
        bool(values[0] > 0)
        values[1].item()
        values.nonzero()
        values.tolist()
        values[values > 1]
        values.unique_consecutive()
    assert seen.counts == {
        "_local_scalar_dense": 2,
        "nonzero": 1,
        "tolist": 1,
        "index by a mask": 1,
        "unique_consecutive": 1,
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("num_branches", [0, 2])
def test_the_objective_checks_once(kernel, num_branches):
    mixture = make_mixture(kernel, 8, 5, 6)
    for tensor in (mixture.logits, mixture.means, mixture.variances):
        tensor.requires_grad_()
    branches = [2 * mixture.logits] * num_branches
    with CountSynchronisations() as seen:
        terms = kmcl_objective(torch.ones(8, 6), mixture, make_targets(8, 5), branches=branches)
        terms.total.backward()
    # One check; the rows of Eq. 5 and the active pairs of Eq. 7.
    expected = {"_local_scalar_dense": 1, "nonzero": 2}
    if KERNELS[kernel].means_per_dimension:
        expected |= {"unique_consecutive": 1, "tolist": 1}  # the blocks of pairs with the same label
    assert seen.counts == expected


def test_asl_checks_once():
    logits = torch.randn(8, 5, requires_grad=True)
    output = HeadOutput(logits, torch.ones(8, 6), None)
    with CountSynchronisations() as seen:
        asl_loss(output, make_targets(8, 5), AslOptions()).total.backward()
    assert seen.counts == {"_local_scalar_dense": 1}


def test_checked_targets_are_taken_as_they_are():
    raw = make_targets(8, 5, unknown=0.3)
    checked = read_targets(raw)
    assert isinstance(checked, Targets)
    assert read_targets(checked) is checked
    logits = torch.randn(8, 5)
    assert torch.equal(asymmetric_loss(logits, checked), asymmetric_loss(logits, raw))
    with CountSynchronisations() as seen:
        asymmetric_loss(logits, checked)
    assert not seen.counts


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["features", "mixture.logits", "mixture.means", "mixture.variances"])
def test_the_objective_names_what_is_not_finite(name, value):
    mixture = make_mixture("isotropic", 8, 5, 6)
    tensors = {"features": torch.ones(8, 6), "mixture.logits": mixture.logits}
    tensors |= {"mixture.means": mixture.means, "mixture.variances": mixture.variances}
    tensors[name][3, 2] = value
    with pytest.raises(NonFiniteError, match=rf"{name} must be finite; got {value} at position \[3, 2\]"):
        kmcl_objective(tensors["features"], mixture, make_targets(8, 5))


def test_inputs_of_any_precision_and_none_at_all():
    tensors = {
        "half": torch.ones(3, dtype=torch.float16),
        "double": torch.full((2,), 1e300, dtype=torch.float64),
    }
    assert len(check_inputs(torch.zeros(2, 1), tensors | {"empty": torch.empty(0, 4)})) == 2
    with pytest.raises(ValueError, match=r"half must be floating point; got torch\.int64"):
        check_inputs(torch.zeros(2, 1), {"half": torch.ones(3, dtype=torch.int64)})
    with pytest.raises(ValueError, match="targets must be 0, 1 or unknown"):
        check_inputs(torch.full((2, 1), 7), tensors)
