"""Results as JSON: every kind of value, NaN as null, and no infinity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from kmcl.evaluation.json_values import to_json_object


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
