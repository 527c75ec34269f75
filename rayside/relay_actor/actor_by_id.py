"""Finds an actor of another job by its id: also one that has no name, and whose class this job lacks.

Ray's public way, `ray.get_actor`, takes a name, and loads the actor's class, which needs that job's modules.
What it makes a handle of is in Ray's table of actors. This leans on `ActorHandle` in core_worker.proto,
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
        """Returns a handle that has `__ray_call__`, and does not keep the actor alive.

        Raises LookupError where there is no such actor; and whatever a Ray with other inner parts raises.
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

        # Its own class may not be loadable here, and nothing of it is called.
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
