"""The description of columns that Hugging Face's `datasets` stores: the names of classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Features = Mapping[str, Any]
"""The description of each column, as `datasets` writes it."""

INFO_FILES = ("dataset_info.json", "dataset_infos.json")


def features_in_metadata(metadata: Mapping[bytes, bytes] | None) -> Features:
    """From the metadata of an Arrow schema; empty if it has none."""
    try:
        return _checked(json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def features_in_folder(folder: Path) -> Features:
    """From the file `dataset_info.json` in a folder or the one above; empty if there is none."""
    for path in (one / name for one in (folder, folder.parent) for name in INFO_FILES):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        # The older file has such a description for each configuration.
        for info in (content, *(content.values() if isinstance(content, dict) else ())):
            if isinstance(info, dict) and (features := _checked(info.get("features"))):
                return features
    return {}


def class_names(feature: Any) -> list[str] | None:
    """The names of a `ClassLabel`, or of a list of them."""
    if isinstance(feature, list) and feature:
        return class_names(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        return [str(name) for name in names] if isinstance(names, list) else None
    return class_names(feature.get("feature"))


def is_list(feature: Any) -> bool:
    return isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature)


def _checked(features: Any) -> Features:
    return features if isinstance(features, dict) else {}
