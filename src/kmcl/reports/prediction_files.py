"""Reading the files that `kmcl predict --output` writes, for one model's labels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.drift import PredictedImages
from kmcl.evaluation.label_rules import LabelRules

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".json", ".jsonl", ".parquet")
UNFAMILIARITY, FEATURES, NAMES = "unfamiliarity", "features", "names"
OF_IMAGES = re.compile(r"unfamiliarity|feature_[1-9]\d*")
"""Columns with a number per image, unless a label has that name."""


def read_predictions(paths: Sequence[Path], rules: LabelRules) -> PredictedImages:
    """The images of all files; decisions are made anew, with the thresholds of `rules`.

    Unfamiliarity and features are None unless every file has them.
    """
    tables = [_read_file(path, rules.labels) for path in paths]
    if not sum(len(table) for table in tables):
        raise InputError(f"{paths[0]}: has no images" if len(paths) == 1 else "the files have no images")
    probabilities = np.concatenate([table[list(rules.labels)].to_numpy(np.float64) for table in tables])
    for path, table in zip(paths, tables, strict=True):
        ours, first = table.attrs.get(FEATURES), tables[0].attrs.get(FEATURES)
        if ours is not None and first is not None and ours.shape[1] != first.shape[1]:
            raise InputError(f"{path}: has {ours.shape[1]} features, and {paths[0]} has {first.shape[1]}")
    unfamiliarity, features = (
        np.concatenate([table.attrs[name] for table in tables])
        if all(name in table.attrs for table in tables)
        else None
        for name in (UNFAMILIARITY, FEATURES)
    )
    names = np.concatenate([table.attrs[NAMES] for table in tables])
    return PredictedImages(
        probabilities, rules.present_as_shown(probabilities), unfamiliarity, features, names
    )


def _read_file(path: Path, labels: Sequence[str]) -> pd.DataFrame:
    """One row per image and one column of probabilities per label; what is known of images is in `attrs`."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: must end with one of {', '.join(SUFFIXES)}, as kmcl predict --output does")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        table = _read_table(path)
        of_label = {"label", "probability"}
        if of_label <= {*table} and not of_label <= {*labels} <= {*table}:
            return _checked(*_to_wide(_readable(table)), labels)
        table = table if "error" in labels else _readable(table)
        return _checked(table, table[_columns_of_images(table, labels)], labels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"{path}: cannot be read as predictions: {error}") from error


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    if path.suffix.lower() == ".csv":
        return pd.read_csv(path, dtype={"image": str, "label": str}, keep_default_na=False, na_values=[""])
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".json":
        images = json.loads(text)
    else:
        images = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = []
    for image in images:
        of_image = {name: value for name, value in image.items() if OF_IMAGES.fullmatch(name)}
        rows += [
            {
                "image": image["image"],
                **of_image,
                "label": label["label"],
                "probability": label["probability"],
            }
            for label in image["labels"]
        ]
    table = pd.DataFrame(rows)
    if table.empty:
        return pd.DataFrame(columns=["image", "label", "probability"])
    unknown = [name for name in _columns_of_images(table, ()) if table[name].isna().all()]
    return table.drop(columns=unknown)


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of images that could not be read."""
    if "error" not in table:
        return table
    return table[table["error"].isna()].drop(columns="error")


def _columns_of_images(table: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """The unfamiliarity and the features, in the order of their numbers."""
    found = [str(name) for name in table if OF_IMAGES.fullmatch(str(name)) and name not in labels]
    return sorted(found, key=lambda name: (len(name), name) if name != UNFAMILIARITY else (0, name))


def _to_wide(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """From one row per image and label to one row per image: probabilities, and the numbers of images."""
    if table.duplicated(["image", "label"]).any():
        first = table[table.duplicated(["image", "label"])].iloc[0]
        raise InputError(f"image {first['image']!r} has label {first['label']!r} twice")
    wide = table.pivot(index="image", columns="label", values="probability")
    of_images = table.groupby("image")[_columns_of_images(table, ())].first().loc[wide.index]
    return wide, of_images


def _checked(wide: pd.DataFrame, of_images: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    missing = [label for label in labels if label not in wide]
    if missing and len(wide):
        raise InputError(f"has no probabilities of label {missing[0]!r}, which the model has")
    unknown = [name for name in wide if name not in labels and name not in ("image", *of_images)]
    if unknown:
        raise InputError(f"has a label {unknown[0]!r}, which the model does not have")
    names = wide["image"] if "image" in wide and "image" not in labels else wide.index
    checked = wide.reindex(columns=list(labels)).astype(np.float64)
    checked.attrs[NAMES] = names.to_numpy(object)
    _check_range("probabilities", checked.to_numpy())
    numbers = {name: of_images[name].to_numpy(np.float64) for name in of_images}
    if UNFAMILIARITY in numbers:
        checked.attrs[UNFAMILIARITY] = numbers.pop(UNFAMILIARITY)
        _check_range(UNFAMILIARITY, checked.attrs[UNFAMILIARITY])
    for number, (name, values) in enumerate(numbers.items(), 1):
        if name != f"feature_{number}":
            raise InputError(f"has {name} without feature_{number}")
        if not np.isfinite(values).all():
            raise InputError(f"{name} must be finite; got {values[~np.isfinite(values)][0]}")
    if numbers:
        checked.attrs[FEATURES] = np.stack(list(numbers.values()), axis=1)
    return checked


def _check_range(name: str, values: np.typing.NDArray[np.float64]) -> None:
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise InputError(f"{name} must be between 0 and 1; got {wrong[0]}")
