"""Runs with frozen stages and cached views: what they share, what they resume, what they predict."""

from __future__ import annotations

import csv
import io
import json
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from kmcl.data import open_dataset
from kmcl.data.decoding import DecodedImages
from kmcl.data.loading import LoaderSettings
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.features.runtime import FrozenRuntimes
from kmcl.features.store import FeatureCache
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier
from kmcl.models.folder import load_model
from kmcl.runs.resolution import resolve_settings
from kmcl.runs.settings import TrainingSettings
from kmcl.serving import load
from kmcl.storage.atomic import WriteError
from kmcl.training.lightning import Callback
from settings_runs import resume, train
from tiny_runs import TINY_CACHED

TINY = TINY_CACHED | {"query_width": 128}


def settings_with(cache: Path, **changes: object) -> TrainingSettings:
    values = TINY | {"cache_dir": cache} | changes
    if values.get("method", "kmcl") != "kmcl":
        values.pop("query_width")
    return resolve_settings("digits", flags=values)


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def epochs_of(run: Path) -> list[dict[str, float]]:
    with (run / "epochs.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory) -> Path:
    """Initial weights that do not depend on a run's seed, as pretrained ones do not."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / "encoder.pth"
    torch.save(build_encoder("test_resnet", image_size=32).backbone.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, weights_file: Path) -> Path:
    folder = tmp_path_factory.mktemp("cached")
    train(settings_with(folder / "cache", weights=str(weights_file)), folder / "run")
    return folder


class StopsAfter(Callback):
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_start(self, trainer, pl_module) -> None:
        if trainer.current_epoch == self.epochs:
            raise RuntimeError("stopped by the test")


def prepare(settings: TrainingSettings, folder: Path, output: Console) -> None:
    """The start of a run, with all its features, up to the first epoch."""
    with pytest.raises(RuntimeError, match="stopped by the test"):
        train(settings, folder, output, callbacks=[StopsAfter(0)])


def test_predictions_are_those_of_the_saved_model_on_the_images(finished: Path):
    predictor = load(finished / "run")
    for name in ("val", "test"):
        split = open_dataset("digits", size=120).splits[name]
        measured = Predictions.load(finished / "run" / "predictions" / f"{name}.npz")
        found = predictor.predict([split.images.load(index) for index in range(len(split))])
        scores = np.array([[label.score for label in prediction.labels] for prediction in found])
        # Features are cached as float16, and a part may weigh 8 times as much as the head.
        np.testing.assert_allclose(scores, measured.scores, atol=1e-3)
        assert np.ptp(measured.scores, axis=0).min() > 1e-2  # the scores differ between images by far more
    assert json.loads((finished / "run" / "metrics.json").read_text())["best"]["val_map"] > 0


def test_the_saved_model_is_whole_and_its_first_stages_are_the_initial_ones(
    finished: Path, weights_file: Path
):
    initial = torch.load(weights_file, weights_only=True)
    saved = load_file(finished / "run" / "model" / "model.safetensors")
    prefix = "encoder.backbone."
    assert {name.removeprefix(prefix) for name in saved if name.startswith(prefix)} == set(initial)
    for name, tensor in initial.items():
        frozen = name.startswith(("conv1", "bn1", "layer1", "layer2"))
        if "num_batches_tracked" not in name:
            assert torch.equal(saved[prefix + name], tensor) == frozen, name


def test_the_gaussian_process_has_the_later_stages_as_they_were_and_corrects_the_predictions(
    finished: Path, tmp_path: Path, weights_file: Path
):
    common = {"weights": str(weights_file)}
    train(settings_with(finished / "cache", posthoc="frozen_gp", **common), tmp_path / "process")
    classifier, description = load_model(tmp_path / "process" / "model")
    process = classifier.posthoc["frozen_gp"]
    assert process.sizes == {"num_images": 120, "last_map": 1, "stages": 3, "grid": 0}
    assert description.frozen_stages == 2
    initial = torch.load(weights_file, weights_only=True)
    for name, tensor in process.later_stages.state_dict().items():
        assert torch.equal(tensor, initial[name]), name
    train(settings_with(finished / "cache", posthoc="none", **common), tmp_path / "run")
    assert not load_model(tmp_path / "run" / "model")[0].posthoc
    before, after = (
        Predictions.load(run / "predictions" / "test.npz") for run in (tmp_path / "run", tmp_path / "process")
    )
    images = open_dataset("digits", size=120).splits["test"].images
    predictor = load(tmp_path / "process")
    resized = np.stack([predictor.resize(images.load(index)) for index in range(len(images))])
    with torch.no_grad():
        taps = classifier.encode(torch.from_numpy(resized).permute(0, 3, 1, 2)).taps
        correction = process(process.statistics(taps))
    logits = torch.logit(torch.from_numpy(before.scores)) + correction
    torch.testing.assert_close(torch.from_numpy(after.scores), logits.sigmoid(), atol=2e-3, rtol=0)
    assert np.abs(after.scores - before.scores).max() > 0.01


def test_other_methods_seeds_and_more_views_find_the_files(
    finished: Path, tmp_path: Path, weights_file: Path
):
    cache = finished / "cache"
    before = {path: path.stat().st_mtime_ns for path in cache.glob("*.features")}
    assert len(before) == 4  # two views of train, val, test
    output = console()
    common = {"weights": str(weights_file), "epochs": 1}
    train(
        settings_with(cache, method="asl", seed=3, learning_rate=1e-3, sampling="balanced", **common),
        tmp_path / "asl",
        output,
    )
    assert "features of" not in said(output)
    prepare(settings_with(cache, cached_views=3, sampling="partners", **common), tmp_path / "three", output)
    assert "features of train, view 3 of 3: 120 images" in said(output)
    assert "features of train, view 1" not in said(output)
    assert "features of val" not in said(output)
    after = {path: path.stat().st_mtime_ns for path in cache.glob("*.features")}
    assert len(after) == 5
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    "change",
    [
        {"augmentation": "photo"},
        {"frozen_stages": 1},
        {"image_size": 40},
        {"data_options": {"size": 120, "seed": 9}},
        {"weights": "none"},
    ],
)
def test_whatever_changes_the_features_changes_their_file(
    finished: Path, tmp_path: Path, weights_file: Path, change
):
    output = console()
    settings = settings_with(finished / "cache", **({"weights": str(weights_file), "epochs": 1} | change))
    prepare(settings, tmp_path / "run", output)
    assert "features of train, view 2 of 2: 120 images" in said(output)
    # The first view and that of val are not augmented.
    for view in ("features of train, view 1 of 2: 120 images", "features of val"):
        assert (view in said(output)) == ("augmentation" not in change)


def test_a_resumed_run_comes_to_the_same_numbers(tmp_path: Path):
    settings = settings_with(tmp_path / "cache", epochs=3, moving_average=0.9)
    train(settings, tmp_path / "whole")
    with pytest.raises(RuntimeError, match="stopped by the test"):
        train(settings, tmp_path / "broken", callbacks=[StopsAfter(1)])
    assert len(epochs_of(tmp_path / "broken")) == 1
    shutil.rmtree(tmp_path / "cache")  # the features can be computed again
    resume(tmp_path / "broken")
    assert epochs_of(tmp_path / "broken") == epochs_of(tmp_path / "whole")
    whole, broken = (
        Predictions.load(tmp_path / name / "predictions" / "test.npz") for name in ("whole", "broken")
    )
    np.testing.assert_array_equal(whole.scores, broken.scores)


def test_one_view_without_augmentation_trains_as_without_a_cache(tmp_path: Path):
    """The same numbers but for float16: the cache changes when features are computed, not what they are."""
    cache = tmp_path / "cache"
    # The scale of the vote is a choice on val, which rounding can turn.
    common = {"augmentation": "none", "query_width": 0, "posthoc": "frozen_gp"}
    train(settings_with(cache, cached_views=1, **common), tmp_path / "cached")
    train(settings_with(cache, cached_views=0, **common), tmp_path / "anew")
    for cached, anew in zip(epochs_of(tmp_path / "cached"), epochs_of(tmp_path / "anew"), strict=True):
        assert cached["train/loss"] == pytest.approx(anew["train/loss"], rel=2e-3)
    cached, anew = (
        Predictions.load(tmp_path / name / "predictions" / "test.npz") for name in ("cached", "anew")
    )
    np.testing.assert_allclose(cached.scores, anew.scores, atol=5e-4)
    assert np.ptp(anew.scores, axis=0).min() > 2e-3  # the scores differ between images by far more


def test_damage_on_the_disk_is_repaired_before_it_is_trained_on(tmp_path: Path):
    settings = settings_with(tmp_path / "cache", epochs=1)
    train(settings, tmp_path / "first")
    for path in (tmp_path / "cache").glob("*.features"):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"\x00\x7c" * 50)  # infinities
    train(settings, tmp_path / "second")
    assert epochs_of(tmp_path / "first") == epochs_of(tmp_path / "second")


def test_an_image_that_cannot_be_read_is_named_or_left_out(tmp_path: Path):
    from PIL import Image

    generator = np.random.default_rng(0)
    lines = ["image,split,a,b"]
    for number in range(40):
        Image.fromarray(generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(
            tmp_path / f"{number}.png"
        )
        split = "train" if number < 24 else "val" if number < 32 else "test"
        lines.append(f"{number}.png,{split},{number % 2},{number // 2 % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "5.png").write_bytes(b"no image")
    (tmp_path / "33.png").write_bytes(b"no image")
    changes = TINY | {"batch_size": 8, "epochs": 1, "cache_dir": tmp_path / "cache"}
    changes["data_options"] = {}
    word = f"table:{tmp_path / 'labels.csv'}"
    with pytest.raises(InputError, match=r"5\.png cannot be decoded"):
        train(resolve_settings(word, flags=changes), tmp_path / "refused")
    for run in ("computed", "found"):
        output = console()
        train(resolve_settings(word, flags=changes | {"skip_bad_images": True}), tmp_path / run, output)
        assert "1 of 24 images could not be read in train:" in said(output)
        predictions = Predictions.load(tmp_path / run / "predictions" / "test.npz")
        assert len(predictions.names) == 7
        assert not any(name.endswith("33.png") for name in predictions.names)
    assert "features of" not in said(output)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frozen_stages": 0}, r"cached_views 2 needs frozen_stages"),
        ({"augmentation": "none"}, r"cached_views 2 with augmentation 'none'"),
        ({"compile": True}, r"compile has no effect"),
        ({"cached_views": -1}, r"cached_views: .* greater than or equal to 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, changes, message):
    with pytest.raises(InputError, match=message):
        settings_with(tmp_path, **changes)


def test_too_many_stages_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"between 0 and 4, .*got 5"):
        train(settings_with(tmp_path, frozen_stages=5), tmp_path / "run")


def test_what_does_not_fit_on_the_disk_is_refused_beforehand(tmp_path: Path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("kmcl.storage.atomic.shutil.disk_usage", lambda folder: usage)
    needed = (
        r"\.features: cannot be written: No space left on device \([\d,]+ bytes needed, 1,000 bytes free\)"
    )
    with pytest.raises(WriteError, match=rf"{needed}; .*fewer --cached-views"):
        train(settings_with(tmp_path / "cache"), tmp_path / "run")


class PooledHead(torch.nn.Module):
    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.logits = torch.nn.Linear(feature_dim, 10)

    def forward(self, encoded) -> HeadOutput:
        return HeadOutput(self.logits(encoded.pooled), encoded.pooled, None)


def test_it_gives_any_program_the_features_of_a_split(tmp_path: Path):
    """Used without a run: rows as the encoder computes them, and the logits of the whole classifier."""
    torch.manual_seed(0)
    encoder = build_encoder("test_resnet", image_size=32, frozen_stages=2)
    split = open_dataset("digits", size=120).splits["test"]
    classifier = Classifier(encoder, PooledHead(encoder.feature_dim)).eval()
    loading = LoaderSettings(image_size=32, cache_dir=tmp_path, num_workers=0)
    cache = FeatureCache(classifier, loading, num_views=1, console=console())
    pixels, seen = DecodedImages(split.images, 32), 0
    for batch in cache.eval_loader(split, "test", batch_size=50):
        images = torch.from_numpy(pixels.rows(batch.indices.numpy()).pixels).permute(0, 3, 1, 2)
        assert batch.images.dtype == torch.float16
        with torch.no_grad():
            torch.testing.assert_close(batch.images, classifier.frozen_rows(images).half())
            found, expected = classifier.score_rows(batch.images).logits, classifier(images).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
        np.testing.assert_array_equal(batch.targets, split.targets[batch.indices])
        seen += len(batch.indices)
    assert seen == len(split)
    with pytest.raises(InputError, match="num_views must be at least 1; got 0"):
        FeatureCache(classifier, loading, num_views=0, console=console())
    trained = Classifier(build_encoder("test_resnet", image_size=32), classifier.head)
    with pytest.raises(InputError, match="needs an encoder with frozen stages"):
        FeatureCache(trained, loading, num_views=1, console=console())


def test_what_computes_features_is_gone_before_the_first_epoch(
    tmp_path: Path, weights_file: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[weakref.ref[object]] = []
    open_runtime = FrozenRuntimes.open

    def watched(*arguments):
        runtime = open_runtime(*arguments)
        opened.append(weakref.ref(runtime))
        return runtime

    monkeypatch.setattr(FrozenRuntimes, "open", watched)
    alive: list[bool] = []

    class Looks(Callback):
        def on_train_epoch_start(self, trainer, pl_module) -> None:
            alive.append(any(reference() is not None for reference in opened))

    settings = settings_with(tmp_path / "cache", weights=str(weights_file))
    train(settings, tmp_path / "run", callbacks=[Looks()])
    assert len(opened) == 1  # it is not needed again at the end of the run
    assert set(alive) == {False}
