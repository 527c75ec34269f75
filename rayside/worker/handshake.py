"""Handshake: debugger and process prove to each other that both know Ray's token, which neither sends.

    debugger: request `initialize`                                             as to any debug adapter
    process:  response, body.rayside.nonce: 32 random bytes in hex
    debugger: request `raysideAuthorize`, arguments.nonce: 32 random bytes in hex, arguments.proof, and
              arguments.user: the name of who debugs, which nothing proves
    process:  response, body.proof, body.job and body.submission: Ray's ids of its job, and body.user: the
              name of whose that is, or of who had it opened, each empty where it knows none; nothing
              proves them                                                      or no success, and the end
    debugger: request `raysideDebug`; or it leaves, where it does not want a process of that job or user.
              arguments.children: whether it debugs the processes that this one starts, too
    process:  response, body.taken; where that is false, body.user: who debugs it now, and the end; where
              children are wanted, body.children: `pid` and `port` of each that lives (see children.py)

From then on the connection is a DAP session with pydevd, from `initialize` on. The debugger of an earlier
version, which sends no `user`, has the session after `raysideAuthorize`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# They are the key in the body of the response to `initialize`, and the request that answers it.
CHALLENGE, AUTHORIZE = "rayside", "raysideAuthorize"
# This request of a debugger that is known makes the process its own.
DEBUG = "raysideDebug"
# The names of users are cut at so many characters.
LONGEST_USER = 64
# It says whose a job is, where its metadata does not. The relay reads it in the job's runtime_env, too.
USER_VARIABLE = "RAYSIDE_USER"
# Ray gives a submission's drivers their job as JSON in this variable; its metadata has the two keys.
_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_KEYS = USER, SUBMISSION = "rayside.user", "job_submission_id"
# A job's metadata has here {"port", "pid"} of a driver that has a port before its `ray.init` (driver.py).
DRIVER = "rayside.driver"
# The files that were edited while a job ran, in its metadata.
EDITS = "rayside.edits"
_LONGEST_ID = 200


def proof(token: bytes, role: str, nonces: tuple[str, str], address: tuple[str, int]) -> str:
    """Returns the HMAC-SHA256, in hex, by which `role` shows that it knows the token.

    Args:
        role: "client" or "debuggee".
        nonces: the debuggee's, and the client's.
        address: host and port of the debuggee's end of the connection, as the client dialled them: who
            holds another port can't pass the handshake on to this one.
    """
    host, port = address
    statement = "|".join(("rayside debugger", role, *nonces, host, str(port)))
    return hmac.new(token, statement.encode(), hashlib.sha256).hexdigest()


# --- the job that this process works for, and its user: claims, which nothing proves -------------


def claims(by_driver: Mapping[str, str], opener: str) -> dict[str, str]:
    """Returns `job`, Ray's id of it, `submission` and `user`, each empty where it is not known.

    Args:
        by_driver: what `metadata` was in the job's driver, if that has sent it.
        opener: the name of who had the debugger opened here, if known.
    """
    own = {**by_driver, **metadata()}
    user = own.get(USER) or os.environ.get(USER_VARIABLE) or opener
    return {"job": job(), "submission": own.get(SUBMISSION, "")[:_LONGEST_ID], "user": user[:LONGEST_USER]}


def job() -> str:
    """Returns Ray's id of the job that this process works for; empty where it knows none."""
    try:
        # Importing it into a process that is not Ray's would cost seconds.
        worker: Any = sys.modules["ray._private.worker"].global_worker
        job = worker.current_job_id if worker.connected else None
        return "" if job is None or job.is_nil() else str(job.hex())
    except Exception:  # There is none, or another than those that we know: its job is found out otherwise.
        return ""


def metadata() -> dict[str, str]:
    """Returns what the job's metadata says of its submission and its user, as far as this process has it."""
    try:
        if _CONFIG in os.environ:
            return _read(json.loads(os.environ[_CONFIG]).get("metadata") or {})
        # Ray keeps the first answer for good, and before a worker's first task that is an empty one, without
        # the job's namespace: so only what Ray itself has asked for already is read.
        if not sys.modules["ray._raylet"].job_config_initialized:
            return {}
        worker: Any = sys.modules["ray._private.worker"].global_worker
        return _read(worker.core_worker.get_job_config().metadata) if worker.connected else {}
    except Exception:  # There is no Ray, or another than those that we know.
        return {}


def _read(everything: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(everything[key]) for key in _KEYS if key in everything}
