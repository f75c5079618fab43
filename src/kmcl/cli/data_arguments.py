"""The arguments that name a dataset, for every command that takes one."""

from __future__ import annotations

from typing import Annotated

import typer

from kmcl.errors import InputError

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="Dataset spec: digits, table:labels.csv, folder:DIR, coco:FILE.json, ..."
    ),
]
OptionArgument = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the dataset; may be repeated."),
]


def parse_dataset_options(pairs: list[str] | None) -> dict[str, object]:
    """`["val_fraction=0.2"]` as a mapping; the reader converts the values."""
    options: dict[str, object] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--option {pair!r} is not NAME=VALUE, as in --option val_fraction=0.2")
        options[name.strip().replace("-", "_")] = value
    return options
