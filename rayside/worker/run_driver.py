"""Driver of `rayside run`: opens its port before its program starts, and writes Ray's address to a file.

The file contains `{"pid", "port", "dashboard"}`, the last an address as http://127.0.0.1:8265, empty until
`ray.init`. `rayside run` makes it, in a private folder of this user, and its relay reads it
(relay/program_debuggees.py). The port is on the loopback address: the relay is on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from . import attach, driver, tracing
from .debug_config import change

HOST = "127.0.0.1"
# Files in the same folder: the debugger's token, and Ray's.
TOKEN, RAYS_TOKEN = "token", "ray-token"
_NO_DASHBOARD = (
    "no task or actor stops: this Ray has no dashboard, by which the debugger finds them; leave"
    " include_dashboard=False out of ray.init"
)
# Timeout in seconds for the program to end after `rayside run` has ended.
_ENDING = 10.0


def begin(
    file: Path,
    attach_timeout: float,
    *,
    post_mortem: bool = False,
    alive: int | None = None,
) -> None:
    """Opens this process to the debugger of `rayside run`, waits for it, and hooks each `ray.init`.

    Args:
        file: the file to write; the debuggers' token is in `token` in the same folder.
        attach_timeout: seconds for which this process waits for a debugger, and each worker while one is
            attached here.
        post_mortem: whether a failed task stops at the failure.
        alive: a pipe's descriptor, closed when `rayside run` ends: then this program ends, too.
    """
    told: dict[str, Any] = {"pid": os.getpid(), "port": 0, "dashboard": ""}

    def tell() -> None:
        # A daemonized program may outlive `rayside run`, and its folder.
        with contextlib.suppress(OSError):
            draft = file.with_suffix(".new")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                json.dump(told, stream)
            draft.replace(file)

    def joined(there: bool) -> None:
        told["dashboard"] = _dashboard() if there else ""
        if there and not told["dashboard"]:
            attach.say(_NO_DASHBOARD)
        tell()

    if alive is not None:
        tracing.in_background(partial(_end_with, alive))
    driver.debug(attach_timeout, post_mortem=post_mortem, joined=joined)
    token = file.with_name(TOKEN).read_bytes().strip()

    def publish(port: int) -> None:
        told["port"] = port
        tell()

    def wait() -> None:
        attach.until_attached(lambda: False, attach_timeout, says=False)

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    attach.open_port(lambda: {"host": HOST, "token": token}, publish, wait)
    # The wait is over: after this debugger has left, no worker waits for another.
    change(waited_until=time.time())


def stop_at(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Stops at an uncaught exception of the program, as pdb does, if a debugger is attached.

    Calls pydevd's `stop_on_unhandled_exception`, as Ray does for a failed task (ray/util/debugpy.py).
    """
    pydevd = sys.modules.get("pydevd")
    if pydevd is None or kind is KeyboardInterrupt:
        return
    debugger, thread = pydevd.get_global_debugger(), threading.current_thread()
    info = debugger.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        debugger.stop_on_unhandled_exception(debugger, thread, info, (kind, error, trace))
    finally:
        info.is_tracing -= 1


def _dashboard() -> str:
    """Returns the dashboard's address of the Ray cluster that this process has joined; empty without one."""
    import ray._private.worker

    address = ray._private.worker.get_dashboard_url()
    return f"http://{address.removeprefix('http://')}" if address else ""


def _end_with(alive: int) -> None:
    """Ends this process after `rayside run` has ended."""
    while os.read(alive, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ENDING)  # for a program that handles SIGTERM
    os.kill(os.getpid(), signal.SIGKILL)
