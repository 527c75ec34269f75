"""Opens this process to a debugger, and waits for one where one is there or announced."""

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

# pydevd reads these variables when it is first imported. Python 3.12's post-mortem shows the user's frames
# only without sys.monitoring; everything else is quicker with it.
WITHOUT_MONITORING = {"PYDEVD_USE_SYS_MONITORING": "0"}
# The check of files only prints a warning about frozen modules.
UNCHECKED = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}

_opened = tracing.OfThisProcess()  # the process (a fork has another), and the port that is open in it


def open(
    config: Config,
    address: Callable[[], Mapping[str, Any]],
    publish: Callable[[int], None] = lambda port: None,
    wait: Callable[[Config], None] = lambda config: None,
    *,
    lock: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    failure: str = "no debugger in process {pid}",
    lacking: str = "",
) -> Exception | None:
    """Opens a port for debuggers, once in a process, publishes it, and waits for one as `config` says.

    Args:
        address: returns the arguments of `listen`, where no port is open yet.
        publish: publishes the port; `lock` makes what is held until then.
        wait: waits for a debugger.
        failure: begins the line that says why there is none; nothing is said where it is empty.
        lacking: the line where Python has no debugpy, if any.

    Returns what went wrong, an ImportError where there is no debugpy; never raises.
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
        wait(config)
    except Exception as error:
        if failure:
            say(f"{failure.format(pid=os.getpid())}: {type(error).__name__}: {error}")
        return error
    return None


def say(text: str) -> None:
    """Writes one line into the process's own log, which Ray shows in the job's output."""
    sys.stderr.write(f"rayside: {text}\n")
    sys.stderr.flush()


def listen(
    host: str, token: bytes | None = None, user: str = "", by_driver: Mapping[str, str] | None = None
) -> int:
    """Opens a port on `host` for debuggers that know Ray's token; returns the port.

    `user` is the name of who has it opened, where its job may not say whose it is; `by_driver` has what its
    driver knows of that (`handshake.metadata`). Ray is not imported where `token` is given.

    Raises RuntimeError where the process listens for debuggers already, OSError, ImportError.
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
    """Imports pydevd, as this process needs it. Raises ImportError."""
    workarounds.apply()
    post_mortem = os.environ.get("RAY_DEBUG_POST_MORTEM") == "1"
    for name, value in {**UNCHECKED, **(WITHOUT_MONITORING if post_mortem else {})}.items():
        os.environ.setdefault(name, value)
    importlib.import_module("debugpy.server.api")
    workarounds.apply()  # those for pydevd, too


def until_attached(over: Callable[[], bool], timeout: float, *, says: bool = True) -> None:
    """Waits until a debugger is attached, or `over`, for at most `timeout` seconds, which it says first."""
    import debugpy

    if over():
        return
    if says:
        say(f"waiting for a debugger, at most {timeout:g} s (--attach-timeout)")
    latest = time.time() + timeout
    attached = threading.Event()

    def watch() -> None:
        while not attached.wait(min(1.0, max(0.05, latest - time.time()))):
            # The wait can't be cancelled yet where it has not quite begun.
            with contextlib.suppress(RuntimeError):
                if over():
                    debugpy.wait_for_client.cancel()

    tracing.in_background(watch)
    debugpy.wait_for_client()
    attached.set()


def for_breakpoints(debugpy: ModuleType) -> ModuleType:
    """Returns debugpy for Ray's own `breakpoint()`, except that `listen` opens our port.

    debugpy's own server asks nobody for a proof.
    """

    def listen(address: tuple[str, int]) -> tuple[str, int]:
        ports: list[int] = []  # The port is always a free one; Ray publishes it.
        error = open(Config(), lambda: {"host": address[0]}, ports.append, failure="")
        if error is not None:
            raise error
        return address[0], ports[0]

    ours = ModuleType(debugpy.__name__)
    vars(ours).update(vars(debugpy), listen=listen)
    return ours


def join_parents_debugger(
    before: Callable[[], None] = lambda: None, opened: Callable[[], None] = lambda: None
) -> None:
    """Opens this process, which a debugged one has started, to that one's debugger, and waits for it.

    `before` and `opened` are called where there is one, before and after the port is open. Never raises.
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

            def wait(config: Config) -> None:
                until_attached(child.is_over(parent), child.WAITING, says=False)

            open(Config(), address, publish, wait)
    except Exception as error:
        say(f"no debugger in process {os.getpid()}: {type(error).__name__}: {error}")
