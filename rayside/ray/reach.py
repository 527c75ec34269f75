"""Finds out which nodes of a Ray can't be reached from where this runs."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

# A node that is there accepts within so many seconds.
_PATIENCE = 3.0
# So many nodes are tried, side by side: the others are in the same network, or will be told of by the relay.
_TRIED = 16


def out_of_reach(raylets: Mapping[str, int]) -> list[str]:
    """Returns the addresses of the nodes, of some that are tried, whose raylet accepts no connection.

    `raylets` is as `Dashboard.raylets` has it. A debugger's own port is never tried: debugpy takes who
    connects for its one client.
    """
    tried = sorted(raylets.items())[:_TRIED]
    with ThreadPoolExecutor(_TRIED) as pool:
        reached = list(pool.map(_accepts, tried))
    return [address for (address, _), accepted in zip(tried, reached, strict=True) if not accepted]


def _accepts(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=_PATIENCE):
            return True
    except OSError:
        return False
