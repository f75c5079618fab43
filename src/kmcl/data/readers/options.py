"""Typed options of the readers, and the errors for invalid ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kmcl.errors import InputError, suggest


def _split_names(value: Any) -> Any:
    """A command line gives `cat,dog`; Python gives a list."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
"""Several names: a list or tuple in Python, `cat,dog` on the command line."""


class ReaderOptions(BaseModel):
    """Options that every reader takes.

    subset:  keep only so many training images, drawn with `seed`; a smaller subset lies within a larger one.
    seed:    the seed of all random choices of the reader.
    parents: a YAML file with the labels that a label implies (`dog: animal`), beside the data; implied labels
             are filled in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    subset: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    parents: dict[str, Names] | Path | None = None


class CutOptions(ReaderOptions):
    """Options of a reader whose source may have no validation split.

    val_fraction: the share of the training images to hold out as `val`; 0 holds out none.
    """

    val_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)


class DrawOptions(CutOptions):
    """Options of a reader whose source may have no splits at all.

    test_fraction: the share of the images for `test` where the source names no splits.
    """

    test_fraction: float = Field(default=0.2, ge=0.0, lt=1.0)


def folder_of(location: Path | None) -> Path:
    """Where relative paths in options start: the folder of the data, the current one if they have none."""
    if location is None:
        return Path()
    return location if os.path.isdir(location) else location.parent


OptionsT = TypeVar("OptionsT", bound=ReaderOptions)


def parse_options(model: type[OptionsT], values: Mapping[str, object], kind: str) -> OptionsT:
    """Check the options given for one kind of dataset; text such as `0.2` or `true` is converted."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = sorted(model.model_fields)
            message = f"unknown option {name!r} of dataset {kind!r}{suggest(name, known)}"
            raise InputError(f"{message}; known are {', '.join(known)}") from None
        complaint = first["msg"][:1].lower() + first["msg"][1:]
        raise InputError(f"option {name}={first['input']!r} of dataset {kind!r}: {complaint}") from None
