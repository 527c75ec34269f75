"""Lists the explainers of failures, and asks them one after the other."""

from __future__ import annotations

from collections.abc import Callable

from bootstrap.diagnosis.causes import memory, objects, processes, program
from bootstrap.diagnosis.causes.cause import Cause
from bootstrap.diagnosis.failure import Failure

# The first that knows wins. `actor_died` comes after those that know more of how an actor ended.
CAUSES: tuple[Callable[[Failure], Cause | None], ...] = (
    memory.out_of_memory,
    memory.object_store_full,
    processes.worker_died,
    processes.actor_init_raised,
    processes.actor_killed,
    processes.node_died,
    processes.actor_died,
    objects.owner_died,
    objects.object_lost,
    objects.not_serializable,
    program.runtime_env_failed,
    program.module_not_found,
    program.get_timed_out,
    program.pending_calls_exceeded,
    program.cancelled,
    program.unschedulable,
)


def cause(failure: Failure) -> Cause:
    """Returns the cause of a failure; what no explainer knows is an exception of the user's code."""
    for explain in CAUSES:
        if its_cause := explain(failure):
            return its_cause
    return program.raised(failure)
