"""Says which job this process works for, and whose that is: claims, which nothing proves."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from .handshake import LONGEST_USER

# It says whose a job is, where its metadata does not. The relay reads it in the job's runtime_env, too.
USER_VARIABLE = "RAYSIDE_USER"
# Ray gives a submission's drivers their job as JSON in this variable; its metadata has the two keys.
_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_KEYS = USER, SUBMISSION = "rayside.user", "job_submission_id"
_LONGEST_ID = 200


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
    if "ray" not in sys.modules:  # Importing it into a process that is not Ray's costs seconds.
        return ""
    try:
        from ray._private.worker import global_worker

        job = global_worker.current_job_id if global_worker.connected else None
        return "" if job is None or job.is_nil() else str(job.hex())
    except Exception:  # It is another Ray than those that we know: its job is found out in another way.
        return ""


def metadata() -> dict[str, str]:
    """Returns what the job's metadata says of its submission and its user, as far as this process has it."""
    try:
        if _CONFIG in os.environ:
            return _read(json.loads(os.environ[_CONFIG]).get("metadata") or {})
        # Ray keeps the first answer for good, and before a worker's first task that is an empty one, without
        # the job's namespace: so only what Ray itself has asked for already is read.
        if not getattr(sys.modules.get("ray._raylet"), "job_config_initialized", False):
            return {}
        from ray._private.worker import global_worker

        return _read(global_worker.core_worker.get_job_config().metadata) if global_worker.connected else {}
    except Exception:  # It is another Ray than those that we know.
        return {}


def _read(everything: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(everything[key]) for key in _KEYS if key in everything}
