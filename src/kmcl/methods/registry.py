"""The table of methods. A new one is a module with a `Method`, and an entry here.

Other packages add theirs by the entry-point group `kmcl.methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kmcl.errors import InputError, suggest
from kmcl.methods.interface import Method, MethodOptions
from kmcl.registry import Registry

METHODS: Registry[Method] = Registry(
    "method",
    "kmcl.methods",
    {
        "kmcl": "kmcl.methods.kmcl.method:METHOD",
        "asl": "kmcl.methods.asl:METHOD",
        "bce": "kmcl.methods.bce:METHOD",
        "focal": "kmcl.methods.focal:METHOD",
        "csra": "kmcl.methods.csra:METHOD",
        "mldecoder": "kmcl.methods.mldecoder:METHOD",
        "mulsupcon": "kmcl.methods.mulsupcon:METHOD",
        "q2l": "kmcl.methods.q2l:METHOD",
        "mlgcn": "kmcl.methods.mlgcn:METHOD",
        "addgcn": "kmcl.methods.addgcn:METHOD",
        "tdrg": "kmcl.methods.tdrg:METHOD",
        "aam": "kmcl.methods.aam:METHOD",
    },
    Method,
)


def find_method(name: str) -> Method:
    """The method called `name`."""
    return METHODS.find(name)


def methods_with(option: str) -> list[str]:
    """Names of the methods that have this option."""
    return [name for name, method in METHODS.items() if option in method.option_names]


def read_options(values: Mapping[str, Any]) -> MethodOptions:
    """The options of the method whose `name` is among the values; what is not given has its default.

    A key that the method does not have is an InputError that says which methods have it.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"method must be an object with its options; got {values!r}")
    name = values.get("name")
    if not isinstance(name, str):
        raise InputError(f"a method needs a name; got {name!r}")
    method = find_method(name)
    try:
        return method.options(**values)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(map(str, first["loc"]))
        if not option:  # about several options together
            raise InputError(str(first["ctx"]["error"])) from error
        if first["type"] != "extra_forbidden":
            raise InputError(f"{option}: {first['msg']}; got {first['input']!r}") from error
        others = methods_with(option)
        has_it = (
            f"; it is an option of {', '.join(others)}" if others else suggest(option, method.option_names)
        )
        raise InputError(f"method {name} has no option {option}{has_it}") from error
