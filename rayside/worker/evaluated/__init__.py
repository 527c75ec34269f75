"""Functions that the relay calls inside debuggees, by import and call.

A module's state lasts for one connection, unless it has patched Python or pydevd for the process's life.
"""

from __future__ import annotations

import importlib
import sys

# Version of the functions that the relay calls; must be equal in relay and debuggee.
PROTOCOL = 2
_KEPT = frozenset(
    [
        *("compiled", "entering", "exceptions", "flow"),
        *("inserted", "made", "objects", "stopping"),
    ]
)
# The program's threads run this module, so it is imported before they reach a breakpoint.
_RUN_BY_THE_PROGRAM = "reached"
_connections: list[str] = []


def begin(connection: str) -> int:
    """Discards the modules of an earlier connection, once for each connection name; returns PROTOCOL."""
    importlib.import_module("..workarounds", __name__).apply()
    if connection not in _connections:
        _connections[:] = [connection]
        for name in vars(sys.modules[__name__]).keys() - _KEPT:
            if sys.modules.pop(f"{__name__}.{name}", None) is not None:
                delattr(sys.modules[__name__], name)
    importlib.import_module(f".{_RUN_BY_THE_PROGRAM}", __name__)
    return PROTOCOL
