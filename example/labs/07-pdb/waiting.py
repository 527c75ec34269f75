"""Finds the task that waits in pdb, as `ray debug` does, in Ray's key-value store; reads what pdb shows."""

import json
import os
import socket
import time

from ray._private.state import jobs
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

NAMESPACE = b"ray_pdb"


def newest(job: str = os.environ.get("PDB_JOB", ""), patience: float = 60.0) -> dict:
    """Returns what the task that began to wait last has written: `pdb_address`, `node_id`, and more.

    It is one of Ray's job `job`, where that is not empty. `number` is what `ray debug` takes for it, once
    that has cleared away what stopped jobs have left.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        keys = _internal_kv_list("RAY_PDB_", namespace=NAMESPACE)
        values = [_internal_kv_get(key, namespace=NAMESPACE) for key in keys]
        entries = [json.loads(value) for value in values if value]
        running = {each["JobID"] for each in jobs() if not each["IsDead"]}
        left = [entry for entry in entries if entry["job_id"] in running]
        # `remote`, a command of this pdb, leaves entries that are no tasks.
        tasks = [{**entry, "number": at} for at, entry in enumerate(left) if "pdb_address" in entry]
        if tasks := [task for task in tasks if job in ("", task["job_id"])]:
            return max(tasks, key=lambda task: task["timestamp"])
        time.sleep(0.2)
    raise SystemExit("no task waits in pdb")


def until_prompt(connection: socket.socket) -> str:
    """Returns what pdb shows up to its prompt, or until it is gone."""
    shown = b""
    while not shown.endswith(b"(Pdb) ") and (piece := connection.recv(4096)):
        shown += piece
    return shown.decode(errors="replace").replace("\r", "")
