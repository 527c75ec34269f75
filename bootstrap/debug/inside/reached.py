"""Decides inside a debuggee what happens at a breakpoint that its code has reached.

pydevd evaluates the condition of a breakpoint with each hit; the relay gives it a call of `reached` for that.
So a condition that raises is told, a condition and a hit count both have to hold, hits are counted by the
relay for the whole cluster, and the message of a logpoint comes with its task. It leans on pydevd:
`PyDB.handle_breakpoint_condition` in its main module evaluates in a frame of its own, with the globals and
locals of the one that was reached.
"""

from __future__ import annotations

import _thread
import gc
import itertools
import sys
import threading
from collections.abc import Iterable
from types import CodeType, FrameType, FunctionType
from typing import Any

EVENT = "raysideReached"
# Seconds that a thread waits for the relay to count a hit; without an answer it goes on.
PATIENCE = 5.0
# Characters of a message that are sent.
LONGEST = 4_000
# What pydevd may have to send before messages are left out: it keeps all of them in memory, and a loop is
# faster than any connection.
MOST_UNSENT = 500
_CMD_WRITE_TO_CONSOLE = 116  # pydevd_comm_constants.py

_compiled: dict[tuple[str, bool], CodeType] = {}
_told: set[int] = set()  # the breakpoints of which it was told that they raised, or are there
_settled: dict[int, bool] = {}  # whether a breakpoint stops from now on, where that can't change any more
_numbers = itertools.count(1)
_waiting: dict[int, tuple[Any, list[bool]]] = {}  # for the relay's word, by number of the hit
_left_out: list[int] = []  # the breakpoint of each message that was not sent


def reached(
    key: int, condition: str | None = None, message: str | None = None, counted: bool = False, name: str = ""
) -> bool:
    """Whether the thread stops.

    Args:
        key: the relay's, of the breakpoint.
        condition: a Python expression.
        message: of a logpoint, as DAP has it: with expressions in braces.
        counted: whether the relay has to count the hits.
        name: of the function, as the user named it, where it is a function breakpoint.
    """
    frame: FrameType = sys._getframe(1)
    if name:
        if not _is_of(frame, name):
            return False
        if key not in _told:
            _told.add(key)
            _send({"key": key, "what": "loaded"})
    try:
        if condition and not _evaluated(condition, frame):
            return False
    except Exception as error:
        _tell_error(key, error)
        return False
    if counted and message is None and not _counts(key):
        return False
    if message is not None:
        _log(key, message, frame)
    return message is None


def counted(number: int, stops: bool, settled: bool) -> None:
    """The relay's answer to a hit: whether it stops, and whether that holds for all that follow."""
    waiting = _waiting.pop(number, None)
    if waiting is not None:
        lock, answer = waiting
        answer[:] = [stops, settled]
        lock.release()


def _counts(key: int) -> bool:
    if key in _settled:
        return _settled[key]
    number, lock, answer = next(_numbers), _thread.allocate_lock(), [False, False]
    lock.acquire()
    _waiting[number] = lock, answer
    if _send({"key": key, "what": "hit", "number": number}):
        lock.acquire(timeout=PATIENCE)
    _waiting.pop(number, None)
    if answer[1]:
        _settled[key] = answer[0]
    return answer[0]


def _is_of(frame: FrameType, name: str) -> bool:
    """Whether the frame is of the function of that name: a plain, a qualified, or a module's."""
    if "." not in name:
        return True
    # The condition's frame has only the variables of the one that was reached; pydevd's has that frame.
    own = frame.f_back.f_locals.get("new_frame") if frame.f_back is not None else None
    qualified = getattr(own.f_code, "co_qualname", "") if own is not None else ""
    # Without it (Python 3.10), the last part of the name has to do.
    return own is None or not qualified or _is_named(qualified, str(own.f_globals.get("__name__")), name)


