"""Opens this process to a debugger, and waits for one where one is there or announced."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import child, forks, tracing, workarounds
from .children import Children
from .listener import Listener, in_background, rays_token

# These are keys in Ray's internal key-value store, one pair a job; the values are wall-clock times.
_NAMESPACE = b"rayside"
# A debugger counts as there for so many seconds after it was last seen, and is looked for so often.
_FRESH, _EVERY = 6.0, 2.0


# pydevd reads these variables when it is first imported. Python 3.12's post-mortem shows the user's frames
# only without sys.monitoring; everything else is quicker with it.
WITHOUT_MONITORING = {"PYDEVD_USE_SYS_MONITORING": "0"}
# The check of files only prints a warning about frozen modules.
UNCHECKED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


class _OfThisProcess(dict[str, int]):
    """Pickled it is empty: the workers get this module by value, from a driver that may have a port."""

    def __reduce__(self) -> tuple[type[dict[str, int]], tuple[()]]:
        return dict, ()


_opened = _OfThisProcess()  # It has the port, for a ray.init after it was opened.


def say(text: str) -> None:
    """Writes one line into the process's own log, which Ray shows in the job's output."""
    sys.stderr.write(f"rayside: {text}\n")
    sys.stderr.flush()


def open_port(user: str = "", by_driver: Mapping[str, str] | None = None) -> bool:
    """Listens on the node's address, and tells Ray the port as its debugger would; False without debugpy.

    `user` is the name of who has it opened, where its job may not say whose it is; `by_driver` has what its
    driver knows of that (`whose.metadata`).
    """
    try:
        importlib.import_module("debugpy")
    except ImportError:
        say("no debugger in this process, it has no debugpy: submit with --pip-debugpy")
        return False
    from ray._private.worker import global_worker
    from ray.util import debugpy as rays_own

    with rays_own.debugger_port_lock:
        if not _opened:
            opened(listen(global_worker.node_ip_address, user=user, by_driver=by_driver))
        # pydevd has made `breakpoint()` its own, which does nothing while nobody is attached.
        rays_own._override_breakpoint_hooks()
        global_worker.set_debugger_port(_opened["port"])
    return True


def opened(port: int) -> None:
    """Has `open_port` give that port to Ray, and open none."""
    _opened["port"] = port


def listen(
    host: str, token: bytes | None = None, user: str = "", by_driver: Mapping[str, str] | None = None
) -> int:
    """Opens a port on `host` for debuggers that know Ray's token, once in a process; returns the port.

    Ray is not imported where `token` is given.

    Raises RuntimeError where the process listens for debuggers already, OSError.
    """
    workarounds.apply()
    load()
    workarounds.apply()  # those for pydevd, too
    token = rays_token() if token is None else token
    invitation = {"host": host, "token": token.decode(), "user": user, "by_driver": {**(by_driver or {})}}
    children = Children(invitation)
    listener = Listener(token, user, by_driver, children)
    port = listener.open(host)
    tracing.sleep()
    tracing.wake_by_itself()
    forks.follow(listener, children, join_parents_debugger)
    children.announce()
    return port


def join_parents_debugger(
    before: Callable[[], None] | None = None, opened: Callable[[], None] | None = None
) -> None:
    """Opens this process, which another one has started, to that one's debugger, and waits for it.

    `before` and `opened` are called where there is one, before and after the port is open. Never raises.
    """

    def open_port(invitation: Mapping[str, Any]) -> int:
        if before is not None:
            before()
        port = listen(**{**invitation, "token": invitation["token"].encode()})
        if opened is not None:
            opened()
        return port

    try:
        child.join(open_port, _until_client)
    except ImportError:
        return  # This Python has no debugpy.
    except Exception as error:
        say(f"no debugger in process {os.getpid()}: {type(error).__name__}: {error}")


def load() -> None:
    """Imports pydevd, as this process needs it. Raises ImportError."""
    post_mortem = os.environ.get("RAY_DEBUG_POST_MORTEM") == "1"
    for name, value in {**UNCHECKED, **(WITHOUT_MONITORING if post_mortem else {})}.items():
        os.environ.setdefault(name, value)
    importlib.import_module("debugpy.server.api")


def wait(job: str, timeout: float, waited_until: float = math.inf) -> None:
    """Waits for a debugger: `timeout` seconds where the job has one, else what is left of the job's time.

    The first process of a job starts its `timeout`; those that come after it has run out don't wait.
    `waited_until`: where this one has waited in vain before, the time at which it stopped.
    """
    import debugpy

    if timeout <= 0 or debugpy.is_client_connected():
        return
    latest = time.time() + timeout
    announced = min(latest, _first(job, min(latest, waited_until)))

    def over() -> bool:
        now = time.time()
        return now >= latest or (now >= announced and not debugger_there(job))

    until_attached(over, timeout)


def until_attached(over: Callable[[], bool], timeout: float) -> None:
    """Waits until a debugger is attached, or `over`, for at most the `timeout` seconds that it announces."""
    if over():
        return
    say(f"waiting for a debugger, at most {timeout:g} s (--attach-timeout)")
    _until_client(over, timeout)


def _until_client(over: Callable[[], bool], timeout: float) -> None:
    import debugpy

    latest = time.time() + timeout
    attached = threading.Event()

    def watch() -> None:
        while not attached.wait(min(1.0, max(0.05, latest - time.time()))):
            # The wait can't be cancelled yet where it has not quite begun.
            with contextlib.suppress(RuntimeError):
                if over():
                    debugpy.wait_for_client.cancel()

    in_background(watch)
    debugpy.wait_for_client()
    attached.set()


def announce(job: str) -> None:
    """Lets the job's other processes know, for as long as this one lives, whether a debugger is attached."""
    import debugpy

    def refresh() -> None:
        while True:
            if debugpy.is_client_connected():
                try:
                    _put(job, "debugger", time.time() + _FRESH, overwrite=True)
                except Exception:
                    return  # Ray has been shut down.
            time.sleep(_EVERY)

    in_background(refresh)


def debugger_there(job: str) -> bool:
    """Returns whether some process of the job had a debugger within the last seconds."""
    return (_get(job, "debugger") or 0.0) > time.time()


def _first(job: str, latest: float) -> float:
    _put(job, "deadline", latest, overwrite=False)
    return _get(job, "deadline") or latest


def _put(job: str, name: str, value: float, overwrite: bool) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(
        f"{job}/{name}".encode(), repr(value).encode(), overwrite=overwrite, namespace=_NAMESPACE
    )


def _get(job: str, name: str) -> float | None:
    from ray.experimental.internal_kv import _internal_kv_get

    value = _internal_kv_get(f"{job}/{name}".encode(), namespace=_NAMESPACE)
    return float(value) if value else None
