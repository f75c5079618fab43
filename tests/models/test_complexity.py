from __future__ import annotations

import json

import pytest
import torch
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

from kmcl.cli.complexity import complexity
from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError
from kmcl.kernels import KERNELS
from kmcl.methods import METHODS
from kmcl.methods.kmcl import KernelMixtureHead
from kmcl.models.complexity import Complexity, measure_complexity
from kmcl.models.method_complexity import measure_method
from kmcl.models.published_complexity import PUBLISHED, PublishedComplexity, published_counterpart
from kmcl.options.methods import AslOptions, KmclOptions
from kmcl.studies.published_tables import published_tables


def test_the_papers_figures_are_all_there() -> None:
    """Those of the two tables with complexity columns, one of which repeats a row of the other."""
    tables = published_tables()
    printed = {tuple(map(float, row[-2:])) for name in ("adp", "ablation") for row in tables[name].rows}
    assert {(row.parameters_millions, row.gmac) for row in PUBLISHED} == printed
    assert len(PUBLISHED) == 9
    assert {row.num_labels for row in PUBLISHED} == {9}


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.method}-{row.kernel}-{row.encoder}")
def test_our_count_is_the_papers(row: PublishedComplexity) -> None:
    ours = published_counterpart(row)
    if row.method == "TDRG":  # of which ours lacks parts, see docs/paper.md
        assert (round(ours.parameters_millions, 2), round(ours.gmac, 2)) == (56.21, 34.33)
        return
    assert round(ours.parameters_millions, 2) == row.parameters_millions
    assert ours.gmac == pytest.approx(row.gmac, rel=0.01)


def test_true_count_is_what_a_real_model_has() -> None:
    encoder = build_encoder("test_resnet", image_size=64)
    head = KernelMixtureHead(encoder.feature_dim, 5, "mahalanobis")
    held = sum(p.numel() for p in encoder.parameters()) + sum(p.numel() for p in head.parameters())
    options = KmclOptions(kernel="mahalanobis", query_width=0)
    by_name = measure_method("test_resnet", options, 5, 64)
    assert measure_complexity(encoder, head) == by_name
    assert by_name.parameters == held
    row = PublishedComplexity("KMCL", options, "test_resnet", 64, 0.0, 0.0, num_labels=5)
    as_in_paper = published_counterpart(row)
    assert as_in_paper.parameters - held == 5 * (encoder.feature_dim + 1)
    assert as_in_paper.macs == by_name.macs
    assert published_counterpart(row, paper_count=False) == by_name


def test_macs_of_convolutions_equal_a_hand_count() -> None:
    """Each kernel weight is used once per position of its layer's output map, at any image size."""
    encoder = build_encoder("test_resnet", image_size=64).eval()
    used = []

    def count(layer: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        used.append(layer.weight.numel() * output[0, 0].numel())

    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    for image_size in (64, 96):
        used.clear()
        with torch.no_grad():
            encoder(torch.zeros(1, 3, image_size, image_size))
        expected = sum(used)
        assert measure_complexity(encoder, nn.Identity(), image_size).macs == expected


def test_macs_of_attention_equal_a_hand_count() -> None:
    """Attention multiplies queries by keys and weights by values: 2 T^2 D per block, besides its layers."""
    encoder = build_encoder("test_vit")
    num_tokens, width, num_blocks = 1 + 10 * 10, 64, len(encoder.backbone.blocks)
    block_weights = sum(
        m.weight.numel() for m in encoder.backbone.blocks.modules() if isinstance(m, nn.Linear)
    )
    patches = 100 * encoder.backbone.patch_embed.proj.weight.numel()
    attention = num_blocks * 2 * num_tokens**2 * width
    expected = patches + num_tokens * block_weights + attention
    assert measure_complexity(encoder, nn.Identity()).macs == expected


class ReadsPositions(nn.Module):
    """A head like those that weigh positions: a linear score per position."""

    def __init__(self, spatial_dim: int, num_labels: int) -> None:
        super().__init__()
        self.score = nn.Linear(spatial_dim, num_labels)

    def forward(self, features: EncoderFeatures) -> Tensor:
        return self.score(features.spatial).amax(dim=1)


def test_heads_may_read_positions_and_the_model_is_left_as_it_was() -> None:
    encoder = build_encoder("mobilenetv3_small_050", image_size=64)
    encoder.backbone.conv_stem.eval()  # a frozen part stays frozen
    head = ReadsPositions(encoder.spatial_dim, 3)
    bare = measure_complexity(encoder, nn.Identity())
    measured = measure_complexity(encoder, head, reads="features")
    assert measured.parameters - bare.parameters == 3 * (encoder.spatial_dim + 1)
    assert measured.macs - bare.macs == 3 * encoder.spatial_dim * 4
    assert encoder.training
    assert not encoder.backbone.conv_stem.training
    assert next(encoder.parameters()).device.type == "cpu"


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(complexity)
    return app


def test_command_prints_the_counts(command: typer.Typer) -> None:
    arguments = ["--encoder", "test_resnet", "--labels", "5", "--image-size", "64"]
    rows = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    counted = {row["kernel"] or row["method"]: row for row in rows}
    assert list(counted) == [*KERNELS, *(name for name in METHODS if name != "kmcl")]
    options = {"asl": AslOptions()} | {
        kernel: KmclOptions.model_validate({"kernel": kernel, "query_width": 0}) for kernel in KERNELS
    }
    for name, chosen in options.items():
        row = counted[name]
        expected = measure_method("test_resnet", chosen, 5, 64)
        assert Complexity(row["parameters"], round(row["gmac"] * 1e9)) == expected
    table = CliRunner().invoke(command, [*arguments, "--kernel", "anisotropic"]).stdout
    assert "test_resnet at 64 px, 5 labels" in table
    assert f"{counted['anisotropic']['parameters'] / 1e6:.2f}" in table
    assert "kmcl (anisotropic)" in table
    assert "gaussian" not in table
    table = CliRunner().invoke(command, [*arguments, "--method", "csra"]).stdout
    assert "csra" in table
    assert "kmcl" not in table


def test_command_refuses_a_kernel_where_there_is_none(command: typer.Typer) -> None:
    result = CliRunner().invoke(command, ["--method", "asl", "--kernel", "gaussian"])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == "method 'asl' has no kernels; got kernel 'gaussian'"


def test_command_prints_the_papers_figures_beside_ours_in_80_columns(command: typer.Typer) -> None:
    result = CliRunner().invoke(command, ["--paper"], env={"COLUMNS": "80"})
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    assert [*("mahalanobis", "tresnet_m", "224", "71.34", "71.34", "71.32", "5.78", "5.78")] in rows
    assert ["ML-GCN", "resnet101", "448", "44.90", "44.90", "44.91", "31.39", "31.22"] in rows
    assert ["TDRG", "resnet101", "448", "75.20", "56.21", "56.21", "64.40", "34.33"] in rows
    assert ["CSRA", "resnet101", "448", "42.52", "42.52", "42.52", "31.39", "31.20"] in rows
    assert "…" not in result.stdout
    conflict = CliRunner().invoke(command, ["--paper", "--labels", "3"])
    assert isinstance(conflict.exception, InputError)
    assert "--labels" in str(conflict.exception)
