"""The Python reference: a directive for every public name, so that none can be forgotten."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from itertools import chain


def public_names(package: str) -> list[str]:
    """Dotted names of what the package lists in `__all__`."""
    return [f"{package}.{name}" for name in import_module(package).__all__ if not name.endswith("__")]


def shortcuts() -> str:
    """Markdown: the names of `kmcl` itself, with the packages that describe them."""
    import kmcl

    rows = ["| name | also as | what |", "|---|---|---|"]
    for name in public_names("kmcl"):
        short = name.rpartition(".")[2]
        home = kmcl._HOMES.get(short, "kmcl.errors")
        summary = (inspect.getdoc(getattr(kmcl, short)) or "").partition("\n")[0]
        rows.append(f"| `{name}` | `{home}.{short}` | {summary} |")
    return "\n".join(rows)


def reference(package: str) -> str:
    """Markdown with a directive of autodoc for each public name."""
    directives: dict[str, list[str]] = {"autofunction": [], "autoclass": [], "autodata": []}
    for name in public_names(package):
        module, _, attribute = name.rpartition(".")
        value = getattr(import_module(module), attribute)
        if inspect.isclass(value):
            kind, options = "autoclass", ["   :members:"]
        elif callable(value):
            kind, options = "autofunction", []
        else:
            kind, options = "autodata", ["   :no-value:"] if isinstance(value, Mapping) else []
        directives[kind].append("\n".join([f".. {kind}:: {name}", *options]))
    return "```{eval-rst}\n" + "\n\n".join(chain.from_iterable(directives.values())) + "\n```"