def _is_named(qualified: str, module: str, name: str) -> bool:
    """Whether the user's name is that of the function: as much of its end as the user has written."""
    return f".{module}.{qualified}".replace(".<locals>", "").endswith(f".{name}")


def are_loaded(names: Iterable[str]) -> list[bool]:
    """Whether this process has a function of each name that the debugger would stop in."""
    debugger = _debugger()
    functions = [found for found in gc.get_objects() if type(found) is FunctionType]

    def has(name: str) -> bool:
        return any(
            _is_named(function.__qualname__, str(function.__module__), name) and _is_users(debugger, function)
            for function in functions
            if function.__code__.co_name == name.rpartition(".")[2]
        )

    return [has(name) for name in names]


def _is_users(debugger: Any, function: FunctionType) -> bool:
    """Whether the debugger stops in code of that file: not in libraries, with `justMyCode`."""
    try:
        return not debugger.get_use_libraries_filter() or bool(
            debugger.in_project_roots_filename_uncached(function.__code__.co_filename)
        )
    except Exception:
        return True


def _evaluated(expression: str, frame: FrameType) -> Any:
    code = _compiled.get((expression, False))
    if code is None:
        code = _compiled[expression, False] = compile(expression.strip(), "<condition>", "eval")
    return eval(code, frame.f_globals, frame.f_locals)


def _log(key: int, message: str, frame: FrameType) -> None:
    if _unsent() > MOST_UNSENT:
        _leave_out(key)
        return
    code = _compiled.get((message, True))
    try:
        if code is None:
            expression = sys.modules["_pydevd_bundle.pydevd_utils"].convert_dap_log_message_to_expression(
                message
            )
            code = _compiled[message, True] = compile(expression, "<logpoint>", "eval")
        text = str(eval(code, frame.f_globals, frame.f_locals))
    except Exception as error:
        text = _described(error)
    _send({"key": key, "what": "message", "text": text[:LONGEST], "task": task()})


def _leave_out(key: int) -> None:
    """Counts a message, and tells the number within a second."""
    _left_out.append(key)
    if len(_left_out) == 1:
        timer = threading.Timer(1.0, _tell_left_out)
        timer.daemon = True
        # pydevd's own mark of a thread that is not debugged.
        timer.is_pydev_daemon_thread = timer.pydev_do_not_trace = True  # type: ignore[attr-defined]
        timer.start()


def _tell_left_out() -> None:
    number = len(_left_out)
    key = _left_out[0]
    del _left_out[:number]
    _send({"key": key, "what": "leftOut", "number": number})


def _tell_error(key: int, error: Exception) -> None:
    if key not in _told:
        _told.add(key)
        _send({"key": key, "what": "error", "text": _described(error)[:LONGEST], "task": task()})


def _described(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def task() -> str:
    """The task that this thread runs; empty where it runs none."""
    try:
        ray = sys.modules["ray"]
        worker = sys.modules.get("ray._private.worker")
        # Of a driver it isn't asked: Ray would write an error line into the job's output.
        if worker is not None and worker.global_worker.mode == worker.SCRIPT_MODE:
            return ""
        return str(ray.get_runtime_context().get_task_name() or "")[:LONGEST]
    except Exception:
        return ""


def _unsent() -> int:
    try:
        return int(_debugger().writer._cmd_queue.qsize())
    except Exception:
        return 0


def _send(body: dict[str, Any]) -> bool:
    """Whether there is somebody to send it to."""
    try:
        writer = _debugger().writer
        command = sys.modules["_pydevd_bundle.pydevd_net_command"].NetCommand
        event = {"type": "event", "event": EVENT, "body": body}
        writer.add_command(command(_CMD_WRITE_TO_CONSOLE, 0, event, is_json=True))
        return not writer._kill_received
    except Exception:  # the debugger has gone
        return False


def _debugger() -> Any:
    return sys.modules["pydevd"].get_global_debugger()
