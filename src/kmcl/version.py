"""The version: written here and nowhere else in the code. The build and `kmcl.__version__` read it."""

__version__ = "0.1.0"
