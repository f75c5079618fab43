"""Lengths of time as people write them: 90s, 10m, 2h."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def parse_duration(text: Any) -> float:
    """Seconds from a number of them, or from text such as 90s, 10m, 1.5h."""
    if isinstance(text, int | float):
        return float(text)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(text).strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise ValueError("must be a time such as 90s, 10m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def spell_duration(seconds: float) -> str:
    """For people: 45 s, 3 min 20 s, 2 h 05 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, read by `parse_duration`."""
