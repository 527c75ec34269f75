"""Keys of Rayside's entries in a job's metadata, which Ray stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.users import is_name
from rayside.worker import handshake

# The packed folders, with symlinks resolved; the second is a JSON list. Ray's own record has only the content
# of a package, not its source.
WORKING_DIR, PY_MODULES = "rayside.working_dir", "rayside.py_modules"
# Folders that were written with a symlink, and the targets of symlinks in them, as absolute paths:
# {"resolved": "through the symlink"}.
LOCAL_ROOTS = "rayside.local_roots"
# The options of `submit --debug`: {"attach_timeout", "post_mortem", "driver"}.
DEBUG = "rayside.debug"
# The debugger port of the job's driver: {"port", "pid"}. See worker/driver.py.
DRIVER = handshake.DRIVER
# The name of the user who submitted the job, if several people may debug there (unauthenticated).
USER = handshake.USER
# The files that were edited while the job ran: {"file": "SHA-256, in hex"}.
EDITS = handshake.EDITS
# Variable in the runtime_env with the user's name, for jobs without that metadata, and for their workers.
USER_VARIABLE = handshake.USER_VARIABLE


def user_of(metadata: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> str:
    """Returns the user's name that a job claims (unauthenticated); empty if missing or invalid."""
    variables = runtime_env.get("env_vars")
    name = metadata.get(USER) or (variables.get(USER_VARIABLE) if isinstance(variables, Mapping) else "")
    return name if isinstance(name, str) and is_name(name) else ""
