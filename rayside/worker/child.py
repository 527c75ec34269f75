"""Has a process that a debugged one has started, a fork or a Python, ask that one for its debugger.

It costs next to nothing where nobody debugs the parent, or where the debugger does not want children.
children.py has the parent's side.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .children import PARENT, PATIENCE, descends, peer

# A child waits so many seconds for the debugger: it has been told, and attaches in some tenths of one.
_WAITING = 15.0
# And this long until the parent takes its question.
_ASKING = 3.0
# The most bytes of an invitation: Ray's token, and some names.
_LONGEST = 65_536
# They serve Python's multiprocessing or Ray: no program of anybody's runs in them.
_SERVERS = (
    "from multiprocessing.resource_tracker ",
    "from multiprocessing.forkserver ",
    "/site-packages/ray/",
    "-m ray.",
)
_WORDS = 8  # of a command, in which the name of its program is

OpenPort = Callable[[Mapping[str, Any]], int]
Wait = Callable[[Callable[[], bool], float], None]


def join(open_port: OpenPort, wait: Wait) -> None:
    """Opens a port where the parent's debugger wants its children, and waits for it.

    Args:
        open_port: opens it, as the parent says, and returns it.
        wait: waits until a debugger is attached, or until its first argument says that it is over, which it
            is after the seconds in the second.

    Raises ImportError, where there is no debugger to be had, and what `open_port` raises.
    """
    for name in os.environ.get(PARENT, "").split(":"):
        with socket.socket(socket.AF_UNIX) as connection:
            invitation = _invitation(connection, name)
            if invitation is None:
                continue
            port = open_port(invitation)
            connection.sendall(json.dumps({"port": port}).encode() + b"\n")
            wait(_is_over(connection), _WAITING)
        return


def is_program(words: list[str]) -> bool:
    """Returns whether a Python that was started so (`sys.orig_argv`) runs somebody's program."""
    command = " ".join(words[:_WORDS])
    return not any(server in command for server in _SERVERS)


def _invitation(connection: socket.socket, name: str) -> dict[str, Any] | None:
    """Asks the parent of that name; returns None where it has no debugger, or one that wants no children."""
    connection.settimeout(PATIENCE)
    try:
        _connect(connection, name)
        parent, user = peer(connection)
        if user != os.geteuid() or not descends(os.getpid(), parent):
            return None  # Somebody has taken the name of a process that has ended.
        with connection.makefile("rb") as answers:
            text = answers.readline(_LONGEST)
    except OSError:
        return None
    return dict(json.loads(text)) if text.endswith(b"\n") else None


def _connect(connection: socket.socket, name: str) -> None:
    """Connects; where many ask at once, or the parent stands still, it asks again for a moment.

    Raises OSError.
    """
    deadline = time.time() + _ASKING
    while True:
        try:
            connection.connect(f"\0{name}")
        except BlockingIOError:
            if time.time() >= deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _is_over(connection: socket.socket) -> Callable[[], bool]:
    deadline = time.time() + _WAITING
    return lambda: time.time() >= deadline or _has_gone(connection)


def _has_gone(connection: socket.socket) -> bool:
    try:
        connection.settimeout(0)
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def forget_the_parents_debugger() -> None:
    """Has pydevd start anew in this fork, as `_on_forked_process` in its pydev_monkey.py does (1.8.22)."""
    import pydevd
    from _pydev_bundle.pydev_monkey import _on_forked_process
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING
    from _pydevd_bundle.pydevd_custom_frames import custom_frames_container_init
    from _pydevd_frame_eval.pydevd_frame_eval_main import clear_thread_local_info
    from debugpy.server import api

    _on_forked_process(setup_tracing=False)
    custom_frames_container_init()
    if clear_thread_local_info is not None:
        clear_thread_local_info()
    if PYDEVD_USE_SYS_MONITORING:
        from _pydevd_sys_monitoring import pydevd_sys_monitoring as monitoring

        monitoring.reset_thread_local_info()
        # What it knows of code is by the parent's breakpoints.
        sys.modules[monitoring.stop_monitoring.__module__]._code_to_func_code_info_cache.clear()
    pydevd.connected = False
    api.listen.called = False
