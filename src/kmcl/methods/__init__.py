"""Methods of multi-label classification behind one interface: a head and a loss each."""

from kmcl.methods.interface import LossTerms, Method, MethodOptions
from kmcl.methods.table import METHODS, find_method

__all__ = ["METHODS", "LossTerms", "Method", "MethodOptions", "find_method"]
