"""Reachability of a Ray cluster's nodes from this process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

# Timeout in seconds of a connection to a node.
_PATIENCE = 3.0
# Limit: nodes to try, in parallel; the others are in the same network, or the relay reports them.
_TRIED = 16


def out_of_reach(raylets: Mapping[str, int]) -> list[str]:
    """Tries the first `_TRIED` nodes; returns the addresses of nodes whose raylet accepts no connection.

    `raylets` is the result of `Dashboard.raylets`. A debugger's own port is never tried: debugpy would take
    the connection for its only client.
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
