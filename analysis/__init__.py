"""Results -> frames -> statistics -> figures -> report; results are read, never edited. `python -m analysis --help`."""

from analysis.tree import load, read

__all__ = ["load", "read"]
