"""How a model is run in the service: batch size, threads, cores, and the optimised copy."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options.methods import KmclOptions
from kmcl.serving import OnnxPredictor, Predictor
from kmcl.serving.service.application import create_application
from kmcl.serving.throughput import best_batch_size, num_scoring_threads, optimised, shared_cores

from .conftest import make_image, make_predictor
from .talking import SlowPredictor, send

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


def make_convolutional() -> Predictor:
    """With batch normalisation, which the small model of the other tests has not."""
    torch.manual_seed(0)
    description = ModelDescription(
        rules=LabelRules(("ant", "bee")),
        method=KmclOptions(kernel="isotropic"),
        encoder="small_convnet",
        image_size=32,
    )
    predictor = Predictor(build_classifier(description), description)
    for module in predictor.classifier.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
    return predictor


@pytest.mark.parametrize(("side", "batch"), [(32, 32), (64, 32), (96, 16), (224, 4), (448, 1), (1024, 1)])
def test_batches_shrink_as_images_grow(side: int, batch: int):
    class Sized:
        image_size = side
        feature_dim = None

    assert best_batch_size(Sized()) == batch


@pytest.mark.parametrize(("number", "threads"), [(1, 1), (2, 2), (3, 3), (64, 4)])
def test_a_thread_for_each_core_up_to_four(cores, predictor: Predictor, number: int, threads: int):
    cores(number)
    assert num_scoring_threads(predictor) == threads


def test_one_thread_where_the_model_is_on_another_device(cores):
    cores(8)
    predictor = make_predictor()
    predictor.classifier.to("meta")
    assert num_scoring_threads(predictor) == 1
    assert best_batch_size(predictor) == 32


class Doubled(nn.Module):
    """What a convolution gives is used twice, so its normalisation cannot be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.convolution(images)
        return maps - self.norm(maps) / 2


@pytest.mark.parametrize("can_be_folded", [True, False])
def test_a_faster_copy_scores_the_same_and_the_given_model_stays(can_be_folded: bool):
    predictor = make_convolutional()
    if not can_be_folded:
        predictor.classifier.encoder.backbone.convolutions.insert(0, Doubled().eval())
        nn.init.constant_(predictor.classifier.encoder.backbone.convolutions[0].norm.running_mean, 0.5)
    modules = list(predictor.classifier.modules())
    strides = [parameter.stride() for parameter in predictor.classifier.parameters()]
    fast = optimised(predictor)
    assert has_norms(fast) == (not can_be_folded)
    assert not set(modules) & set(fast.classifier.modules())
    first = next(module for module in fast.classifier.modules() if isinstance(module, nn.Conv2d))
    assert first.weight.is_contiguous(memory_format=torch.channels_last)
    assert list(predictor.classifier.modules()) == modules
    assert [parameter.stride() for parameter in predictor.classifier.parameters()] == strides
    for ours, expected in zip(fast.score(IMAGES)[:3], predictor.score(IMAGES)[:3], strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def has_norms(predictor: Predictor) -> bool:
    return any(isinstance(module, nn.BatchNorm2d) for module in predictor.classifier.modules())


def test_a_predictor_with_a_way_of_its_own_keeps_it(predictor: Predictor):
    slow = SlowPredictor(predictor)
    assert optimised(slow) is slow


class Counting(SlowPredictor):
    """Remembers how many threads torch has when it scores."""

    def score(self, images):
        self.batches.append(torch.get_num_threads())
        return self._predictor.score(images)


def test_torch_has_a_share_of_the_cores_while_the_service_runs_and_all_after_it(cores, predictor: Predictor):
    cores(4)
    before = torch.get_num_threads()
    counting = Counting(predictor)
    application = create_application(counting)
    counting.batches.clear()

    async def serve() -> int:
        async with application.router.lifespan_context(application):
            await asyncio.wrap_future(application.state.service.batcher.submit(IMAGES))
        return torch.get_num_threads()

    try:
        torch.set_num_threads(3)
        assert asyncio.run(serve()) == 3
        assert counting.batches
        assert set(counting.batches) == {1}
        assert in_new_thread(torch.get_num_threads) == 3
    finally:
        torch.set_num_threads(before)


def in_new_thread(work: Callable[[], int]) -> int:
    return asyncio.run(asyncio.to_thread(work))


@pytest.mark.parametrize(("number", "threads", "of_session"), [(2, 2, 1), (4, 1, 4), (8, 4, 5), (1, 4, 1)])
def test_an_exported_model_uses_so_many_cores(
    cores, exported: Path, number: int, threads: int, of_session: int
):
    cores(number)
    predictor = OnnxPredictor(exported)
    session, expected = predictor.session, predictor.score(IMAGES)
    with shared_cores(predictor, threads):
        # Eight cores for four threads: themselves, and four of the session's own beside the first of them.
        assert predictor.session.get_session_options().intra_op_num_threads == of_session
        for ours, theirs in zip(predictor.score(IMAGES)[:3], expected[:3], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert predictor.session is session


def test_the_service_leaves_an_exported_predictor_as_it_is(cores, client_of, exported: Path):
    cores(2)
    predictor = OnnxPredictor(exported)
    session = predictor.session
    served = client_of(predictor).app.state.service.predictor
    assert served.session.get_session_options().intra_op_num_threads == 1
    assert predictor.session is session
    assert session.get_session_options().intra_op_num_threads == 0


SERVE_WITHOUT_TORCH = """
import sys
from pathlib import Path
sys.modules["torch"] = None
from starlette.testclient import TestClient
from kmcl import load
from kmcl.serving.service.application import create_application
with TestClient(create_application(load(sys.argv[1]))) as client:
    sys.stdout.write(client.post("/v1/predict", files={"images": Path(sys.argv[2]).read_bytes()}).text)
"""


def test_an_exported_model_is_served_where_torch_is_not_installed(exported: Path, tmp_path, client_of):
    (tmp_path / "0.png").write_bytes(make_image(0))
    command = [sys.executable, "-c", SERVE_WITHOUT_TORCH, str(exported), str(tmp_path / "0.png")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    expected = send(client_of(OnnxPredictor(exported)), make_image(0)).json()
    assert json.loads(result.stdout)["images"][0]["labels"] == expected["images"][0]["labels"]
