"""Comparisons: several trainings that differ in one thing, run to completion and tabulated together."""

from kmcl.studies.plan import Member, StudyPlan, make_plan, read_plan
from kmcl.studies.results import Spread, StudyResult, VariantResult
from kmcl.studies.study import run_study
from kmcl.studies.variants import EqualSearch, Variant, parse_search, parse_variants

__all__ = [
    "EqualSearch",
    "Member",
    "Spread",
    "StudyPlan",
    "StudyResult",
    "Variant",
    "VariantResult",
    "make_plan",
    "parse_search",
    "parse_variants",
    "read_plan",
    "run_study",
]
