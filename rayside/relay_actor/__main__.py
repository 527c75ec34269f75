"""Program of a job: `python -m rayside.relay_actor` starts the relay from a RelaySpec in the job's folder.

It first ends an earlier relay of that name, and prints one line: `RAYSIDE_RELAY`, and `Running` as JSON.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayside.errors import RaysideError
from rayside.relay_actor.actor import RelayActor
from rayside.relay_actor.spec import ANSWER, FAILURE, FILE, NAMESPACE, RelaySpec

# Timeouts in seconds: start of the actor's process, detaching from all debuggees, and release of its name.
_PATIENCE, _GOODBYE, _FORGOTTEN = 90.0, 10.0, 20.0
# Ray's resource of the head node.
_HEAD = "node:__internal_head__"


def begin(spec: RelaySpec) -> str:
    """Starts the relay on the head node, as a detached actor; returns the document of `Running`."""
    end(spec)
    head = next(node["NodeID"] for node in ray.nodes() if node["Alive"] and _HEAD in node["Resources"])
    actor = (
        ray.remote(RelayActor)
        .options(
            name=spec.name,
            lifetime="detached",
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(head, soft=False),
        )
        .remote(spec)
    )
    try:
        return str(ray.get(actor.begin.remote(actor._actor_id.hex()), timeout=_PATIENCE))
    except BaseException:
        ray.kill(actor)
        raise


def end(spec: RelaySpec) -> None:
    """Ends the relay of that name, if there is one."""
    deadline = time.monotonic() + _FORGOTTEN
    with contextlib.suppress(ValueError):
        actor = ray.get_actor(spec.name)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(actor.end.remote(), timeout=_GOODBYE)
        ray.kill(actor)
        # After Ray has released the name, this raises ValueError.
        while time.monotonic() < deadline:
            ray.get_actor(spec.name)
            time.sleep(0.1)


def main() -> int:
    """Starts the relay; returns the exit code."""
    spec = RelaySpec.read(Path(FILE))
    ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    try:
        sys.stdout.write(f"{ANSWER}{begin(spec)}\n")
    except RaysideError as error:
        sys.stdout.write(f"{FAILURE}{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
