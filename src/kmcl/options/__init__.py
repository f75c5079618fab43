"""Options of methods and post-hoc parts: what settings need to know of both, without loading torch."""

from kmcl.options.methods import METHOD_OPTIONS, methods_with, read_options
from kmcl.options.posthoc import PART_OPTIONS, parse_parts, read_parts

__all__ = ["METHOD_OPTIONS", "PART_OPTIONS", "methods_with", "parse_parts", "read_options", "read_parts"]
