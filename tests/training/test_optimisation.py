"""Which parameters decay, and the shape of the schedule."""

from __future__ import annotations

import pytest
import torch

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options.methods import KmclOptions
from kmcl.runs.resolution import resolve_settings
from kmcl.training.task import make_optimiser, parameter_groups


@pytest.fixture(scope="module")
def classifier():
    return build_classifier(ModelDescription(LabelRules(("a", "b")), KmclOptions(), "test_resnet", 32))


def test_biases_and_norms_do_not_decay_and_nothing_is_forgotten(classifier):
    flags = {"weight_decay": 0.3, "head_learning_rate_factor": 5.0}
    settings = resolve_settings("digits", flags=flags).optimisation
    groups = parameter_groups(classifier, settings)
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    rate = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(list(classifier.parameters())) == len(decay)
    for name, parameter in classifier.named_parameters():
        is_free = name.endswith("bias") or ".bn" in name or parameter.ndim == 1
        assert decay[id(parameter)] == (0 if is_free else 0.3), name
        expected = settings.learning_rate * (5 if name.startswith("head.") else 1)
        assert rate[id(parameter)] == pytest.approx(expected), name


def test_one_cycle_peaks_after_the_warmup(classifier):
    settings = resolve_settings("digits", "paper").optimisation
    optimiser, schedule = make_optimiser(classifier, settings, num_steps=100)
    rates = []
    for _ in range(100):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step() if len(rates) < 100 else None
    assert rates.index(max(rates)) == pytest.approx(19, abs=1)
    assert max(rates) == pytest.approx(2e-4, rel=1e-3)
    assert rates[0] < 1e-5
    assert rates[-1] < 1e-8
    assert isinstance(optimiser, torch.optim.Adam)


@pytest.mark.parametrize("num_steps", [1, 2, 5, 10])
def test_short_trainings_have_rates_too(classifier, num_steps: int):
    """Of five steps the first alone is the rise, by which torch's schedule divides."""
    settings = resolve_settings("digits", flags={"warmup_fraction": 1 / max(num_steps, 2)}).optimisation
    optimiser, schedule = make_optimiser(classifier, settings, num_steps)
    rates = []
    for _ in range(num_steps):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert all(0 < rate <= settings.learning_rate for rate in rates)
