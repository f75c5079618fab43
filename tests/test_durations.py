"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from kmcl.durations import parse_duration, spell_duration
from kmcl.errors import InputError
from kmcl.runs.resolution import resolve_settings


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("3m", 180), ("10 min", 600), ("1.5h", 5400), (45, 45)]
)
def test_read(text: object, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(8.4, "8 s"), (60, "1 min"), (200, "3 min 20 s"), (3600, "1 h"), (7500, "2 h 05 min")],
)
def test_spelled(seconds: float, text: str):
    assert spell_duration(seconds) == text


@pytest.mark.parametrize("text", ["soon", "3 weeks", "-5m", "", "0s", "nan"])
def test_what_is_no_time_is_refused_by_name_and_value(text: str):
    with pytest.raises(InputError, match="budget.*" + text):
        resolve_settings("digits", flags={"budget": text})
