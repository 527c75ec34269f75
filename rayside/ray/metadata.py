"""Names what Rayside keeps with a job: the keys in the metadata that Ray stores for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.users import is_name
from rayside.worker import handshake

# The folders that were packed, without symlinks; the second is a JSON list. Ray's own record says only what
# is in a package, not where it came from.
WORKING_DIR, PY_MODULES = "rayside.working_dir", "rayside.py_modules"
# It has the folders that were written with a symlink, and where symlinks in them lead to, all absolute:
# {"resolved": "by way of the symlink"}.
LOCAL_ROOTS = "rayside.local_roots"
# It has the options of `submit --debug`: {"attach_timeout", "post_mortem", "driver"}.
DEBUG = "rayside.debug"
# It has the debugger's port of the job's driver: {"port", "pid"}. See worker/driver.py.
DRIVER = handshake.DRIVER
# It has the name of the user who submitted the job, where several people may debug there. Nothing proves it.
USER = handshake.USER
# It has the files that were edited while the job ran: {"file": "SHA-256, in hex"}.
EDITS = handshake.EDITS
# A job that nobody submitted has the same in this variable of its runtime_env.
USER_VARIABLE = handshake.USER_VARIABLE


def user_of(metadata: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> str:
    """Returns the name of the user whose job it says it is; empty where it says none, or none that can be."""
    variables = runtime_env.get("env_vars")
    name = metadata.get(USER) or (variables.get(USER_VARIABLE) if isinstance(variables, Mapping) else "")
    return name if isinstance(name, str) and is_name(name) else ""
