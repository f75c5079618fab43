"""The loss and gradients of every method on one seeded batch, which moving its code must not change.

Parameters are created in the order of their random numbers: a head whose parts are built in another order
starts elsewhere. To write the numbers anew: `PYTHONPATH=tests python tests/methods/test_frozen_losses.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from frozen_numbers import assert_as_frozen, one_thread, write_frozen
from kmcl.evaluation.label_rules import LabelRules
from kmcl.methods import METHODS, find_method
from kmcl.methods.label_statistics import set_label_statistics
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options import read_options
from kmcl.options.methods import MethodOptions
from random_inputs import make_targets
from small_options import small_options

FROZEN = Path(__file__).with_name("frozen_losses.json")
LABELS = ("a", "b", "c")

OPTIONS: dict[str, MethodOptions] = {
    **{name: small_options(name) for name in METHODS},
    "kmcl without kernels": read_options({"name": "kmcl", "query_width": 16}),
    "kmcl anisotropic": small_options("kmcl", kernel="anisotropic"),
    "kmcl gaussian": small_options("kmcl", kernel="gaussian"),
    "kmcl as printed": small_options("kmcl", head_init="paper", normalise_dimension=False, query_width=0),
}


def step_to_numbers(options: MethodOptions) -> dict[str, Any]:
    """The loss, and the parameters in their order with the norms of their values and gradients."""
    with one_thread():
        torch.manual_seed(0)
        classifier = build_classifier(ModelDescription(LabelRules(LABELS), options, "test_convnext", 32))
        targets = make_targets(8, len(LABELS), seed=1)
        set_label_statistics(classifier.head, LABELS, targets.numpy())
        images = torch.randint(
            0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
        )
        terms = find_method(options.name).compute_loss(classifier.train()(images), targets, options)
        terms.total.backward()
    gradients = [p.grad for p in classifier.encoder.parameters() if p.grad is not None]
    return {
        "loss": terms.total.item(),
        "terms": {name: value.item() for name, value in terms.named.items()},
        "head": [[name, _norm(p), _norm(p.grad)] for name, p in classifier.head.named_parameters()],
        "encoder": _norm(torch.stack([gradient.norm() for gradient in gradients])),
    }


def _norm(values: torch.Tensor | None) -> float:
    return 0.0 if values is None else values.detach().norm().item()


@pytest.mark.parametrize("name", OPTIONS)
def test_one_step(name: str) -> None:
    assert_as_frozen(step_to_numbers(OPTIONS[name]), FROZEN, name)


if __name__ == "__main__":
    write_frozen(
        FROZEN,
        {name: step_to_numbers(each) for name, each in OPTIONS.items()},
        keep_others="--add" in sys.argv,
    )
