"""Methods of multi-label classification: options, a head and a loss each, behind one interface."""

from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.linear import LinearHead
from kmcl.methods.output import Head, HeadOutput
from kmcl.methods.registry import METHODS, find_method
from kmcl.options.methods import MethodOptions

__all__ = [
    "METHODS",
    "Head",
    "HeadOutput",
    "LinearHead",
    "LossTerms",
    "Method",
    "MethodOptions",
    "find_method",
]
