"""Comparisons: several trainings that differ in one thing, run to completion and tabulated together."""

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
