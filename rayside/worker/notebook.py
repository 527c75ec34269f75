"""Debugging from a notebook: import this before `ray.init()`, and its tasks and actors can be debugged.

Cells do not wait for a debugger, so set breakpoints before a cell runs, or while it runs.
"""

from __future__ import annotations

from .driver import debug

debug()
