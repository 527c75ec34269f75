"""Handles of other jobs' actors by id, also without a name, or without their class in this job.

Ray's public API, `ray.get_actor`, needs a name, and loads the actor's class, which needs that job's modules.
This reads the data for a handle from Ray's table of actors. It relies on `ActorHandle` in core_worker.proto,
`GlobalStateAccessor` in _raylet.pyx and `load_actor_class` in function_manager.py (seen: Ray 2.46 and 2.60).
"""

from __future__ import annotations

from typing import Any


class ActorTable:
    """Ray's table of actors, after `ray.init`."""

    def __init__(self) -> None:
        import ray

        self._accessor = ray._raylet.GlobalStateAccessor(ray._private.state.state.gcs_options)
        self._accessor.connect()

    def handle(self, actor_id: str) -> Any:
        """Returns a handle with `__ray_call__` that does not keep the actor alive.

        Raises LookupError if there is no such actor, and any error if Ray's internals differ.
        """
        import ray
        from ray.core.generated import common_pb2, core_worker_pb2, gcs_pb2

        row = self._accessor.get_actor_info(ray.ActorID.from_hex(actor_id))
        if row is None:
            raise LookupError(f"there is no actor {actor_id}")
        actor = gcs_pb2.ActorTableData.FromString(row)
        known = actor.function_descriptor.python_function_descriptor
        descriptor = ray._raylet.PythonFunctionDescriptor(
            known.module_name, known.function_name, known.class_name, known.function_hash
        )

        class Anything:
            pass

        # The actor's class may not be loadable here, and none of its methods is called.
        loaded = ray._private.worker.global_worker.function_actor_manager._loaded_actor_classes
        loaded[descriptor.function_id] = ray.actor._modify_class(Anything)
        state = core_worker_pb2.ActorHandle(
            actor_id=actor.actor_id,
            owner_id=actor.owner_address.worker_id,
            owner_address=actor.owner_address,
            creation_job_id=actor.job_id,
            actor_language=common_pb2.PYTHON,
            actor_creation_task_function_descriptor=actor.function_descriptor,
            max_pending_calls=-1,
        )
        return ray.actor.ActorHandle._deserialization_helper(state.SerializeToString(), True, None)
