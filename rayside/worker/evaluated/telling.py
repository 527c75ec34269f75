"""Events from a debuggee to the relay, and the answers for which its threads wait.

Events that a loop may send are rate-limited: pydevd's queue of unsent messages has no limit.
"""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..tracing import debugger

# Limit: unsent messages in pydevd's queue before further ones are dropped; a loop is faster than any
# connection.
MOST_UNSENT = 500
# Limits: lines per second in the long run, and in a burst; equal to the relay's (relay/reports.py).
RATE, AT_ONCE = 200.0, 2_000.0
_CMD_WRITE_TO_CONSOLE = 116  # pydevd_comm_constants.py
_MARK, _WAKES = "_rayside_tells_at_exit", "_rayside_wakes_at_detach"

_numbers = itertools.count(1)
_waiting: dict[int, tuple[Any, list[bool]]] = {}  # threads that wait for an answer, by number of the report
_is_detached = False  # whether the relay of this module's connection has left
leaving: list[Callable[[], object]] = []  # callbacks before pydevd ends


class Bucket:
    """Token bucket: `at_once` is its capacity, `rate` its refill per second."""

    def __init__(self, rate: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._at_once, self._clock = rate, at_once, clock
        self._left, self._since = at_once, clock()

    @property
    def left(self) -> float:
        """Returns the amount that may pass now."""
        now = self._clock()
        self._left = min(self._at_once, self._left + self._rate * (now - self._since))
        self._since = now
        return self._left

    def take(self, amount: float) -> None:
        self._left -= amount

    def passes(self, amount: float) -> bool:
        """Takes the amount if available; returns whether it is."""
        if self.left < amount:
            return False
        self.take(amount)
        return True


rate = Bucket(RATE, AT_ONCE)


def send(event: str, body: dict[str, Any]) -> bool:
    """Sends an event; returns whether a relay is connected."""
    try:
        writer = debugger().writer
        command = sys.modules["_pydevd_bundle.pydevd_net_command"].NetCommand
        message = {"type": "event", "event": event, "body": body}
        writer.add_command(command(_CMD_WRITE_TO_CONSOLE, 0, message, is_json=True))
        return not writer._kill_received
    except Exception:  # The debugger has left.
        return False


def unsent() -> int:
    try:
        return int(debugger().writer._cmd_queue.qsize())
    except Exception:
        return 0


def ask(event: str, body: dict[str, Any], patience: float) -> list[bool]:
    """Sends a report, waits for the relay's answer, and returns it; empty after a timeout or a detach."""
    number, lock, answer = next(_numbers), _thread.allocate_lock(), list[bool]()
    lock.acquire()
    _waiting[number] = lock, answer
    until = time.monotonic() + patience
    try:
        # `_is_detached` is read after the thread can be woken: a detach in between would leave it waiting.
        waits = not _is_detached and send(event, {**body, "number": number})
        while waits and not lock.acquire(timeout=min(1.0, patience)):
            # A relay that dies sends no message before.
            waits = time.monotonic() < until and debugger() is not None and debugger().reader.is_alive()
    finally:  # `ray.cancel` ends the wait by an exception
        if _waiting.pop(number, None) is not None:
            send(event, {"key": body["key"], "what": "gone", "number": number})
    return answer


def answered(number: int, *answer: bool) -> None:
    """Receives the relay's answer to `ask`."""
    waiting = _waiting.pop(number, None)
    if waiting is not None:
        lock, result = waiting
        result[:] = answer
        lock.release()


def detached() -> None:
    """Wakes all threads that wait for an answer, and prevents further waits."""
    global _is_detached
    _is_detached = True
    for number in list(_waiting):
        answered(number)


def tell_at_exit() -> None:
    """Sends deferred reports after the program's threads have ended, before pydevd ends its own."""
    if not hasattr(debugger(), _MARK):
        setattr(debugger(), _MARK, True)
        with suppress(Exception):  # private; without it the last reports of a process are lost
            threading._register_atexit(_at_exit)  # type: ignore[attr-defined]


def _at_exit() -> None:
    # The module is looked up, because it is imported anew for each connection.
    for leave in list(sys.modules[__name__].leaving):
        leave()


def _wake_at_detach() -> None:
    """Ends the wait of threads for answers when the relay leaves."""
    pydevd = debugger()
    if hasattr(pydevd, _WAKES):
        return
    setattr(pydevd, _WAKES, True)
    on_disconnect = pydevd.on_disconnect

    def on_disconnect_and_wake() -> None:
        on_disconnect()
        sys.modules[__name__].detached()  # Looked up, as in `_at_exit`.

    pydevd.on_disconnect = on_disconnect_and_wake


# If the relay has imported this module, there is a debugger, and any thread may ask from now on.
if debugger() is not None:
    _wake_at_detach()
