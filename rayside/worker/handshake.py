"""Handshake between debugger and process: both prove that they know Ray's token, without sending it.

    debugger: request `initialize`                                             as to any debug adapter
    process:  response, body.rayside.nonce: 32 random bytes in hex
    debugger: request `raysideAuthorize`, arguments.nonce: 32 random bytes in hex, arguments.proof, and
              arguments.user: the debugger's user (unauthenticated)
    process:  response, body.proof, body.job and body.submission: Ray's ids of its job, and body.user: the
              user of the job, or else the user who had the port opened; each empty if unknown
              (unauthenticated)                                                or no success, and the end
    debugger: request `raysideDebug`; or it leaves if it does not want a process of that job or user.
              arguments.children: whether it debugs the processes that this one starts, too
    process:  response, body.taken; if that is false, body.user: the current debugger's user, and the end; if
              children are wanted, body.children: `pid` and `port` of each live one (see children.py)

From then on the connection is a DAP session with pydevd, starting with `initialize`. For a debugger of an
earlier version, which sends no `user`, the session starts after `raysideAuthorize`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# Key in the body of the response to `initialize`, and the request that answers the challenge.
CHALLENGE, AUTHORIZE = "rayside", "raysideAuthorize"
# Request of an authenticated debugger that starts its session.
DEBUG = "raysideDebug"
# Limit in characters of users' names; longer ones are cut.
LONGEST_USER = 64
# Variable with the job's user, if its metadata has none. The relay reads it in the job's runtime_env, too.
USER_VARIABLE = "RAYSIDE_USER"
# Ray's variable with a submitted job as JSON, for its drivers; the job's metadata has the two keys.
_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_KEYS = USER, SUBMISSION = "rayside.user", "job_submission_id"
# Metadata key of {"port", "pid"} of a driver that has a port before its `ray.init` (driver.py).
DRIVER = "rayside.driver"
# Metadata key of the files that were edited while a job ran.
EDITS = "rayside.edits"
_LONGEST_ID = 200


def proof(token: bytes, role: str, nonces: tuple[str, str], address: tuple[str, int]) -> str:
    """Returns the HMAC-SHA256, in hex, which proves that `role` knows the token.

    Args:
        role: "client" or "debuggee".
        nonces: the debuggee's, and the client's.
        address: host and port of the debuggee's end of the connection, as the client connected to them: a
            listener at another port can't relay the handshake to this one.
    """
    host, port = address
    statement = "|".join(("rayside debugger", role, *nonces, host, str(port)))
    return hmac.new(token, statement.encode(), hashlib.sha256).hexdigest()


# --- this process's job and its user (unauthenticated) -------------------------------------------


def claims(by_driver: Mapping[str, str], opener: str) -> dict[str, str]:
    """Returns `job` (Ray's job id), `submission` and `user`, each empty if unknown.

    Args:
        by_driver: `metadata` from the job's driver, if that has sent it.
        opener: the user who had the debugger port opened, if known.
    """
    own = {**by_driver, **metadata()}
    user = own.get(USER) or os.environ.get(USER_VARIABLE) or opener
    return {"job": job(), "submission": own.get(SUBMISSION, "")[:_LONGEST_ID], "user": user[:LONGEST_USER]}


def job() -> str:
    """Returns Ray's id of this process's job; empty if unknown."""
    try:
        # Not imported: in a process without Ray, that would take seconds.
        worker: Any = sys.modules["ray._private.worker"].global_worker
        job = worker.current_job_id if worker.connected else None
        return "" if job is None or job.is_nil() else str(job.hex())
    except Exception:  # no Ray, or an unknown version: the relay finds the job otherwise
        return ""


def metadata() -> dict[str, str]:
    """Returns the submission id and the user from the job's metadata, if available in this process."""
    try:
        if _CONFIG in os.environ:
            return _read(json.loads(os.environ[_CONFIG]).get("metadata") or {})
        # Ray caches the first answer forever, and before a worker's first task that is an empty one, without
        # the job's namespace: so this only reads an answer that Ray itself has requested before.
        if not sys.modules["ray._raylet"].job_config_initialized:
            return {}
        worker: Any = sys.modules["ray._private.worker"].global_worker
        return _read(worker.core_worker.get_job_config().metadata) if worker.connected else {}
    except Exception:  # no Ray, or an unknown version
        return {}


def _read(everything: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(everything[key]) for key in _KEYS if key in everything}
