"""Functions that the relay calls inside debuggees, by import and call.

What a module knows is a connection's, unless it has changed Python or pydevd for the process's life.
"""

from __future__ import annotations

import importlib
import sys

# The relay's and the debuggee's have to be the same; it grows with each change of what the relay calls.
PROTOCOL = 2
_KEPT = frozenset(
    [
        *("compiled", "entering", "exceptions", "flow"),
        *("inserted", "made", "objects", "stopping"),
    ]
)
# Threads of the program run these: they are there before it comes to them.
_RUN_BY_THE_PROGRAM = "reached"
_connections: list[str] = []


def begin(connection: str) -> int:
    """Imports the modules anew for a connection of that name, once; returns PROTOCOL."""
    importlib.import_module("..workarounds", __name__).apply()
    if connection not in _connections:
        _connections[:] = [connection]
        for name in vars(sys.modules[__name__]).keys() - _KEPT:
            if sys.modules.pop(f"{__name__}.{name}", None) is not None:
                delattr(sys.modules[__name__], name)
    importlib.import_module(f".{_RUN_BY_THE_PROGRAM}", __name__)
    return PROTOCOL
