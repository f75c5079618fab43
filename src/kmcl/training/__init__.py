"""Training: from a plan to a model. Read `pipeline.py` first."""

from kmcl.training.pipeline import resume, train
from kmcl.training.plan import Plan, make_plan
from kmcl.training.states import RunIO

__all__ = ["Plan", "RunIO", "make_plan", "resume", "train"]
