"""Protocol of the Ray cluster that the relay and the workspace of this machine are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from rayside.ray.state import Dashboard

# These variables are another Ray's, or another Python's.
FOREIGN = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "VIRTUAL_ENV", "PYTHONHOME")


class RayBeside(Protocol):
    """A Ray cluster on this machine, or an existing one that this machine reaches."""

    @property
    def url(self) -> str:
        """Returns the address of its dashboard."""

    @property
    def token(self) -> Path:
        """Returns the file of the token that the relay asks for, and Ray too, unless it asks for none."""

    @property
    def asks_for_token(self) -> bool:
        """Returns whether this Ray asks for that token."""

    @property
    def programs(self) -> Path:
        """Returns the folder of a `python` and a `ray` of this machine that fit it."""

    def dashboard(self) -> Dashboard:
        """Returns a client of its dashboard, which may not answer. Raises NotRunning without a token."""

    def require(self) -> Dashboard:
        """Returns a client of its dashboard, which answers. Raises NotRunning, RayDied."""

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what tells it from another Ray at the same address; it can be written as JSON."""


def authentication(ray: RayBeside) -> dict[str, str]:
    """Returns the variables by which Ray's own programs find the token; none has the token itself."""
    if not ray.asks_for_token:
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(ray.token)}
