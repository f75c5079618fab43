"""What a report computes itself: curves, neighbours, corruptions, losses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve

from kmcl.evaluation.ranking import operating_points
from kmcl.reports.corruption import corrupt, corruption_curves
from kmcl.reports.examples import ranked
from kmcl.reports.features import label_centroids, labels_with_room, neighbours_sharing_a_label
from kmcl.reports.measured import RECALLS, interpolated_precision, measure
from kmcl.reports.run_parts import RunParts
from kmcl.reports.scores import label_table, metric_table
from kmcl.reports.training import loss_pictures, loss_terms, map_picture, normalise


def test_interpolated_precision_is_the_best_at_this_recall_or_beyond():
    generator = np.random.default_rng(0)
    scores, positive = generator.random(60), generator.random(60) < 0.3
    found = interpolated_precision(operating_points(scores, positive))
    precision, recall, _ = precision_recall_curve(positive, scores)
    # scikit-learn adds a point of precision 1 at recall 0 that no threshold gives.
    precision, recall = precision[:-1], recall[:-1]
    expected = [precision[recall >= wanted - 1e-12].max() for wanted in RECALLS]
    np.testing.assert_allclose(found, expected)
    assert np.isnan(interpolated_precision(operating_points(scores, np.zeros(60, bool)))).all()


def test_a_report_says_when_metrics_and_predictions_disagree(breakable_run):
    agreeing = RunParts(breakable_run, "run")
    found = measure(agreeing)
    stated = json.loads((breakable_run / "metrics.json").read_text())
    assert found.evaluation.mean_average_precision == stated["test"]["evaluation"]["mean_average_precision"]
    assert found.summary.map_interval.low == stated["test"]["map_interval"]["low"]
    assert agreeing.problems == []
    stated["test"]["evaluation"]["mean_average_precision"] = 0.99
    (breakable_run / "metrics.json").write_text(json.dumps(stated))
    edited = RunParts(breakable_run, "run")
    measure(edited)
    assert "says mAP 99.00 % on test" in edited.problems[0]


def test_stored_figures_are_those_that_a_report_computes(breakable_run):
    stored = measure(RunParts(breakable_run, "run"))
    assert stored.summary.calibration_temperature is not None
    (breakable_run / "predictions" / "evaluation.json").unlink()
    computed = measure(RunParts(breakable_run, "run"))
    assert computed.summary.calibration_temperature is None  # no report shows it
    assert metric_table([stored]) == metric_table([computed])
    assert label_table(stored, many=False) == label_table(computed, many=False)
    for name in ("by_rules", "uncertainty", "calibration_by_rules", "map_interval", "levels"):
        found, expected = (one.summary.to_json()[name] for one in (stored, computed))
        assert found == expected
    assert [row.average_precision for row in stored.evaluation.labels] == [
        row.average_precision for row in computed.evaluation.labels
    ]


def test_neighbours_share_labels_where_features_follow_them():
    generator = np.random.default_rng(0)
    targets = np.repeat(np.eye(3, dtype=np.int8), 20, axis=0)
    clustered = 10 * targets + generator.normal(size=(60, 3))
    assert neighbours_sharing_a_label(clustered, targets) == 1
    assert neighbours_sharing_a_label(generator.normal(size=(60, 3)), targets) == pytest.approx(
        1 / 3, abs=0.12
    )
    assert np.isnan(neighbours_sharing_a_label(clustered, np.zeros_like(targets)))


def test_centroids_are_means_over_carriers():
    positions = np.array([[0.0, 0.0], [2.0, 4.0], [9.0, 9.0]])
    found = label_centroids(positions, np.array([[1, 0], [1, 0], [-1, 0]], dtype=np.int8))
    np.testing.assert_allclose(found[0], [1, 2])
    assert np.isnan(found[1]).all()


def test_names_that_would_cover_a_more_frequent_one_are_left_out():
    centroids = np.array([[0.0, 0.0], [0.05, 0.01], [0.05, 0.5], [np.nan, np.nan]])
    assert labels_with_room(centroids, np.ones(2), np.array([3, 5, 1, 0])) == {1, 2}


def test_examples_are_ranked_among_the_chosen():
    assert ranked(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, True, True, False])) == [1, 2, 0]


def test_losses_relative_to_the_first_epoch():
    np.testing.assert_allclose(normalise(np.array([np.nan, 4.0, 2.0])), [np.nan, 1, 0.5])
    assert np.isnan(normalise(np.array([0.0, 1.0]))).all()
    epochs = {"epoch": np.arange(2.0), "train/loss": np.ones(2), "train/classification": np.ones(2)}
    assert list(loss_terms(epochs)) == ["classification"]
    measured = epochs | {"train/map": np.ones(2), "val/map_best": np.ones(2), "val/loss": np.zeros(2)}
    assert list(loss_terms(measured)) == ["classification"]
    assert list(loss_terms(measured, "val")) == ["total"]
    assert list(loss_terms(epochs | {"train/contrastive": np.ones(2)})) == [
        "total",
        "classification",
        "contrastive",
    ]


def images() -> torch.Tensor:
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("kind", ["blur", "noise", "occlusion"])
def test_nothing_is_changed_at_strength_0(kind):
    assert torch.equal(corrupt(images(), kind, 0.0, generator()), images())


def test_blur_smooths_and_keeps_constants():
    blurred = corrupt(images(), "blur", 0.05, generator())
    assert blurred.std() < 0.5 * images().std()
    assert blurred.mean() == pytest.approx(float(images().mean()), abs=0.02)
    constant = torch.full((1, 3, 16, 16), 0.3)
    torch.testing.assert_close(corrupt(constant, "blur", 0.08, generator()), constant)


def test_noise_has_its_deviation_and_stays_in_range():
    grey = torch.full((4, 3, 64, 64), 0.5)
    noisy = corrupt(grey, "noise", 0.1, generator())
    assert noisy.std() == pytest.approx(0.1, rel=0.02)
    assert noisy.mean() == pytest.approx(0.5, abs=0.005)
    assert corrupt(images(), "noise", 0.4, generator()).min() >= 0


def test_occlusion_covers_its_share_inside_the_image():
    white = torch.ones(8, 3, 40, 40)
    covered = corrupt(white, "occlusion", 0.25, generator())
    assert (covered == 0.5).float().mean() == pytest.approx(0.25)
    assert torch.equal(white, torch.ones_like(white))
    assert len({tuple(image.nonzero()[0].tolist()) for image in (covered == 0.5)}) > 1


class Uncertain(torch.nn.Module):
    """sigma is the mean pixel and the logit is 0, so that every curve is known."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, pixels):
        from types import SimpleNamespace

        brightness = pixels.mean(dim=(1, 2, 3))[:, None].expand(-1, 2)
        return SimpleNamespace(logits=torch.zeros_like(brightness), sigma=brightness)


