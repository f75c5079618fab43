"""`import kmcl`: training, evaluation and comparison from Python."""

from __future__ import annotations

import doctest

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import kmcl
import kmcl.api
from kmcl.training.lightning import Callback

BUDGET = {
    "epochs": 2,
    "batch_size": 10,
    "learning_rate": 1e-2,
    "workers": 0,
    "augmentation": "none",
    "progress": False,
}


class TwoConvolutions(torch.nn.Module):
    """A user's own encoder."""

    feature_dim = 8
    input_size = 16

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2)
        self.second = torch.nn.Conv2d(8, 8, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(images).relu()).relu()


@pytest.fixture(scope="module")
def frame(tmp_path_factory) -> pd.DataFrame:
    """Sixty pictures, red above or blue below, with their absolute paths."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    rows = []
    for index in range(60):
        pixels = rng.integers(0, 40, (16, 16, 3)).astype(np.uint8)
        red, blue = (int(value) for value in rng.random(2) < 0.5)
        pixels[:8, :, 0] += np.uint8(180 * red)
        pixels[8:, :, 2] += np.uint8(180 * blue)
        path = folder / f"{index}.png"
        Image.fromarray(pixels).save(path)
        rows.append({"image": str(path), "red": red, "blue": blue})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory) -> kmcl.Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return kmcl.train(frame, method="asl", encoder=TwoConvolutions(), output=folder, **BUDGET)


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch, quick_figures):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(kmcl.api)
    assert result.attempted >= 4
    assert result.failed == 0


def test_a_data_frame_and_an_encoder_of_ones_own_make_a_run(run, frame):
    assert run.settings.method.name == "asl"
    assert run.settings.encoder.name == f"module:{__name__}.TwoConvolutions"
    measured = run.metrics["test"]["evaluation"]["mean_average_precision"]
    assert kmcl.evaluate(run).mean_average_precision == measured
    assert kmcl.evaluate(run.predictions("test")).mean_average_precision == measured
    assert kmcl.evaluate(run.path, threshold=0.9).threshold == 0.9
    again = kmcl.open_dataset(run.settings.data.spec, **run.settings.data.options)
    opened = kmcl.open_dataset(frame)
    for name, split in opened.splits.items():
        np.testing.assert_array_equal(again.splits[name].targets, split.targets)


def test_a_model_with_an_encoder_of_ones_own_is_loaded_with_the_module(run, frame):
    with pytest.raises(kmcl.InputError, match=r"the user's own class \S*TwoConvolutions; pass it"):
        kmcl.load(run.path)
    predictor = kmcl.load(run.path, encoder=TwoConvolutions())
    table = predictor.predict(list(frame.image[:3])).to_frame(wide=True)
    assert list(table.columns) == ["red", "blue"]
    assert len(table) == 3
    torch.testing.assert_close(
        run.load(TwoConvolutions()).classifier.encoder.backbone.first.weight,
        predictor.classifier.encoder.backbone.first.weight,
    )


def test_a_report_is_written(run, quick_figures):
    page = run.report()
    assert page.is_file()
    assert "red" in page.read_text()


def test_a_dataset_in_memory_trains_and_is_resumed_with_it(frame, tmp_path):
    dataset = kmcl.open_dataset(frame, name="pictures")
    folder = tmp_path / "run"

    class StopAfterOneEpoch(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            raise KeyboardInterrupt

    from kmcl.runs.resolution import resolve_settings
    from settings_runs import train

    flags = {key: value for key, value in BUDGET.items() if key != "progress"}
    settings = resolve_settings(
        "memory:pictures", flags=flags | {"encoder": "test_resnet", "weights": "none"}
    )
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(settings, folder, callbacks=[StopAfterOneEpoch()], dataset=dataset)
    with pytest.raises(kmcl.InputError, match=r"a Dataset in memory; continue it in Python"):
        kmcl.resume(folder, progress=False)
    resumed = kmcl.resume(folder, data=dataset, progress=False)
    whole = kmcl.train(dataset, encoder="test_resnet", weights="none", output=tmp_path / "whole", **BUDGET)
    np.testing.assert_array_equal(resumed.predictions().scores, whole.predictions().scores)
    assert whole.settings.data.spec == "memory:pictures"


def test_mistakes_are_input_errors(run, frame, tmp_path):
    with pytest.raises(kmcl.InputError, match="exists and is not empty"):
        kmcl.train(frame, output=run.path)
    with pytest.raises(kmcl.InputError, match="unknown setting 'epoch'"):
        kmcl.train("digits", epoch=3, output=tmp_path / "a")
    with pytest.raises(kmcl.InputError, match="method asl has no option kernel; it is an option of kmcl"):
        kmcl.train("digits", method="asl", kernel="gaussian", output=tmp_path / "a")
    with pytest.raises(kmcl.InputError, match="kernel is an option of kmcl; none of these is compared: asl"):
        kmcl.compare("digits", ["asl"], kernel="gaussian")
    with pytest.raises(kmcl.InputError, match=r"unknown setting 'epoch' \(did you mean 'epochs'\?\)"):
        kmcl.compare("digits", ["asl"], epoch=3)
    with pytest.raises(kmcl.InputError, match="cannot share a Dataset in memory"):
        kmcl.compare(kmcl.open_dataset(frame), output=tmp_path / "b")
    with pytest.raises(kmcl.InputError, match="output must be given"):
        kmcl.compare(frame)
    assert not (tmp_path / "a").exists()


def test_methods_are_compared_on_a_data_frame(frame, tmp_path):
    budget = BUDGET | {"encoder": "test_resnet", "weights": "none", "image_size": 16}
    result = kmcl.compare(frame, ["asl", "bce"], seeds=[0], output=tmp_path / "study", **budget)
    assert [variant.name for variant in result.variants] == ["asl", "bce"]
    assert not result.failures
    written = {path.name for path in (tmp_path / "study").iterdir() if path.is_file()}
    assert written >= {"table.md", "comparison.svg", "comparison.png", "comparison.csv"}
    figures = (tmp_path / "study" / "comparison.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in figures] == ["method", "asl", "bce"]


def test_the_public_names_are_listed_and_there():
    assert set(dir(kmcl)) == set(kmcl.__all__)
    for name in kmcl.__all__:
        assert getattr(kmcl, name) is not None
