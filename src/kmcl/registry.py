"""Named parts: those of this package, and those that installed packages add by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from kmcl.errors import InputError, suggest

Part = TypeVar("Part")


class Registry(Mapping[str, Part], Generic[Part]):
    """Parts of one kind by name.

    kind:    what a part is called in messages, as in "method"
    group:   the entry-point group in which other packages register theirs, as in "kmcl.methods"
    builtin: the parts of this package; or "module:attribute" of each, which is imported when it is used
    expected: the class every part must be an instance of
    attribute: what is taken of the object that an entry point names; None: the object itself
    """

    def __init__(
        self,
        kind: str,
        group: str,
        builtin: Mapping[str, str | Part],
        expected: type[Part],
        attribute: str | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)
        self._expected = expected
        self._attribute = attribute
        self._loaded: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._builtin, *(name for name in self._installed if name not in self._builtin)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._installed

    def find(self, name: str) -> Part:
        """The part of that name; raises InputError with the nearest name if there is none."""
        if name not in self:
            raise InputError(
                f"{self.kind} must be one of {', '.join(self)}; got {name!r}{suggest(name, self)}"
            )
        return self[name]

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}

    def _load(self, name: str) -> Part:
        part: object
        if name in self._builtin:
            part = _load_object(self._builtin[name])
        elif name in self._installed:
            part = self._load_installed(self._installed[name])
        else:
            raise KeyError(name)
        if not isinstance(part, self._expected):
            raise InputError(
                f"{self.kind} {name!r} must be a {self._expected.__name__}; got {type(part).__name__}"
            )
        return part

    def _load_installed(self, entry: EntryPoint) -> object:
        try:
            loaded: object = entry.load()
        except Exception as error:  # another package's code: anything may be wrong with it
            package = entry.dist.name if entry.dist is not None else "a package"
            raise InputError(
                f"{self.kind} {entry.name!r} of {package} ({entry.value}) cannot be loaded: {error}"
            ) from error
        if self._attribute is None:
            return loaded
        if not hasattr(loaded, self._attribute):
            found = f"{entry.value} is a {type(loaded).__name__}"
            raise InputError(f"{self.kind} {entry.name!r} must have {self._attribute}; {found}")
        return getattr(loaded, self._attribute)


def _load_object(target: Any) -> Any:
    """What "module:attribute" names, imported now; anything that is not text is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
