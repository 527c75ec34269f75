"""Is imported in a notebook's cell before `ray.init()`: then its tasks and actors can be debugged.

No cell waits for a debugger, so breakpoints are set while it runs, or before.
"""

from __future__ import annotations

from .driver import debug

debug()
