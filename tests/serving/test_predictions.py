"""Predictions as a list, a DataFrame and HTML."""

from __future__ import annotations

import base64
import io
import pickle
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from brightness import HOSTILE, Brightness
from kmcl.errors import InputError
from kmcl.serving import ImagePrediction, LabelPrediction, PredictionList
from kmcl.serving.prediction_html import MAX_IMAGES, MAX_LABELS, THUMBNAIL_SIDE


@pytest.fixture
def predictions(tmp_path: Path) -> PredictionList:
    pixels = np.zeros((400, 600, 3), dtype=np.uint8)
    pixels[:] = (204, 51, 102)
    path = tmp_path / f"{HOSTILE.replace('/', '_')}.png"
    Image.fromarray(pixels).save(path)
    (tmp_path / "broken <b>.jpg").write_bytes(b"no image")
    return Brightness().predict(
        [path, pixels[:20, :30], tmp_path / "broken <b>.jpg", Image.fromarray(pixels)]
    )


def test_predict_gives_a_list_of_its_own_kind(predictions: PredictionList):
    assert isinstance(predictions, PredictionList)
    assert isinstance(predictions, list)
    assert isinstance(predictions[1:], PredictionList)
    assert isinstance(predictions[0], ImagePrediction)
    assert predictions[1:][0] is predictions[1]
    assert isinstance(predictions + predictions[:1], PredictionList)
    assert len(predictions + predictions[:1]) == 5
    assert predictions.errors == [predictions[2].error]
    assert "broken <b>.jpg cannot be decoded" in predictions.errors[0]
    assert pickle.loads(pickle.dumps(predictions)) == predictions


def test_a_long_frame_has_a_row_per_image_and_label(predictions: PredictionList):
    frame = predictions.to_frame()
    columns = ["image", "label", "probability", "low", "high", "threshold", "present", "score"]
    assert list(frame.columns) == columns
    assert len(frame) == 3 * 3  # none of the broken image
    row = frame[(frame["image"] == predictions[0].name) & (frame["label"] == "red")].iloc[0]
    assert (row["probability"], row["score"]) == pytest.approx((2 / 3, 0.8), abs=1e-6)  # logit(0.8) / 2
    assert frame["present"].equals(frame["probability"] >= frame["threshold"])
    assert frame["present"].tolist() == [True, False, True] * 3
    assert frame["present"].dtype == bool
    with_sigma = predictions.to_frame(sigma=True)["sigma"]
    assert with_sigma.isna().all()
    assert with_sigma.dtype == float
    assert predictions[1].to_frame().equals(frame[3:6].reset_index(drop=True))


def test_a_wide_frame_has_a_column_per_label(predictions: PredictionList):
    frame = predictions.to_frame(wide=True)
    assert list(frame.columns) == ["red", HOSTILE, "image"]
    assert frame.index.name == "image"
    assert frame.index.tolist() == [one.name for one in predictions]
    np.testing.assert_allclose(frame.iloc[0], [2 / 3, 1 / 3, 0.449490], atol=1e-6)
    assert frame.iloc[2].isna().all()
    assert predictions[3].to_frame(wide=True).shape == (1, 3)


def test_frames_of_nothing():
    assert PredictionList().to_frame().shape == (0, 8)
    assert PredictionList().to_frame(wide=True).shape == (0, 0)
    assert PredictionList([ImagePrediction("a", (), "broken")]).to_frame(wide=True).shape == (1, 0)
    assert "no predictions" in PredictionList()._repr_html_()


def test_without_pandas_it_says_what_to_install(predictions: PredictionList, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for wide in (False, True):
        with pytest.raises(InputError, match="a DataFrame needs pandas: pip install pandas"):
            predictions.to_frame(wide)


class Collector(HTMLParser):
    """Tags, attributes and text of a fragment, which must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_html_shows_pictures_labels_and_errors_and_escapes_names(predictions: PredictionList):
    found = Collector(predictions._repr_html_())
    assert set(found.tags) == {"div", "img"}
    assert {name for name, _ in found.attributes} <= {"style", "title", "src", "alt"}
    assert found.tags.count("img") == 3  # two in memory, one file; none of the broken one
    assert found.texts.count(HOSTILE) == 3
    assert predictions[0].name in found.texts
    assert predictions.errors[0] in found.texts
    assert found.texts.count("red, image") == 3  # the present labels
    assert "67 %" in found.texts
    widths = [re.search(r"width:([\d.]+)%", value) for name, value in found.attributes if name == "style"]
    assert [float(match[1]) for match in widths if match][-3:] == [66.7, 44.9, 33.3]
    outside = [value for name, value in found.attributes if name == "src" and not value.startswith("data:")]
    assert outside == []


def test_thumbnails_are_small_upright_and_of_the_source(predictions: PredictionList):
    sources = [value for name, value in Collector(predictions._repr_html_()).attributes if name == "src"]
    for source, size in zip(sources, [(160, 107), (30, 20), (160, 107)], strict=True):
        picture = Image.open(io.BytesIO(base64.b64decode(source.partition("base64,")[2])))
        assert picture.size == size
        assert max(picture.size) <= THUMBNAIL_SIDE
        assert picture.getpixel((5, 5)) == pytest.approx((204, 51, 102), abs=6)


def test_a_vanished_file_and_a_closed_image_have_no_picture(predictions: PredictionList):
    Path(predictions[0].name).unlink()
    predictions[3].source.close()
    assert "<img" not in predictions[0]._repr_html_()
    assert "<img" not in predictions[3]._repr_html_()
    assert "red" in predictions[0]._repr_html_()


def test_html_is_bounded():
    labels = tuple(
        LabelPrediction(f"label {k}", 0.1, None, None, 0.5, k == 99, 0.1, None) for k in range(100)
    )
    many = PredictionList([ImagePrediction(f"image {k}", labels) for k in range(100)])
    found = Collector(many._repr_html_())
    assert f"and {100 - MAX_IMAGES} more images" in found.texts
    assert sum(text.startswith("image ") for text in found.texts) == MAX_IMAGES
    assert found.texts.count("label 99") == 2 * MAX_IMAGES  # present: in the heading and as a bar
    assert f"and {100 - MAX_LABELS - 1} more labels" in found.texts
    nothing = ImagePrediction("x", labels[:3])
    assert "no label reaches its threshold" in nothing._repr_html_()
