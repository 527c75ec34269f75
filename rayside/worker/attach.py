"""Debugger port of this process, and the wait for a debugger that is present or announced.

`open_in_ray` is for processes that are connected to Ray: workers before their first task, and drivers after
`ray.init`. driver.py opens a driver's port before that, `join_parents_debugger` the port of a child process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from . import child, tracing, workarounds
from .children import Children
from .debug_config import Config
from .listener import Listener, rays_token

# pydevd reads these variables at its first import. Python 3.12's post-mortem shows the user's frames only
# without sys.monitoring; everything else is faster with it.
WITHOUT_MONITORING = {"PYDEVD_USE_SYS_MONITORING": "0"}
# The file validation only prints a warning about frozen modules.
UNCHECKED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
# Namespace in Ray's internal key-value store, with two keys for each job; the values are wall-clock times.
_NAMESPACE = b"rayside"
# Seconds for which a debugger counts as present after it was last seen, and seconds between checks.
_FRESH, _EVERY = 6.0, 2.0

_opened = tracing.OfThisProcess()  # the process id (a fork has another), and its open port


def open_port(
    address: Callable[[], Mapping[str, Any]],
    publish: Callable[[int], None] = lambda port: None,
    wait: Callable[[], None] = lambda: None,
    *,
    lock: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    failure: str = "no debugger in process {pid}",
    lacking: str = "",
) -> Exception | None:
    """Opens the process's port for debuggers, once, publishes it, and waits for a debugger.

    Args:
        address: returns the arguments of `listen`; called if no port is open yet.
        publish: publishes the port; `lock` returns a lock that is held until then.
        wait: waits for a debugger.
        failure: start of the logged line with the error; nothing is logged if empty.
        lacking: logged line if debugpy is missing, if any.

    Returns the error, an ImportError without debugpy, or None; never raises.
    """
    try:
        importlib.import_module("debugpy")
    except ImportError as error:
        if lacking:
            say(lacking)
        return error
    try:
        load()
        with lock():
            if _opened[:1] != [os.getpid()]:
                _opened[:] = os.getpid(), listen(**address())
            publish(_opened[1])
        wait()
    except Exception as error:
        if failure:
            say(f"{failure.format(pid=os.getpid())}: {type(error).__name__}: {error}")
        return error
    return None


def say(text: str) -> None:
    """Logs one line in the process's stderr, which Ray shows in the job's output."""
    sys.stderr.write(f"rayside: {text}\n")
    sys.stderr.flush()


def listen(
    host: str, token: bytes | None = None, user: str = "", by_driver: Mapping[str, str] | None = None
) -> int:
    """Opens a port on `host` for debuggers with Ray's token; returns the port.

    `user` is the user's name, for a job that may not contain it; `by_driver` is the driver's
    `handshake.metadata`. With `token`, Ray is not imported.

    Raises RuntimeError if the process already listens for debuggers, OSError, ImportError.
    """
    load()
    token = rays_token() if token is None else token
    invitation = {"host": host, "token": token.decode(), "user": user, "by_driver": {**(by_driver or {})}}
    children = Children(invitation)
    listener = Listener(token, user, by_driver, children)
    port = listener.open(host)
    tracing.sleep()
    tracing.wake_by_itself()
    child.follow_forks(listener, children, join_parents_debugger)
    children.announce()
    return port


def load() -> None:
    """Imports pydevd with workarounds and settings for this process. Raises ImportError."""
    workarounds.apply()
    post_mortem = os.environ.get("RAY_DEBUG_POST_MORTEM") == "1"
    for name, value in {**UNCHECKED, **(WITHOUT_MONITORING if post_mortem else {})}.items():
        os.environ.setdefault(name, value)
    importlib.import_module("debugpy.server.api")
    workarounds.apply()  # those for pydevd, too


def until_attached(over: Callable[[], bool], timeout: float, *, says: bool = True) -> None:
    """Waits until a debugger is attached, `over` is true, or the timeout in seconds, which it logs first."""
    import debugpy

    if over():
        return
    if says:
        say(f"waiting for a debugger, at most {timeout:g} s (--attach-timeout)")
    latest = time.time() + timeout
    attached = threading.Event()

    def watch() -> None:
        while not attached.wait(min(1.0, max(0.05, latest - time.time()))):
            # The wait can't be cancelled before it has begun.
            with contextlib.suppress(RuntimeError):
                if time.time() >= latest or over():
                    debugpy.wait_for_client.cancel()

    tracing.in_background(watch)
    debugpy.wait_for_client()
    attached.set()


def for_breakpoints(debugpy: ModuleType) -> ModuleType:
    """Returns debugpy for Ray's own `breakpoint()`, except that `listen` opens our port.

    debugpy's own server has no authentication.
    """

    def listen(address: tuple[str, int]) -> tuple[str, int]:
        ports: list[int] = []  # Listens on a free port, whatever `address` requests; Ray publishes it.
        error = open_port(lambda: {"host": address[0]}, ports.append, failure="")
        if error is not None:
            raise error
        return address[0], ports[0]

    ours = ModuleType(debugpy.__name__)
    vars(ours).update(vars(debugpy), listen=listen)
    return ours


def join_parents_debugger(
    before: Callable[[], None] = lambda: None, opened: Callable[[], None] = lambda: None
) -> None:
    """Opens a port for the debugger of this process's parent, if there is one, and waits for it.

    `before` and `opened` are then called, before and after the port is opened. Never raises.
    """
    try:
        with child.invitation() as (invitation, parent):
            if not invitation:
                return

            def address() -> Mapping[str, Any]:
                before()
                return {**invitation, "token": invitation["token"].encode()}

            def publish(port: int) -> None:
                opened()
                parent.sendall(json.dumps({"port": port}).encode() + b"\n")

            def wait() -> None:
                until_attached(child.is_over(parent), child.WAITING, says=False)

            open_port(address, publish, wait)
    except Exception as error:
        say(f"no debugger in process {os.getpid()}: {type(error).__name__}: {error}")


# --- processes that are connected to Ray ---------------------------------------------------------


def open_in_ray(
    config: Config | None = None,
    job: str = "",
    *,
    announces: bool = False,
    user: str = "",
    by_driver: Mapping[str, str] | None = None,
) -> Exception | None:
    """Opens a port that is listed in Ray's worker table, as for Ray's own debugger; see `open_port`.

    Args:
        config: the timeout of the wait; without it, or without a `job`, there is no wait.
        job: the job's key in Ray's key-value store, shared by the waits of all its processes.
        announces: whether to announce an attached debugger to the job's other processes: for a driver, or, if
            that has no port, for each worker.
        user: the user's name, for a job that may not contain it.
        by_driver: `handshake.metadata` from the driver: a worker can't read it before its first task.
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

        # pydevd has replaced `breakpoint()`, without effect while no debugger is attached.
        rays_own._override_breakpoint_hooks()
        global_worker.set_debugger_port(port)

    def wait() -> None:
        if config and job:
            _trace_rays_own_threads()
            # Imported by name: the relay calls the same modules. Without them Ray's own post-mortem applies.
            with contextlib.suppress(ImportError, AttributeError):
                importlib.import_module("rayside.worker.call_wrappers").begin(config)
            if announces:
                _announce(job)
            _wait(job, config)

    lacking = "no debugger in this process, it has no debugpy: submit with --pip-debugpy"
    return open_port(address, publish, wait, lock=lock, lacking=lacking)


