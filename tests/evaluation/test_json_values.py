"""Results as JSON and back: every kind of value, NaN as null, and no infinity."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from kmcl.errors import InputError
from kmcl.evaluation.json_values import from_json_object, to_json_object


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Tree:
    value: Any


def test_every_kind_of_value_is_written() -> None:
    tree = Tree(
        {
            1: Pair(np.float32(0.5), np.array([[1.0, np.nan]])),
            "list": [Tree(True), (None, "text")],
            "integer": np.int64(7),
            "array of nothing": np.zeros((0, 2)),
        }
    )
    assert to_json_object(tree) == {
        "value": {
            "1": {"first": 0.5, "second": [[1.0, None]]},
            "list": [{"value": True}, [None, "text"]],
            "integer": 7,
            "array of nothing": [],
        }
    }
    written = to_json_object(tree)["value"]
    assert type(written["integer"]) is int
    assert type(written["1"]["first"]) is float


@pytest.mark.parametrize("value", [float("inf"), -np.inf, np.array([1.0, np.inf])])
def test_an_infinity_is_refused(value) -> None:
    with pytest.raises(ValueError, match=r"cannot write -?inf as JSON"):
        to_json_object(Tree(value))


def test_a_class_is_not_taken_for_its_values() -> None:
    assert to_json_object(Tree(Tree)) == {"value": Tree}


class Share(NamedTuple):
    share: float
    of: str | None


@dataclass(frozen=True)
class Typed:
    shares: tuple[Share, ...]
    values: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    best: Share | None
    is_whole: bool


TYPED = Typed(
    (Share(0.1, "cat"), Share(float("nan"), None)), np.array([1 / 3, np.nan]), np.arange(2), None, True
)


def test_what_was_written_is_read_with_its_types() -> None:
    found = from_json_object(Typed, json.loads(json.dumps(to_json_object(TYPED))))
    assert found.shares[0] == Share(0.1, "cat")
    assert np.isnan(found.shares[1].share)
    assert (found.shares[1].of, found.best, found.is_whole) == (None, None, True)
    np.testing.assert_array_equal(found.values, TYPED.values)
    assert (found.values.dtype, found.counts.dtype) == (np.float64, np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": None}, r"Typed.counts must be .*; got None"),
        ({"is_whole": 1}, r"Typed.is_whole must be .*bool.*; got 1"),
        ({"other": 1}, "Typed must have the fields shares, values, counts, best, is_whole"),
        ({"best": {"share": "0.1", "of": "cat"}}, r"Typed.best.share must be .*float.*; got '0.1'"),
        ({"shares": [{"share": 0.1}]}, r"Typed.shares must have the fields share, of"),
    ],
)
def test_other_values_are_refused_by_their_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json_object(Typed, to_json_object(TYPED) | change)
