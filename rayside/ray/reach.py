"""Check for nodes of a Ray cluster that are unreachable from this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

# Timeout in seconds for a node to accept a connection.
_PATIENCE = 3.0
# Limit: nodes that are tried, in parallel. The others are in the same network, or the relay reports them.
_TRIED = 16


def out_of_reach(raylets: Mapping[str, int]) -> list[str]:
    """Returns the addresses of unreachable nodes, among the tried ones: their raylet accepts no connection.

    `raylets` is from `Dashboard.raylets`. A debugger's own port is never tried: debugpy would accept the
    connection as its only client.
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
