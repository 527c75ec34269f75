"""Asks and tells Ray on behalf of a driver that has not imported it: `python -m rayside.worker.scout`.

It is the driver's child, and speaks with it over a pipe, in lines of JSON: says `{"host", "token"}` (the
node's address and Ray's token); is told `{"port", "pid", "latest"}` and puts the first two into the job's
metadata, where the relay finds them; says `{"deadline"}`, up to which the job's programs wait for a
debugger; ends with its pipe, or once it is told `{"attached"}`. Where it fails it says `{"error"}`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

# A driver, and what it starts, has here the time up to which it has waited in vain; `inf` if it has not.
STARTED = "RAYSIDE_STARTED"
# A job's metadata has here {"port", "pid"} of its driver.
DRIVER = "rayside.driver"
# Each of its lines begins with this.
SAYS = "rayside: "
# One answer of Ray may take so many seconds.
_PATIENCE = 5
_NAMESPACE = b"rayside"


def main() -> None:
    try:
        _serve()
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}"})


def _serve() -> None:
    from ray._private.ray_constants import KV_NAMESPACE_JOB
    from ray._raylet import GcsClient
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    from .listener import rays_token

    job = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
    key = JobInfoStorageClient.JOB_DATA_KEY.format(job_id=job).encode()
    gcs = GcsClient(address=os.environ["RAY_ADDRESS"])
    node = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_PATIENCE))[
        "driver_node_id"
    ]
    nodes = gcs.get_all_node_info(timeout=_PATIENCE)
    hosts = {each.node_id.hex(): each.node_manager_address for each in nodes.values()}
    _say({"host": hosts[node], "token": rays_token().decode()})

    process = _received()
    # It is read anew: nothing else writes it while the driver, which waits for this, exists.
    info = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_PATIENCE))
    if info["status"] != "RUNNING":
        raise RuntimeError(f"the job is {info['status']}")
    driver = json.dumps({"port": process["port"], "pid": process["pid"]})
    info["metadata"] = {**(info.get("metadata") or {}), DRIVER: driver}
    gcs.internal_kv_put(
        key, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB, timeout=_PATIENCE
    )

    # It is one for all programs that an entrypoint runs one after the other: nobody waits for each.
    deadline_key = f"{job}/early".encode()
    latest = repr(process["latest"]).encode()
    gcs.internal_kv_put(deadline_key, latest, overwrite=False, namespace=_NAMESPACE, timeout=_PATIENCE)
    deadline = gcs.internal_kv_get(deadline_key, namespace=_NAMESPACE, timeout=_PATIENCE)
    _say({"deadline": float(deadline)})

    if _received().get("attached"):
        forever = repr(math.inf).encode()
        gcs.internal_kv_put(deadline_key, forever, overwrite=True, namespace=_NAMESPACE, timeout=_PATIENCE)


def _received() -> dict[str, Any]:
    return dict(json.loads(sys.stdin.readline() or "{}"))


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(f"{SAYS}{json.dumps(message)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # Ray's threads need not end.
