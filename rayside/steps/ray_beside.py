"""Protocol of the Ray cluster of this machine's relay and workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from rayside.ray.state import Dashboard

# Variables of another Ray cluster, or of another Python.
FOREIGN = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "VIRTUAL_ENV", "PYTHONHOME")


class RayBeside(Protocol):
    """A Ray cluster on this machine, or an existing one that this machine reaches."""

    @property
    def url(self) -> str:
        """Returns the address of its dashboard."""

    @property
    def token(self) -> Path:
        """Returns the file with the token that the relay requires, and Ray too, unless it requires none."""

    @property
    def asks_for_token(self) -> bool:
        """Returns whether this Ray cluster requires that token."""

    @property
    def programs(self) -> Path:
        """Returns the folder with a matching `python` and `ray` on this machine."""

    def dashboard(self) -> Dashboard:
        """Returns a client of its dashboard, without a check. Raises NotRunning without a token."""

    def require(self) -> Dashboard:
        """Returns a client of its dashboard, after it answered. Raises NotRunning, RayDied."""

    @property
    def identity(self) -> dict[str, Any]:
        """Returns a JSON object that differs for another Ray cluster at the same address."""


def authentication(ray: RayBeside) -> dict[str, str]:
    """Returns the variables with which Ray's own programs find the token; none contains the token itself."""
    if not ray.asks_for_token:
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(ray.token)}