def _wait(job: str, config: Config) -> None:
    """Waits up to `attach_timeout` seconds if the job has a debugger, else until the job's deadline.

    The job's first process sets the deadline; processes that start after it don't wait.
    """
    import debugpy

    if config.attach_timeout <= 0 or debugpy.is_client_connected():
        return
    latest = time.time() + config.attach_timeout
    # A driver that waited in vain before its `ray.init` has used up the job's waiting time.
    first = min(latest, config.waited_until or latest)
    _put(job, "deadline", first, overwrite=False)
    announced = min(latest, _get(job, "deadline") or first)

    def over() -> bool:
        now = time.time()
        # The wait is over after the deadline, unless a process of the job has had a debugger recently.
        return now >= announced and (_get(job, "debugger") or 0.0) <= now

    until_attached(over, config.attach_timeout, says=not config.quiet)


def _announce(job: str) -> None:
    """Announces an attached debugger to the job's other processes, until this process ends."""
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
    """Returns a `worker_process_setup_hook`, pickled by value: workers need not import this package.

    `setup_hook` is the user's own: a function, its dotted name, or None. The rest is as for `open_in_ray`.
    """

    def rayside_debug() -> None:
        open_in_ray(config, job, **options)
        if setup_hook:
            import pkgutil

            # As without Rayside, the worker ends if the user's own hook fails.
            (pkgutil.resolve_name(setup_hook) if isinstance(setup_hook, str) else setup_hook)()

    return rayside_debug


def setup() -> None:
    """The `worker_process_setup_hook`, by name, for jobs whose entrypoint is not a Python program."""
    try:
        config = Config.read()
    except ValueError as error:
        say(f"no debugger in this process: {error}")
        return
    import ray

    hook(config.setup_hook, config, str(ray.get_runtime_context().get_job_id()), announces=True)()


def _trace_rays_own_threads() -> None:
    """Traces a threaded actor's threads at each call: Ray's C++ core starts them, invisible to pydevd."""
    from ray._private.function_manager import FunctionActorManager

    make = FunctionActorManager._make_actor_method_executor

    # Ray 2.39 has one more argument than Ray 2.52.
    def make_executor(self: Any, *about: Any, **more: Any) -> Any:
        executor = make(self, *about, **more)

        def actor_method_executor(__ray_actor: Any, *args: Any, **kwargs: Any) -> Any:
            tracing.follow()
            return executor(__ray_actor, *args, **kwargs)

        # With the file name of Ray's function, it is hidden from the user's call stack, too.
        code = actor_method_executor.__code__.replace(co_filename=executor.__code__.co_filename)
        actor_method_executor.__code__ = code
        vars(actor_method_executor).update(vars(executor))  # Ray reads its `name` and `method`.
        return actor_method_executor

    FunctionActorManager._make_actor_method_executor = make_executor
