"""Keys of Rayside's entries in the metadata that Ray stores for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.users import is_name
from rayside.worker import handshake

# The packed folders, with symlinks resolved; the second is a JSON list. Ray records the content of a package,
# but not its origin.
WORKING_DIR, PY_MODULES = "rayside.working_dir", "rayside.py_modules"
# Folders that were named through a symlink, and targets of symlinks in them, all absolute:
# {"resolved path": "path through the symlink"}.
LOCAL_ROOTS = "rayside.local_roots"
# Options of `submit --debug`: {"attach_timeout", "post_mortem", "driver"}.
DEBUG = "rayside.debug"
# Debugger port of the job's driver: {"port", "pid"}. See worker/driver.py.
DRIVER = handshake.DRIVER
# Name of the submitting user (unauthenticated), on a Ray cluster that several people debug on.
USER = handshake.USER
# Files that were edited while the job ran: {"file": "SHA-256, in hex"}.
EDITS = handshake.EDITS
# A job without a submission has its user's name in this variable of its runtime_env.
USER_VARIABLE = handshake.USER_VARIABLE


def user_of(metadata: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> str:
    """Returns the job's user name (unauthenticated); empty without a valid one."""
    variables = runtime_env.get("env_vars")
    name = metadata.get(USER) or (variables.get(USER_VARIABLE) if isinstance(variables, Mapping) else "")
    return name if isinstance(name, str) and is_name(name) else ""
