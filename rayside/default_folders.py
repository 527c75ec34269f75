"""Default folders (cache, state, sockets), and the default name of a cluster."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import sys
import tempfile
from pathlib import Path

# The default name of a cluster.
DEFAULT_NAME = "rayside"


def cache_folder() -> Path:
    """Returns the default folder for downloads and builds, which all of this user's clusters share."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rayside"


def state_folder() -> Path:
    """Returns the default state folder: nobody else can make it, as it is below the home folder.

    vscode/src/state_folder.js does the same. On Linux it contains the host name, as machines that share
    a home folder have separate clusters. On macOS homes are not shared, and the host name changes with
    the network.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    base = Path(named) if named.startswith("/") else _own_state_home()
    if base is None:
        return short_folder() / f"rayside-{os.getuid()}"
    host = f"-{platform.node().replace('/', '-')}" if sys.platform == "linux" else ""
    return base / f"rayside{host}"


def _own_state_home() -> Path | None:
    """Returns the state folder's parent in this user's own home folder; None without such a home.

    HOME may belong to another user: under a `sudo` that keeps it, and in containers of some CI systems.
    """
    homes = [Path.home()]
    with contextlib.suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    for home in homes:
        with contextlib.suppress(OSError):
            if home.stat().st_uid == os.getuid():
                return home / ".local" / "state"
    return None


def short_folder() -> Path:
    """Returns a world-writable folder with a short path."""
    # The system's per-user temporary folder (macOS) is too long for Ray's socket paths.
    return Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
