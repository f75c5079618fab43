"""Predictions as Parquet, and forms of files without any image."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from brightness_onnx import brightness_model
from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.evaluation.unfamiliarity import SENTENCE
from kmcl.serving import ImagePrediction, LabelPrediction, PredictionList
from kmcl.serving.prediction_files import FORM_OF_SUFFIX, WRITERS, PredictionFiles, write_wide_csv
from kmcl.serving.predictions import Columns

LABELS = ("cat", "hot, dog")
PLAIN = Columns()
SHARES = (0.1, 0.94, 0.95, 0.999, 0.0)


@pytest.fixture
def predictions() -> PredictionList:
    return PredictionList(
        ImagePrediction(
            f"{number}.png",
            tuple(
                LabelPrediction(label, number / 10, 0.0, 1.0, 0.4, number >= 4, 0.5, None) for label in LABELS
            ),
        )
        for number in range(5)
    )


def written(path: Path, predictions, columns: Columns = PLAIN, *, wide: bool = False, size: int = 2) -> Path:
    """A file of that form, joined from chunks of `size` images."""
    files = PredictionFiles(FORM_OF_SUFFIX[path.suffix], columns, LABELS, wide)
    chunks = [path.with_stem(f"chunk{first}") for first in range(0, max(1, len(predictions)), size)]
    for number, chunk in enumerate(chunks):
        files.write(chunk, iter(predictions[number * size : (number + 1) * size]))
    files.join(chunks, path)
    return path


@pytest.mark.parametrize("wide", [False, True])
def test_parquet_has_the_columns_of_the_frame(predictions, wide, tmp_path: Path):
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    read = pd.read_parquet(written(tmp_path / "a.parquet", predictions, wide=wide))
    expected = predictions.to_frame(wide=wide)
    pd.testing.assert_frame_equal(read, expected.reset_index() if wide else expected, check_dtype=False)
    none = pd.read_parquet(written(tmp_path / "b.parquet", [], wide=wide))
    assert (list(none.columns), len(none)) == (list(read.columns), 0)


@pytest.mark.parametrize("wide", [False, True])
def test_an_unreadable_image_has_one_row_in_every_form(predictions, wide, tmp_path: Path):
    """Also as the only image of a chunk, which has no label to take types from."""
    some = PredictionList([*predictions[:2], ImagePrediction("broken.png", (), 'no, "image"\n!')])
    columns = Columns(error=True)
    tables = [pd.read_csv(written(tmp_path / "a.csv", some, columns, wide=wide))]
    tables.append(pd.read_parquet(written(tmp_path / "a.parquet", some, columns, wide=wide)))
    for table in tables:
        assert table["image"].iloc[-1] == "broken.png"
        assert table["error"].tolist()[-1] == 'no, "image"\n!'
        assert table["error"].isna().sum() == len(table) - 1 == (2 if wide else 4)
        assert table.iloc[-1].isna().sum() == len(table.columns) - 2
    for suffix in (".json", ".jsonl"):
        text = written(tmp_path / f"a{suffix}", some, columns).read_text()
        images = json.loads(text) if suffix == ".json" else [*map(json.loads, text.splitlines())]
        assert [image["error"] for image in images] == [None, None, 'no, "image"\n!']
        assert [len(image["labels"]) for image in images] == [2, 2, 0]


def test_decisions_that_are_left_to_a_person_have_a_column(predictions):
    """Those of 0.3 (absent) and 0.4 (present, hence wrong with 0.6) are above 0.25."""
    marked = PredictionList(one.leaving(0.25) for one in predictions)
    assert [one.labels[0].unsure for one in marked] == [False, False, False, True, True]
    assert "unsure" not in predictions.to_frame()
    frame = marked.to_frame()
    assert frame[frame.label == "cat"].unsure.tolist() == [False, False, False, True, True]
    file = io.StringIO()
    WRITERS["csv"](file, marked[2:4], Columns(unsure=True))
    assert pd.read_csv(io.StringIO(file.getvalue())).unsure.tolist() == [0, 0, 1, 1]
    file = io.StringIO()
    WRITERS["jsonl"](file, marked[3:], Columns(unsure=True))
    assert [json.loads(line)["labels"][1]["unsure"] for line in file.getvalue().splitlines()] == [True, True]
    shown = io.StringIO()
    WRITERS["table"](shown, marked, Columns(unsure=True))
    lines = [line for line in shown.getvalue().splitlines() if ".png" in line]
    assert ["cat, hot, dog" in line for line in lines] == [False, False, False, True, True]


def test_a_wide_row_has_each_probability(predictions):
    file = io.StringIO()
    write_wide_csv(file, predictions[1:3], Columns(), LABELS)
    assert file.getvalue() == 'image,cat,"hot, dog"\n1.png,0.1,0.1\n2.png,0.2,0.2\n'
    with pytest.raises(InputError, match="label 'image' has the name of another column"):
        write_wide_csv(file, predictions, Columns(), ("image", "cat"))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_array_holds_the_lines(predictions, count, tmp_path: Path):
    images = json.loads(written(tmp_path / "a.json", predictions[:count]).read_text())
    lines = written(tmp_path / "a.jsonl", predictions[:count]).read_text().splitlines()
    assert images == [json.loads(line) for line in lines]
    assert [image["image"] for image in images] == [f"{number}.png" for number in range(count)]


@pytest.mark.parametrize("wide", [False, True])
def test_joined_csv_is_that_of_one_chunk(predictions, wide, tmp_path: Path):
    texts = {written(tmp_path / "a.csv", predictions, wide=wide, size=size).read_text() for size in (1, 2, 5)}
    assert len(texts) == 1


@pytest.fixture
def with_unfamiliarity(predictions) -> PredictionList:
    return PredictionList(
        replace(one, unfamiliarity=share) for one, share in zip(predictions, SHARES, strict=True)
    )


def test_the_unfamiliarity_is_the_last_column_of_tables(with_unfamiliarity, tmp_path: Path):
    file = io.StringIO()
    columns = Columns(unfamiliarity=True)
    write_wide_csv(file, with_unfamiliarity[1:2], columns, LABELS)
    assert file.getvalue() == 'image,cat,"hot, dog",unfamiliarity\n1.png,0.1,0.1,0.94\n'
    with pytest.raises(InputError, match="label 'unfamiliarity' has the name of another column"):
        write_wide_csv(file, with_unfamiliarity, columns, ("unfamiliarity", "cat"))
    frame = with_unfamiliarity.to_frame()
    assert frame["unfamiliarity"].tolist() == [share for share in SHARES for _ in LABELS]
    assert frame.columns[-1] == with_unfamiliarity.to_frame(wide=True).columns[-1] == "unfamiliarity"
    assert with_unfamiliarity.to_frame(wide=True)["unfamiliarity"].tolist() == list(SHARES)
    for wide in (False, True):
        read = pd.read_parquet(written(tmp_path / "a.parquet", with_unfamiliarity, columns, wide=wide))
        assert read["unfamiliarity"].max() == 0.999


@pytest.mark.parametrize("wide", [False, True])
def test_features_are_columns_where_they_are_wanted(predictions, wide, tmp_path: Path):
    given = PredictionList(
        replace(one, feature_summary=(float(number), -0.5)) for number, one in enumerate(predictions)
    )
    given.append(ImagePrediction("broken.png", (), "no image"))
    columns = Columns(error=True, num_features=2)
    for name in ("a.csv", "a.parquet"):
        path = written(tmp_path / name, given, columns, wide=wide)
        read = pd.read_csv(path) if name == "a.csv" else pd.read_parquet(path)
        assert list(read.columns[-3:]) == ["feature_1", "feature_2", "error"]
        assert read.groupby("image")["feature_1"].first().tolist()[:-1] == [0, 1, 2, 3, 4]
        assert read[read["image"] == "broken.png"]["feature_2"].isna().all()
        plain = written(tmp_path / f"plain-{name}", given, wide=wide).read_bytes()
        assert b"feature_" not in plain
    lines = [
        json.loads(line) for line in written(tmp_path / "a.jsonl", given, columns).read_text().splitlines()
    ]
    assert [(line["feature_1"], line["feature_2"]) for line in lines[3:]] == [
        (3.0, -0.5),
        (4.0, -0.5),
        (None,) * 2,
    ]
    with pytest.raises(InputError, match="label 'feature_2' has the name of another column"):
        write_wide_csv(io.StringIO(), given, columns, ("feature_2", "cat"))


@pytest.mark.parametrize("form", ["csv", "jsonl", "table"])
def test_every_form_has_the_unfamiliarity_if_the_model_gives_it(predictions, with_unfamiliarity, form):
    for given, known in ((predictions, False), (with_unfamiliarity, True)):
        file = io.StringIO()
        WRITERS[form](file, given, Columns(unfamiliarity=known))
        text = file.getvalue()
        assert ("unfamiliarity" in text) == known
        if form == "table":
            assert text.count("unlike the training images") == (2 if known else 0)
        elif form == "csv":
            rows = pd.read_csv(io.StringIO(text))
            assert not known or rows["unfamiliarity"].tolist()[:3] == [0.1, 0.1, 0.94]
        elif known:
            assert json.loads(text.splitlines()[2])["unfamiliarity"] == 0.95


def test_a_notebook_says_that_a_picture_is_unfamiliar(predictions, with_unfamiliarity):
    assert with_unfamiliarity._repr_html_().count(SENTENCE) == 2
    assert SENTENCE not in predictions._repr_html_()


def test_features_that_a_model_does_not_give_are_refused(tmp_path: Path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    picture, model = tmp_path / "a.png", tmp_path / "model.onnx"
    Image.new("RGB", (9, 9)).save(picture)

    def predict(*flags: str):
        arguments = ["predict", str(model), str(picture), "--features", *flags]
        return CliRunner().invoke(make_app(), arguments)

    model.write_bytes(brightness_model(summary=True))
    rows = pd.read_csv(io.StringIO(predict("--csv").stdout))
    assert rows[["feature_1", "feature_2"]].to_numpy().tolist() == [[0.0, 0.0]]
    refused = predict().exception
    assert isinstance(refused, InputError)
    assert str(refused) == "--features adds columns of numbers; give --output, --csv or --json with it"
    model.write_bytes(brightness_model())
    refused = predict("--csv").exception
    assert isinstance(refused, InputError)
    assert "model.onnx gives none: it has no post-hoc part unfamiliarity" in str(refused)
