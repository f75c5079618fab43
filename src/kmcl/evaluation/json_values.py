"""Results as JSON: a dataclass or NamedTuple tree becomes dicts, lists, numbers, null for NaN, and back."""

from __future__ import annotations

import dataclasses
import math
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from kmcl.errors import InputError

JsonObject = dict[str, Any]
Result = TypeVar("Result")


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


def from_json_object(kind: type[Result], values: object) -> Result:
    """The dataclass or NamedTuple of which `to_json_object` gave these values; its types say what they were.

    Raises InputError where a value is missing, unknown or of another type.
    """
    return cast(Result, _value_of(kind, values, kind.__name__))


def _value_of(kind: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        known = [one for one in arguments if one is not type(None)]
        return None if value is None else _value_of(known[0], value, place)
    if origin is np.ndarray and isinstance(value, list):
        return np.array([math.nan if one is None else one for one in value], dtype=get_args(arguments[1])[0])
    if origin is tuple and isinstance(value, list):
        return tuple(_value_of(arguments[0], one, place) for one in value)
    if kind is float and (value is None or type(value) in (int, float)):
        return math.nan if value is None else float(value)
    names = _fields(kind)
    if names:
        if not isinstance(value, dict) or set(value) != set(names):
            raise InputError(f"{place} must have the fields {', '.join(names)}; got {value!r:.80}")
        types = get_type_hints(kind)
        return kind(**{name: _value_of(types[name], value[name], f"{place}.{name}") for name in names})
    if type(value) is not kind:
        raise InputError(f"{place} must be {kind}; got {value!r:.80}")
    return value


def _fields(kind: Any) -> tuple[str, ...]:
    """Of a dataclass or NamedTuple; none of another type."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "_fields", ()))
