"""Results as JSON: a dataclass or NamedTuple tree becomes dicts, lists, numbers, and null for NaN."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import numpy as np

JsonObject = dict[str, Any]


def to_json_object(result: Any) -> JsonObject:
    """Turn a dataclass or NamedTuple into a dict that `json.dumps(..., allow_nan=False)` accepts.

    NaN, which marks an undefined metric, becomes None, because JSON has no NaN and strict parsers reject it.
    Infinity cannot be written either and is refused with a ValueError.
    """
    return cast(JsonObject, _json_value(result))


def _json_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _json_value(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _json_value(value.tolist())
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"cannot write {value} as JSON")
        return None if math.isnan(value) else value
    return value
