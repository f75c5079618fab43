"""The Kernel Mixture Module."""

from __future__ import annotations

import pytest
import torch

from kmcl.errors import InputError
from kmcl.kernels import KERNELS, log_components, log_kernel
from kmcl.losses import KMCLObjective
from kmcl.methods.kmcl import KernelMixtureHead, objective_settings
from kmcl.runs.resolution import resolve_settings


@pytest.mark.parametrize("kernel", KERNELS)
def test_forward_is_the_appendix(kernel):
    head = KernelMixtureHead(3, 4, kernel, variance_epsilon=1e-3).double()
    features = torch.randn(2, 3, dtype=torch.float64)
    mixture = head(features)
    torch.testing.assert_close(mixture.probabilities, torch.sigmoid(head.logits(features)))
    torch.testing.assert_close(mixture.means.flatten(1), head.means(features))
    raw = head.variances(features)
    expected = torch.where(raw > 0, raw, raw.exp() - 1) + 2 + 1e-3
    torch.testing.assert_close(mixture.variances.flatten(1), expected)
    assert (mixture.variances > 1).all()


@pytest.mark.parametrize(
    ("kernel", "count"),
    [
        ("isotropic", 3 * 9 * 2049),
        ("gaussian", (2 * 9 + 1) * 2049),
        ("mahalanobis", (9 + 9 * 2048 + 2048) * 2049),
        ("anisotropic", (9 + 2 * 9 * 2048) * 2049),
    ],
)
def test_parameter_counts(kernel, count):
    with torch.device("meta"):
        head = KernelMixtureHead(2048, 9, kernel)
    assert sum(parameter.numel() for parameter in head.parameters()) == count


def test_the_papers_initial_values():
    torch.manual_seed(0)
    head = KernelMixtureHead(64, 20)
    for layer in (head.logits, head.means):
        assert layer.weight.min() > 0
        assert layer.weight.max() <= 0.1
        assert layer.weight.mean().item() == pytest.approx(0.05, abs=0.005)
        assert (layer.bias == 0).all()
    assert (head.variances.weight == 1).all()
    assert (head.variances.bias == 0).all()


def test_small_initial_values_start_every_label_alike():
    mixture = KernelMixtureHead(64, 20, init="small")(torch.rand(8, 64))
    assert (mixture.probabilities - 0.5).abs().max() < 0.1
    assert mixture.means.abs().max() < 0.3
    assert (mixture.variances - 2).abs().max() < 0.3


def test_normalised_dimension_takes_the_mean_of_the_exponents():
    features = torch.rand(3, 10, dtype=torch.float64)
    plain = KernelMixtureHead(10, 4).double()
    scaled = KernelMixtureHead(10, 4, normalise_dimension=True).double()
    scaled.load_state_dict(plain.state_dict())
    expected = log_kernel(features, plain(features)) / 10
    torch.testing.assert_close(log_kernel(features, scaled(features)), expected)


def test_half_precision_features_give_float32_parameters():
    head = KernelMixtureHead(4096, 3)
    features = torch.full((1, 4096), 1000.0, dtype=torch.float16)
    mixture = head(features)
    assert mixture.variances.dtype == torch.float32
    assert mixture.variances[0, 0].item() == pytest.approx(4096 * 1000 + 2)  # float16 ends at 65,504
    assert torch.isfinite(log_components(features, mixture)).all()
    assert torch.isfinite(head.half()(features).variances).all()


def test_released_initial_values_are_torchs_for_the_mixture_and_the_papers_otherwise():
    torch.manual_seed(0)
    head = KernelMixtureHead(400, 30, init="released")
    weights, bound = head.logits.weight, 1 / 400**0.5
    assert weights.abs().max() <= bound
    assert weights.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)  # of a uniform distribution
    assert abs(weights.mean().item()) < 0.02 * bound
    assert head.logits.bias.abs().max() <= bound
    assert (head.logits.bias != 0).all()
    assert 0 < head.means.weight.min() < head.means.weight.max() <= 0.1
    assert (head.variances.weight == 1).all()
    assert not head.means.bias.any()
    assert not head.variances.bias.any()


def test_export():
    head = KernelMixtureHead(6, 3).eval()

    class Probabilities(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return self.head(features).probabilities

    features = torch.rand(4, 6)
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(Probabilities(), (features,), dynamic_shapes={"features": {0: batch}})
    torch.testing.assert_close(exported.module()(features[:3]), head(features[:3]).probabilities)


@pytest.mark.parametrize("preset", ["kernels", "paper", "released"])
def test_presets_in_python_are_those_of_the_command_line(preset):
    settings = resolve_settings("digits", preset)
    assert KMCLObjective.from_preset(preset).settings == objective_settings(settings.method)
    head = KernelMixtureHead.from_preset(preset, 8, 3)
    assert head.kernel == settings.method.kernel
    assert head.normalise_dimension == settings.method.normalise_dimension
    torch.manual_seed(0)
    expected = KernelMixtureHead(8, 3, init=settings.method.head_init).state_dict()
    torch.manual_seed(0)
    torch.testing.assert_close(dict(KernelMixtureHead.from_preset(preset, 8, 3).state_dict()), dict(expected))


def test_an_unknown_preset_is_named():
    for make in (KMCLObjective.from_preset, lambda name: KernelMixtureHead.from_preset(name, 8, 3)):
        with pytest.raises(InputError, match="preset must be one of kernels, paper, released; got 'mine'"):
            make("mine")


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"num_labels must be at least 1; got 0"):
        KernelMixtureHead(4, 0)
    with pytest.raises(InputError, match=r"init must be one of paper, released, small; got 'zeros'"):
        KernelMixtureHead(4, 2, init="zeros")
    with pytest.raises(InputError, match=r"kernel must be one of isotropic, .*; got 'cubic'"):
        KernelMixtureHead(4, 2, "cubic")
    with pytest.raises(ValueError, match=r"elu_alpha must be above 0 and at most 2.* got 3"):
        KernelMixtureHead(4, 2, elu_alpha=3)
    with pytest.raises(ValueError, match=r"features must be B x 4; got shape \(2, 5\)"):
        KernelMixtureHead(4, 2)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"features must be floating point; got torch\.int64"):
        KernelMixtureHead(4, 2)(torch.zeros(2, 4, dtype=torch.int64))
