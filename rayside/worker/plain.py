"""Has Ray's own `breakpoint()` open our listener instead of debugpy's server, which asks nobody for a proof.

It is for processes without the hook, in the environments and images that Rayside makes: start.py, beside this
package, imports it.
"""

from __future__ import annotations

from typing import Any


class _Debugpy:
    """Stands for debugpy as Ray uses it: all of it, but for `listen`."""

    def __init__(self, debugpy: Any) -> None:
        self._debugpy = debugpy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._debugpy, name)

    def listen(self, address: tuple[str, int]) -> tuple[str, int]:
        """Listens as debugpy's does; the port is always a free one."""
        from .attach import listen

        return address[0], listen(address[0])


def change(rays_own: Any) -> None:
    """Gives the module `ray.util.debugpy` our `listen`."""
    load = rays_own._try_import_debugpy

    def load_ours() -> Any:
        debugpy = load()
        return debugpy and _Debugpy(debugpy)

    rays_own._try_import_debugpy = load_ours
