"""The interface of a reader: the function that reads a kind of dataset, and its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kmcl.data.dataset import Dataset
from kmcl.data.readers.options import ReaderOptions


@dataclass(frozen=True)
class Reader:
    """One kind of dataset, under the name it has in the table of readers or as an entry point.

    function: `function(location, options) -> Dataset`, or `function(options)` where there is no location.
    options:  a `ReaderOptions` model.
    place:    what the location is, for messages; None where there is none.
    gives_vectors: whether its datasets have feature vectors instead of images.
    """

    function: Callable[..., Dataset]
    options: type[ReaderOptions]
    place: str | None = None
    gives_vectors: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and issubclass(self.options, ReaderOptions)):
            raise ValueError(f"options of a reader must be a subclass of ReaderOptions; got {self.options!r}")

    def read(self, location: Path | None, options: ReaderOptions) -> Dataset:
        return self.function(options) if location is None else self.function(location, options)
