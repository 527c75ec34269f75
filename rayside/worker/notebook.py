"""Debugging from a notebook: import this before `ray.init()`, and its tasks and actors can be debugged.

No cell waits for a debugger, so breakpoints are set while it runs, or before.
"""

from __future__ import annotations

from .driver import debug

debug()
