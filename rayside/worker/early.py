"""Opens the driver of a job to a debugger before its program begins, long before its `ray.init`.

start.py calls `begin` at Python's start. Ray is not imported in the driver, for the program may still set
what that reads: a short-lived child, the scout (`python -m rayside.worker.early`), asks and tells Ray. They
exchange lines of JSON over pipes. The scout says `{"host", "token"}` (the node's address and Ray's token); is
told `{"port", "pid", "latest"}` and puts the first two into the job's metadata, where the relay finds them;
says `{"deadline"}`, up to which the job's programs wait for a debugger; ends with its pipe, or once it is
told `{"attached"}`. Where it fails it says `{"error"}`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from . import attach
from .debug_config import Config, change
from .handshake import DRIVER
from .listener import rays_token

# Each of the scout's lines begins with this.
_SAYS = "rayside: "
# Seconds for one message of the scout (all of them took 0.8 s), and for one answer of Ray.
_PATIENCE, _RAYS_PATIENCE = 15.0, 5
_NAMESPACE = b"rayside"


_FAILURE = "the driver is debugged from ray.init on"
# As `-m`, which would look for our modules in the current folder first: others may write there.
_RUN = "import runpy, sys; sys.path.remove(''); runpy.run_module(sys.argv[1], run_name='__main__')"


def begin() -> None:
    """Opens the port, publishes it, and waits for a debugger as `--attach-timeout` says; never raises.

    With 0 nothing may wait, and the driver's port opens in `ray.init` alone. That also says it where there is
    no debugpy, or the configuration is malformed.
    """
    try:
        config = Config.read()
    except ValueError:
        return
    if config.attach_timeout <= 0:
        return
    command = [sys.executable, "-c", _RUN, __name__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    failure: object = "interrupted"
    try:
        with subprocess.Popen(command, text=True, **pipes) as scout:  # type: ignore[call-overload]
            try:
                failure = _open(config, scout)
            finally:
                if failure is not None:
                    scout.kill()
    except Exception as error:
        attach.say(f"{_FAILURE}: {type(error).__name__}: {error}")


def _open(config: Config, scout: subprocess.Popen[str]) -> Exception | None:
    deadline = 0.0

    def address() -> Mapping[str, Any]:  # called when debugpy is loaded, while the scout imports Ray
        ray = _line(scout)
        return {"host": ray["host"], "token": ray["token"].encode()}

    def publish(port: int) -> None:
        nonlocal deadline
        latest = time.time() + config.attach_timeout
        _tell(scout, {"port": port, "pid": os.getpid(), "latest": latest})
        deadline = float(_line(scout)["deadline"])

    def wait(config: Config) -> None:
        import debugpy

        latest = min(deadline, time.time() + config.attach_timeout)
        attach.until_attached(lambda: time.time() >= latest, config.attach_timeout)
        if debugpy.is_client_connected():
            _tell(scout, {"attached": True})
        else:
            change(waited_until=latest)

    return attach.open(config, address, publish, wait, failure=_FAILURE)


def _line(scout: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the scout's next message. Raises RuntimeError where it fails, or takes too long."""
    assert scout.stdout is not None
    too_long = threading.Timer(_PATIENCE, scout.kill)
    too_long.daemon = True
    too_long.start()
    try:
        # Whatever else this Python prints when it starts is none of ours.
        text = next((line for line in scout.stdout if line.startswith(_SAYS)), "").removeprefix(_SAYS)
    finally:
        too_long.cancel()
    answer: dict[str, Any] = json.loads(text or '{"error": "Ray gave no answer"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def _tell(scout: subprocess.Popen[str], message: Mapping[str, Any]) -> None:
    assert scout.stdin is not None
    scout.stdin.write(json.dumps(message) + "\n")
    scout.stdin.flush()


# --- in the scout --------------------------------------------------------------------------------


def _scout() -> None:
    try:
        _serve()
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}"})


def _serve() -> None:
    from ray._private.ray_constants import KV_NAMESPACE_JOB
    from ray._raylet import GcsClient
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    job = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
    key = JobInfoStorageClient.JOB_DATA_KEY.format(job_id=job).encode()
    gcs = GcsClient(address=os.environ["RAY_ADDRESS"])
    node = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE))[
        "driver_node_id"
    ]
    nodes = gcs.get_all_node_info(timeout=_RAYS_PATIENCE)
    hosts = {each.node_id.hex(): each.node_manager_address for each in nodes.values()}
    _say({"host": hosts[node], "token": rays_token().decode()})

    process = _received()
    # It is read anew: nothing else writes it while the driver, which waits for this, exists.
    info = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE))
    if info["status"] != "RUNNING":
        raise RuntimeError(f"the job is {info['status']}")
    driver = json.dumps({"port": process["port"], "pid": process["pid"]})
    info["metadata"] = {**(info.get("metadata") or {}), DRIVER: driver}
    gcs.internal_kv_put(
        key, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE
    )

    # It is one for all programs that an entrypoint runs one after the other: nobody waits for each.
    deadline_key = f"{job}/early".encode()
    latest = repr(process["latest"]).encode()
    gcs.internal_kv_put(deadline_key, latest, overwrite=False, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE)
    deadline = gcs.internal_kv_get(deadline_key, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE)
    _say({"deadline": float(deadline)})

    if _received().get("attached"):
        forever = repr(math.inf).encode()
        gcs.internal_kv_put(
            deadline_key, forever, overwrite=True, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE
        )


def _received() -> dict[str, Any]:
    return dict(json.loads(sys.stdin.readline() or "{}"))


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(f"{_SAYS}{json.dumps(message)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _scout()
    os._exit(0)  # Ray's threads need not end.
