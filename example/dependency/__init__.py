"""A package of the example's own, sent along with `py_modules`."""

from dependency.statistics import inside_circle

__all__ = ["inside_circle"]
