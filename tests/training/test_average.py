"""The moving average of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kmcl.training.task import MovingAverage


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize("warmup", [False, True])
def test_weights_and_running_statistics_follow_the_formula(warmup):
    model = make_model()
    average = MovingAverage(model, 0.9, warmup=warmup)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for step in range(1, 6):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * step)
        model(torch.randn(4, 3))
        average.update(model)
        decay = min(0.9, (1 + step) / (10 + step)) if warmup else 0.9
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * tensor
            else:
                expected[name] = tensor.clone()
    torch.testing.assert_close(average.model.state_dict(), expected)
    assert average.model[1].num_batches_tracked == 5


def test_a_model_that_was_replaced_or_moved_is_followed_and_constant_tensors_are_not():
    model = make_model()
    average = MovingAverage(model, 0.5, warmup=False, constant=["0.bias"])
    average.update(model)
    average.double()
    model = make_model().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    model[1].running_mean.fill_(3)
    model = model.to(torch.float32).double()  # other tensors as buffers
    expected = {
        name: (tensor + model.state_dict()[name]) / 2 for name, tensor in average.model.state_dict().items()
    }
    expected |= {"0.bias": average.model[0].bias.clone(), "1.num_batches_tracked": torch.tensor(0)}
    average.update(model)
    torch.testing.assert_close(average.model.state_dict(), expected)


def test_it_is_neither_trained_nor_in_training_mode():
    average = MovingAverage(make_model(), 0.9, warmup=False)
    average.train()
    assert not any(module.training for module in average.modules())
    assert not any(parameter.requires_grad for parameter in average.parameters())


def test_its_state_is_restored():
    model = make_model()
    average = MovingAverage(model, 0.9, warmup=True)
    average.update(model)
    other = MovingAverage(make_model(), 0.9, warmup=True)
    other.load_state_dict(average.state_dict())
    assert other.num_updates == 1
