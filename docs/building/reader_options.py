"""The options of every reader, read from their models: types and defaults from the fields, meanings from the
docstrings, which have a line `name: meaning` for each.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal, get_args, get_origin

ENTRY = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*):\s+(?P<text>\S.*)$")


def reader_options() -> str:
    """Markdown: a table of the options that readers share, then one for each reader."""
    from kmcl.data.readers.frame import FrameOptions
    from kmcl.data.readers.options import ReaderOptions
    from kmcl.data.readers.registry import READERS

    parts = ["**Every dataset**", _table(ReaderOptions, set())]
    models = {
        f"`{name}:`" if reader.place else f"`{name}`": reader.options for name, reader in READERS.items()
    }
    for title, model in {**models, "a DataFrame": FrameOptions}.items():
        parts += [f"**{title}**", _table(model, set(ReaderOptions.model_fields))]
    return "\n\n".join(parts)


def option_meanings(model: type[Any]) -> dict[str, str]:
    """What each option means, from the docstrings of the model and of those it is derived from."""
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, _base_model()):
            continue
        names: list[str] = []
        for line in inspect.cleandoc(base.__doc__ or "").splitlines():
            if entry := ENTRY.match(line):
                names = entry["names"].split(", ")
                meanings |= dict.fromkeys(names, entry["text"])
            elif line.startswith(" ") and names:
                meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
            else:
                names = []
    return meanings


def _base_model() -> type[Any]:
    from kmcl.data.readers.options import ReaderOptions

    return ReaderOptions


def _table(model: type[Any], left_out: set[str]) -> str:
    meanings = option_meanings(model)
    rows = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in left_out:
            cells = (_value(field.annotation), _default(field.default), _cell(meanings[name]))
            rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _value(annotation: Any) -> str:
    """What may be given on a command line."""
    alternatives = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in alternatives)
    if get_origin(annotation) is tuple:
        return "names, `a,b`"
    if alternatives:
        return _value(alternatives[0])
    words = {"int": "whole number", "float": "number", "bool": "`true` or `false`", "Path": "path"}
    return words.get(annotation.__name__, "text")


def _default(value: Any) -> str:
    if value is None or value == () or str(value) == ".":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return text.rstrip(".").replace("|", "\\|")