def test_curves_are_means_over_images_and_labels():
    curves = {curve.kind: curve for curve in corruption_curves(Uncertain(), torch.ones(40, 3, 40, 40), 0)}
    np.testing.assert_allclose(
        curves["occlusion"].sigma, [1 - 0.5 * share for share in (0, 0.1, 0.25, 0.4, 0.6)], atol=0.01
    )
    np.testing.assert_allclose(curves["blur"].sigma, 1, atol=1e-5)
    np.testing.assert_allclose(curves["noise"].entropy, 1)  # a logit of 0 is one bit


def test_losses_of_val_are_dashed_beside_those_of_training():
    columns = ("train/loss", "train/a", "train/b", "val/loss", "val/a", "val/b", "val/map_model", "train/map")
    epochs = {name: np.array([2.0, 1.0]) + place for place, name in enumerate(columns)}
    epochs["epoch"] = np.array([1.0, 2.0])
    raw, relative = loss_pictures("run", epochs, many=False)
    lines = {line.get_label(): line for line in raw.figure.axes[0].lines}
    assert list(lines) == ["total", "a", "b", "total, val", "a, val", "b, val"]
    assert lines["a, val"].get_ydata().tolist() == [6.0, 5.0]
    for name in ("total", "a", "b"):
        of_train, of_val = lines[name], lines[f"{name}, val"]
        assert of_train.get_color() == of_val.get_color()
        assert (of_train.get_linestyle(), of_val.get_linestyle()) == ("-", "--")
    assert relative.figure.axes[0].lines[4].get_ydata()[0] == 1
    picture = map_picture({"run": epochs})
    assert picture.numbers.header == ("epoch", "model", "model on training images")
    assert picture.figure.axes[0].lines[1].get_ydata().tolist() == [900.0, 800.0]


def test_the_legend_of_the_losses_lies_within_the_figure():
    terms = ("loss", "reconstruction", "classification", "contrastive")
    epochs = {f"{split}/{term}": np.array([2.0, 1.0]) for split in ("train", "val") for term in terms}
    epochs["epoch"] = np.array([1.0, 2.0])
    figure = loss_pictures("run", epochs, many=False)[0].figure
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
