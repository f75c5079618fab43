"""The type checker the tests run the mathematics with: shapes by jaxtyping, an int passes for a float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function's arguments and result; not a result that is `Self`, which it cannot know alone."""
    if function.__annotations__.get("return") in ("Self", Self):
        function.__annotations__.pop("return")
    return _check(function)
