"""Which package of kmcl imports which, from the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import grimp

from building.package_table import package_summaries

ROOT = "kmcl"
NOT_DRAWN = (ROOT, "__main__")
"""The ways in from outside: `import kmcl`, whose names are loaded at first use, and `python -m kmcl`."""

Imports = Mapping[str, frozenset[str]]
"""The names each name imports, both without the leading `kmcl.`."""


@dataclass(frozen=True)
class PackageGraph:
    """Imports between packages, those inside functions included.

    imports: of the packages, and of modules beside them that import packages
    basics:  modules beside the packages that import no package: errors, the version ... All may use them.
    """

    imports: Imports
    basics: tuple[str, ...]

    @property
    def edges(self) -> list[tuple[str, str]]:
        return sorted((name, other) for name, others in self.imports.items() for other in others)

    def reduced(self) -> Imports:
        """Without the imports of what a package reaches through another one it imports."""
        return {
            name: frozenset(
                other for other in others if not any(other in self.reachable(via) for via in others)
            )
            for name, others in self.imports.items()
        }

    def reachable(self, name: str) -> set[str]:
        """All that a package imports, directly or through others."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for other in self.imports[waiting.pop()] - found:
                found.add(other)
                waiting.append(other)
        return found

    def cycles(self) -> list[str]:
        """Names that import themselves through others."""
        return sorted(name for name in self.imports if name in self.reachable(name))


def read_graph() -> PackageGraph:
    """The graph of the package that `import kmcl` finds."""
    imports: dict[str, set[str]] = {}
    graph = grimp.build_graph(ROOT, cache_dir=None)
    for module in graph.modules:
        others = {_top(other) for other in graph.find_modules_directly_imported_by(module)}
        imports.setdefault(_top(module), set()).update(others - {_top(module)})
    for name in NOT_DRAWN:
        del imports[name]
    whole = PackageGraph({name: frozenset(others) for name, others in imports.items()}, ())
    packages = package_summaries().keys()
    basics = {name for name in imports if not (whole.reachable(name) | {name}) & packages}
    return PackageGraph(
        {name: frozenset(others - basics) for name, others in imports.items() if name not in basics},
        tuple(sorted(basics)),
    )


def importers_of_the_root() -> list[str]:
    """Modules that import names of `kmcl/__init__.py`, which offers names of packages: a cycle in waiting."""
    return sorted(grimp.build_graph(ROOT, cache_dir=None).find_modules_that_directly_import(ROOT))


def _top(module: str) -> str:
    """`kmcl.data.readers.coco2014` belongs to `data`."""
    return module.split(".")[1] if "." in module else ROOT
