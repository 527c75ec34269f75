"""Ray runs this in each worker of a job before its first task: `worker_process_setup_hook`."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from . import attach, tracing


def hook(
    job: str, timeout: float, setup_hook: Any, announce: bool, by_driver: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """Returns a hook for Ray, sent to the workers by value: they need not be able to import this package.

    `job` names the job in Ray's key-value store, `setup_hook` is the user's own hook: a function, the dotted
    name of one, or None. `announce` is for drivers without a debugger port. `by_driver` is `whose.metadata`
    in the driver: before its first task a worker does not know it.
    """

    def rayside_debug() -> None:
        prepare(job, timeout, announce, by_driver=by_driver)
        if setup_hook:
            # The worker ends if the user's own hook fails, as without us.
            (load(setup_hook) if isinstance(setup_hook, str) else setup_hook)()

    return rayside_debug


def setup() -> None:
    """Is the `worker_process_setup_hook`, by name, of jobs whose entrypoint is not Python's."""
    timeout = float(os.environ.get("RAYSIDE_ATTACH_TIMEOUT", "0"))
    hook(_job(), timeout, os.environ.get("RAYSIDE_SETUP_HOOK"), announce=True)()


def prepare(
    job: str,
    timeout: float,
    announce: bool,
    waited_until: float = math.inf,
    by_driver: Mapping[str, str] | None = None,
) -> None:
    """Opens the debugger and waits, as `attach.wait`; never raises, for the job matters more."""
    try:
        if attach.open_port(by_driver=by_driver):
            _trace_rays_own_threads()
            if announce:
                attach.announce(job)
            attach.wait(job, timeout, waited_until)
    except Exception as error:
        attach.say(f"no debugger in process {os.getpid()}: {type(error).__name__}: {error}")


def load(name: str) -> Any:
    """Imports the object of that dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _job() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())


def _trace_rays_own_threads() -> None:
    """The threads of a threaded actor come from Ray's C++ part, unseen by pydevd: each joins at its call."""
    from ray._private.function_manager import FunctionActorManager

    make = FunctionActorManager._make_actor_method_executor

    # Ray 2.39 has one more argument than Ray 2.52.
    def make_executor(self: Any, *about: Any, **more: Any) -> Any:
        executor = make(self, *about, **more)

        def actor_method_executor(__ray_actor: Any, *args: Any, **kwargs: Any) -> Any:
            tracing.follow()
            return executor(__ray_actor, *args, **kwargs)

        # As a function of Ray's file it is hidden from the user's call stack, as Ray's own is.
        code = actor_method_executor.__code__.replace(co_filename=executor.__code__.co_filename)
        actor_method_executor.__code__ = code
        vars(actor_method_executor).update(vars(executor))  # Ray reads its `name` and `method`.
        return actor_method_executor

    FunctionActorManager._make_actor_method_executor = make_executor
