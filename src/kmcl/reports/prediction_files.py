"""Reading the files that `kmcl predict --output` writes, for one model's labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.drift import PredictedImages
from kmcl.models.label_rules import LabelRules

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".json", ".jsonl", ".parquet")
UNFAMILIARITY = "unfamiliarity"


def read_predictions(paths: Sequence[Path], rules: LabelRules) -> PredictedImages:
    """The images of all files; decisions are made anew, with the thresholds of `rules`.

    Unfamiliarity is None unless every file has it.
    """
    tables = [_read_file(path, rules.labels) for path in paths]
    if not sum(len(table) for table in tables):
        raise InputError(f"{paths[0]}: has no images" if len(paths) == 1 else "the files have no images")
    probabilities = np.concatenate([table[list(rules.labels)].to_numpy(np.float64) for table in tables])
    known = all(UNFAMILIARITY in table.attrs for table in tables)
    return PredictedImages(
        probabilities,
        rules.decide(probabilities).present,
        np.concatenate([table.attrs[UNFAMILIARITY] for table in tables]) if known else None,
    )


def _read_file(path: Path, labels: Sequence[str]) -> pd.DataFrame:
    """One row per image and one column of probabilities per label; the unfamiliarity is in `attrs`."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: must end with one of {', '.join(SUFFIXES)}, as kmcl predict --output does")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        table = _readable(_read_table(path))
        wide = _to_wide(table) if "label" in table and "probability" in table else table
        return _checked(wide, labels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, OSError) as error:
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
    rows = [
        {"image": image["image"], UNFAMILIARITY: image.get(UNFAMILIARITY), **label}
        for image in images
        for label in image["labels"]
    ]
    table = pd.DataFrame(rows, columns=["image", "label", "probability", UNFAMILIARITY])
    return table.drop(columns=UNFAMILIARITY) if table[UNFAMILIARITY].isna().all() else table


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of images that could not be read."""
    if "error" not in table:
        return table
    return table[table["error"].isna()].drop(columns="error")


def _to_wide(table: pd.DataFrame) -> pd.DataFrame:
    """From one row per image and label to one row per image."""
    if table.duplicated(["image", "label"]).any():
        first = table[table.duplicated(["image", "label"])].iloc[0]
        raise InputError(f"image {first['image']!r} has label {first['label']!r} twice")
    wide = table.pivot(index="image", columns="label", values="probability")
    if UNFAMILIARITY in table:
        wide.attrs[UNFAMILIARITY] = table.groupby("image")[UNFAMILIARITY].first().loc[wide.index]
    return wide


def _checked(wide: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    missing = [label for label in labels if label not in wide]
    if missing and len(wide):
        raise InputError(f"has no probabilities of label {missing[0]!r}, which the model has")
    unknown = [name for name in wide if name not in labels and name not in ("image", UNFAMILIARITY)]
    if unknown:
        raise InputError(f"has a label {unknown[0]!r}, which the model does not have")
    unfamiliarity = wide.attrs.get(UNFAMILIARITY, wide.get(UNFAMILIARITY))
    checked = wide.reindex(columns=list(labels)).astype(np.float64)
    checked.attrs = {}
    _check_range("probabilities", checked.to_numpy())
    if unfamiliarity is not None:
        checked.attrs[UNFAMILIARITY] = np.asarray(unfamiliarity, dtype=np.float64)
        _check_range("unfamiliarity", checked.attrs[UNFAMILIARITY])
    return checked


def _check_range(name: str, values: np.typing.NDArray[np.float64]) -> None:
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise InputError(f"{name} must be between 0 and 1; got {wrong[0]}")
