"""Tables of images scored as Ray Data and Spark hand them over."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import kmcl
from brightness_onnx import brightness_model
from kmcl.errors import InputError
from kmcl.interop import TableScorer

pytest.importorskip("onnx", reason="the extra export is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


def model_file(folder: Path, *labels: str, unfamiliarity: bool = True) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(brightness_model(labels, unfamiliarity=unfamiliarity))
    return path


def grey_png(value: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((9, 11, 3), value, np.uint8)).save(content, "PNG")
    return content.getvalue()


def test_rows_have_the_numbers_of_the_predictor(tmp_path: Path):
    model = model_file(tmp_path, "bright", "brighter")
    contents = [grey_png(value) for value in (0, 1, 3)]
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
    expected = kmcl.load(model).predict(files).to_frame(wide=True)
    names = list(map(str, files))
    of_paths = TableScorer(model)(pd.DataFrame({"path": names, "more": 1}))
    of_bytes = TableScorer(model, path="file", content="data")(
        pd.DataFrame({"file": names, "data": contents}, index=[5, 5, 7])
    )
    assert of_paths.columns.tolist() == ["path", "bright", "brighter", "unfamiliarity", "error"]
    assert of_paths["path"].tolist() == names
    for found in (of_paths, of_bytes):
        numbers = found[["bright", "brighter", "unfamiliarity"]].to_numpy()
        np.testing.assert_array_equal(numbers, expected.to_numpy())
        assert found["error"].isna().all()
    assert expected["bright"].is_monotonic_increasing


def test_an_unreadable_image_is_a_row_with_its_reason(tmp_path: Path):
    scorer = TableScorer(model_file(tmp_path, "bright", unfamiliarity=False), content="bytes")
    found = scorer(pd.DataFrame({"path": ["a", "b"], "bytes": [b"no image", grey_png(0)]}))
    assert found["bright"].isna().tolist() == [True, False]
    assert "image a cannot be decoded" in found["error"][0]
    assert found["error"].isna().tolist() == [False, True]
    assert list(scorer.columns) == found.columns.tolist()


def test_columns_that_are_missing_or_taken(tmp_path: Path):
    with pytest.raises(InputError, match="the table has no column 'bytes'"):
        TableScorer(model_file(tmp_path, "bright"), content="bytes")(pd.DataFrame({"path": ["a"]}))
    with pytest.raises(InputError, match="label 'path' has the name of another column"):
        TableScorer(model_file(tmp_path, "path"))
