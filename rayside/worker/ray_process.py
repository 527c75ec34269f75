"""Processes that are connected to Ray: workers before their first task, and drivers after `ray.init`."""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import attach, tracing
from .debug_config import Config

# These are keys in Ray's internal key-value store, one pair a job; the values are wall-clock times.
_NAMESPACE = b"rayside"
# A debugger counts as there for so many seconds after it was last seen, and is looked for so often.
_FRESH, _EVERY = 6.0, 2.0


def open(
    config: Config,
    job: str = "",
    *,
    announces: bool = False,
    user: str = "",
    by_driver: Mapping[str, str] | None = None,
) -> Exception | None:
    """Opens a port that Ray's worker table lists, as it does for Ray's own debugger; see `attach.open`.

    Args:
        job: names the job in Ray's key-value store, for the wait of all its processes; empty for no wait.
        announces: whether it announces a debugger to the others: so does a driver, or where that has no
            port, each worker.
        user: the name of who has it opened, where its job may not say whose it is.
        by_driver: `handshake.metadata` in the driver: before its first task a worker does not know it.
    """

    def lock() -> Any:
        from ray.util import debugpy as rays_own

        return rays_own.debugger_port_lock

    def address() -> Mapping[str, Any]:
        from ray._private.worker import global_worker

        return {"host": global_worker.node_ip_address, "user": user, "by_driver": by_driver}

    def publish(port: int) -> None:
        from ray._private.worker import global_worker
        from ray.util import debugpy as rays_own

        # pydevd has made `breakpoint()` its own, which does nothing while nobody is attached.
        rays_own._override_breakpoint_hooks()
        global_worker.set_debugger_port(port)

    def wait(config: Config) -> None:
        if job:
            _trace_rays_own_threads()
            if announces:
                _announce(job)
            _wait(job, config)

    lacking = "no debugger in this process, it has no debugpy: submit with --pip-debugpy"
    return attach.open(config, address, publish, wait, lock=lock, lacking=lacking)


def _wait(job: str, config: Config) -> None:
    """Waits `attach_timeout` seconds where the job has a debugger, else what is left of the job's time.

    The first process of a job starts its time; those that come after it has run out don't wait.
    """
    import debugpy

    if config.attach_timeout <= 0 or debugpy.is_client_connected():
        return
    latest = time.time() + config.attach_timeout
    # A driver that has waited in vain before its `ray.init` has used that time up.
    first = min(latest, config.waited_until or latest)
    _put(job, "deadline", first, overwrite=False)
    announced = min(latest, _get(job, "deadline") or first)

    def over() -> bool:
        now = time.time()
        # Some process of the job had a debugger within the last seconds, or has none.
        return now >= latest or (now >= announced and (_get(job, "debugger") or 0.0) <= now)

    attach.until_attached(over, config.attach_timeout)


def _announce(job: str) -> None:
    """Lets the job's other processes know, for as long as this one lives, whether it has a debugger."""
    import debugpy

    def refresh() -> None:
        while True:
            if debugpy.is_client_connected():
                try:
                    _put(job, "debugger", time.time() + _FRESH, overwrite=True)
                except Exception:
                    return  # Ray has been shut down.
            time.sleep(_EVERY)

    tracing.in_background(refresh)


def _put(job: str, name: str, value: float, overwrite: bool) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    key = f"{job}/{name}".encode()
    _internal_kv_put(key, repr(value).encode(), overwrite=overwrite, namespace=_NAMESPACE)


def _get(job: str, name: str) -> float | None:
    from ray.experimental.internal_kv import _internal_kv_get

    value = _internal_kv_get(f"{job}/{name}".encode(), namespace=_NAMESPACE)
    return float(value) if value else None


def hook(setup_hook: Any, config: Config, job: str, **options: Any) -> Callable[[], None]:
    """Returns a `worker_process_setup_hook`, sent by value: workers need not be able to import this package.

    `setup_hook` is the user's own: a function, the dotted name of one, or None. The rest is as of `open`.
    """

    def rayside_debug() -> None:
        open(config, job, **options)
        if setup_hook:
            # The worker ends if the user's own hook fails, as without us.
            (pkgutil.resolve_name(setup_hook) if isinstance(setup_hook, str) else setup_hook)()

    return rayside_debug


def setup() -> None:
    """The `worker_process_setup_hook`, by name, of jobs whose entrypoint is not Python's."""
    try:
        config = Config.read()
    except ValueError as error:
        attach.say(f"no debugger in this process: {error}")
        return
    import ray

    hook(config.setup_hook, config, str(ray.get_runtime_context().get_job_id()), announces=True)()


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
