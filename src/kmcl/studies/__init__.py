"""Comparisons: several trainings that differ in one thing, run to completion and tabulated together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.studies.command import command_of
    from kmcl.studies.equal_search import EqualSearch, parse_search
    from kmcl.studies.plan import Member, StudyPlan, make_plan
    from kmcl.studies.results import Spread, StudyResult, VariantResult
    from kmcl.studies.study import run_study
    from kmcl.studies.variants import Variant, parse_variants

__all__ = [
    "EqualSearch",
    "Member",
    "Spread",
    "StudyPlan",
    "StudyResult",
    "Variant",
    "VariantResult",
    "command_of",
    "make_plan",
    "parse_search",
    "parse_variants",
    "run_study",
]

_HOMES = {
    "EqualSearch": "kmcl.studies.equal_search",
    "Member": "kmcl.studies.plan",
    "Spread": "kmcl.studies.results",
    "StudyPlan": "kmcl.studies.plan",
    "StudyResult": "kmcl.studies.results",
    "Variant": "kmcl.studies.variants",
    "VariantResult": "kmcl.studies.results",
    "command_of": "kmcl.studies.command",
    "make_plan": "kmcl.studies.plan",
    "parse_search": "kmcl.studies.equal_search",
    "parse_variants": "kmcl.studies.variants",
    "run_study": "kmcl.studies.study",
}

__getattr__ = lazy_names(__name__, _HOMES)
