"""The checks that the losses share: bounds, the first wrong value, and what a mean divides by."""

from __future__ import annotations

import math

import pytest
import torch

from kmcl.kernels import read_targets
from kmcl.losses import (
    AsymmetricLoss,
    ContrastiveLoss,
    ObjectiveSettings,
    asymmetric_loss,
    contrastive_loss,
)
from kmcl.losses.arguments import (
    NonFiniteError,
    check_between,
    check_finite,
    check_inputs,
    mean_over_images,
)
from random_inputs import make_mixture, make_targets


def with_margin(margin: float) -> list:
    logits, targets = torch.zeros(2, 3), make_targets(2, 3)
    return [
        lambda: ObjectiveSettings(probability_margin=margin),
        lambda: AsymmetricLoss(probability_margin=margin),
        lambda: asymmetric_loss(logits, targets, probability_margin=margin),
    ]


def with_temperature(temperature: float) -> list:
    mixture, targets = make_mixture("isotropic", 3, 2, 4), make_targets(3, 2)
    return [
        lambda: ObjectiveSettings(temperature=temperature),
        lambda: ContrastiveLoss(temperature=temperature),
        lambda: contrastive_loss(mixture, targets, temperature=temperature),
    ]


@pytest.mark.parametrize("margin", [0, 0.5, 0.999])
def test_a_margin_up_to_its_bounds_is_taken(margin):
    settings, module, loss = (use() for use in with_margin(margin))
    assert settings.probability_margin == module.probability_margin == margin
    assert torch.isfinite(loss)


@pytest.mark.parametrize("margin", [-1e-6, 0.9991, 1.0, math.inf, math.nan])
def test_a_margin_outside_its_bounds_is_refused(margin):
    message = rf"^probability_margin must be a finite number at least 0 and at most 0\.999; got {margin}$"
    for use in with_margin(margin):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 1e6])
def test_any_temperature_above_zero_is_taken(temperature):
    settings, module, loss = (use() for use in with_temperature(temperature))
    assert settings.temperature == module.temperature == temperature
    assert torch.isfinite(loss)


@pytest.mark.parametrize("temperature", [0, -0.1, math.inf, math.nan])
def test_another_temperature_is_refused(temperature):
    for use in with_temperature(temperature):
        with pytest.raises(
            ValueError, match=rf"^temperature must be a finite number above 0; got {temperature}$"
        ):
            use()


@pytest.mark.parametrize("name", ["positive_focus", "negative_focus"])
def test_a_focus_is_at_least_zero(name):
    logits, targets = torch.zeros(2, 3), make_targets(2, 3)
    uses = [
        lambda value: ObjectiveSettings(**{name: value}),
        lambda value: AsymmetricLoss(**{name: value}),
        lambda value: asymmetric_loss(logits, targets, **{name: value}),
    ]
    for use in uses:
        use(0)
        use(7.5)
        for value in (-0.5, math.inf):
            with pytest.raises(
                ValueError, match=rf"^{name} must be a finite number at least 0; got {value}$"
            ):
                use(value)


@pytest.mark.parametrize("name", ["reconstruction_weight", "classification_weight", "contrastive_weight"])
def test_a_weight_may_be_zero_but_not_below(name):
    assert getattr(ObjectiveSettings(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match=rf"^{name} must be a finite number at least 0; got -0\.1$"):
        ObjectiveSettings(**{name: -0.1})


def test_both_bounds_are_inside_unless_the_lower_is_open():
    for value in (2, 3, 4):
        check_between("x", value, 2, 4)
    check_between("x", 2.1, 2, 4, open_low=True)
    for value, options in ((1.9, {}), (4.1, {}), (2, {"open_low": True}), (4.1, {"open_low": True})):
        with pytest.raises(ValueError, match=r"^x must be"):
            check_between("x", value, 2, 4, **options)


def test_the_first_of_several_wrong_values_is_named():
    tensor = torch.ones(2, 3)
    tensor[0, 2], tensor[1, 0] = math.inf, math.nan
    with pytest.raises(NonFiniteError, match=r"^x must be finite; got inf at position \[0, 2\]$"):
        check_finite("x", tensor)
    low = torch.tensor([[1.0, 1.0], [-2.0, 0.0]])
    with pytest.raises(ValueError, match=r"^x must be above 0; got -2 at position \[1, 0\]$"):
        check_inputs(torch.zeros(1, 1), {"x": low}, above_zero=("x",))
    assert len(check_inputs(torch.zeros(1, 1), {"x": low})) == 1
    with pytest.raises(ValueError, match=r"^targets must be 0, 1 or unknown"):
        check_inputs(torch.full((1, 1), 7), {"x": torch.ones(1)}, above_zero=("x",))
    check_finite("x", low)
    with pytest.raises(ValueError, match=r"^x must be floating point; got torch\.int64$"):
        check_finite("x", torch.ones(2, dtype=torch.int64))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_infinity_is_named_also_where_values_must_be_above_zero(value):
    with pytest.raises(NonFiniteError, match=rf"^x must be finite; got {value} at position \[1\]$"):
        check_inputs(torch.zeros(1, 1), {"x": torch.tensor([1.0, value])}, above_zero=("x",))


@pytest.mark.usefixtures("no_shape_checks")
def test_targets_of_another_shape_are_named():
    with pytest.raises(ValueError, match=r"^targets must be B x L; got shape \(3,\)$"):
        check_inputs(torch.zeros(3), {})


def test_a_mean_divides_by_the_images_with_a_known_label_or_the_number_given():
    targets = read_targets(torch.tensor([[1, -1], [-1, -1], [0, 0], [0, 1]]))
    total = torch.tensor(12.0)
    assert mean_over_images(total, targets, None).item() == 4
    assert mean_over_images(total, targets, 6).item() == 2
    assert mean_over_images(total, targets, torch.tensor(8.0)).item() == 1.5
    # Never by less than 1: a process of several may have no image with a known label.
    assert mean_over_images(total, targets, 0.5).item() == 12
    assert mean_over_images(total, targets, torch.tensor(0.5)).item() == 12
    assert mean_over_images(total, targets, 1).item() == 12
    assert mean_over_images(total, read_targets(torch.full((2, 2), -1)), None).item() == 12
    assert mean_over_images(total, read_targets(torch.ones(1, 2)), None).item() == 12
