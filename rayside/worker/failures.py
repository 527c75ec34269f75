"""Recorded failures: capsules of failed calls that nobody debugged, in Ray's key-value store on the head.

The newest are kept, within limits. Keys sort by time and include each capsule's length, so that listing the
keys is enough to enforce the limits.
"""

from __future__ import annotations

import json
import math
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from . import handshake, tracing
from .attach import say
from .debug_config import Config
from .evaluated import scope

NAMESPACE = b"rayside"
LISTED, KEPT = b"failure-row/", b"failure/"
# Limits: capsules of a cluster, and their bytes; capsules of a process in an hour, and of one source line.
MOST, MOST_BYTES = 50, 20 * 1024 * 1024
MOST_OF_A_PROCESS, MOST_OF_A_PLACE = 20, 3
_LONGEST_ERROR = 400
# Timeout in seconds for making a capsule, which calls the user's `__repr__`.
_MAKING = 30.0


@dataclass(frozen=True)
class Unattended:
    """Policy for failed calls without a debugger.

    Attributes:
        stops: whether the call waits for a debugger.
        patience: seconds without a debugger after which the failure is recorded; the call waits on.
        are_recorded: whether failures are recorded.
        masked: the settings `masked_names` and `masked_values`.
    """

    stops: bool = True
    patience: float = 0.0
    are_recorded: bool = False
    masked: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, config: Config, stops: bool) -> Unattended:
        masked = config.masked_names, config.masked_values
        return cls(stops, config.attach_timeout, config.record_failures, masked)

    def wait(self, record: Callable[[], None], cancelled: threading.Event) -> None:
        """Waits for a debugger, or until `cancelled`; records the failure if none attaches in time.

        Several threads may wait at the same time, unlike in `debugpy.wait_for_client`.
        """
        import pydevd

        if self.are_recorded:
            pydevd._wait_for_attach(_Wait(cancelled, self.patience))
            if not (pydevd._is_attached() or cancelled.is_set()):
                record()
        pydevd._wait_for_attach(_Wait(cancelled, math.inf))


class _Wait:
    """Event that ends pydevd's wait for a debugger; pydevd polls it, and sets it on an attach."""

    def __init__(self, cancelled: threading.Event, seconds: float) -> None:
        self._cancelled, self._end, self._is_set = cancelled, time.monotonic() + seconds, False

    def is_set(self) -> bool:
        return self._is_set or self._cancelled.is_set() or time.monotonic() >= self._end

    def set(self) -> None:
        self._is_set = True


_places: list[tuple[int, tuple[Any, ...]]] = []  # hour and source line of each failure recorded here


def record(call: Any, error: BaseException, masked: tuple[str, str]) -> None:
    """Stores the capsule of a failed call, and logs it in the process's output. Never raises."""
    with suppress(Exception):
        if _has_room(_place(error)):
            name = str(getattr(call.function, "__qualname__", "a task"))
            say(f"{name} failed, and {_recorded(call, error, masked)}")


def _recorded(call: Any, error: BaseException, masked: tuple[str, str]) -> str:
    """Stores the capsule; returns the outcome, for people."""
    about = _about()
    done: list[str] = []

    def make() -> None:
        from . import capsule

        try:
            content, text = capsule.made(call, error, about, masked)
            row = {key: about[key] for key in ("job", "submission", "user", "task", "node")}
            keep(about["id"], content, {**row, "when": about["when"], "error": text[:_LONGEST_ERROR]})
            done.append(f"nobody debugged it: `rayside failures --get {about['id']}`")
        except BaseException as failure:  # a `__repr__` may raise SystemExit
            done.append(f"was not recorded: {type(failure).__name__}: {failure}")

    # The user's `__repr__` may hang.
    tracing.in_background(make).join(_MAKING)
    return done[0] if done else f"was not recorded within {_MAKING:g} s"


def _has_room(place: tuple[Any, ...]) -> bool:
    """Counts a failure at a source line; returns whether to record it."""
    hour = int(time.monotonic() / 3600)
    _places[:] = [each for each in _places if each[0] == hour]
    if len(_places) >= MOST_OF_A_PROCESS or _places.count((hour, place)) >= MOST_OF_A_PLACE:
        return False
    _places.append((hour, place))
    return True


def _place(error: BaseException) -> tuple[Any, ...]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace and (trace.tb_frame.f_code, trace.tb_lineno)


def _about() -> dict[str, Any]:
    """Returns the id, time, task, job and node of a failure in this thread."""
    here = scope.Scope()
    now = datetime.now(timezone.utc)
    return {
        # Ids sort by time.
        "id": f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        "when": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        **{name: getattr(here, name) for name in scope.NAMES},
        "user": handshake.claims({}, "")["user"],
        "ray": sys.modules["ray"].__version__,
    }


# --- on the head -------------------------------------------------------------------------


def keep(name: str, content: bytes, row: dict[str, Any]) -> None:
    """Stores a capsule, and deletes the oldest ones beyond the limits. Raises Ray's errors."""
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    _internal_kv_put(KEPT + name.encode(), content, namespace=NAMESPACE)
    key = LISTED + f"{name}/{len(content)}".encode()
    _internal_kv_put(key, json.dumps(row).encode(), namespace=NAMESPACE)
    total = 0
    for number, (each, length) in enumerate(reversed(kept())):
        total += length
        if number >= MOST or total > MOST_BYTES:
            _internal_kv_del(LISTED + f"{each}/{length}".encode(), namespace=NAMESPACE)
            _internal_kv_del(KEPT + each.encode(), namespace=NAMESPACE)


def kept() -> list[tuple[str, int]]:
    """Returns name and length in bytes of each stored capsule, oldest first."""
    from ray.experimental.internal_kv import _internal_kv_list

    keys = [key.removeprefix(LISTED).decode() for key in _internal_kv_list(LISTED, namespace=NAMESPACE)]
    return sorted((name, int(length)) for name, _, length in (key.partition("/") for key in keys))


def rows() -> list[dict[str, Any]]:
    """Returns the description of each stored capsule, oldest first."""
    from ray.experimental.internal_kv import _internal_kv_get

    found = []
    for name, length in kept():
        row = _internal_kv_get(LISTED + f"{name}/{length}".encode(), namespace=NAMESPACE)
        if row is not None:
            found.append({"id": name, "bytes": length, **json.loads(row)})
    return found


def content(name: str) -> bytes | None:
    """Returns a stored capsule; None if there is none of that name."""
    from ray.experimental.internal_kv import _internal_kv_get

    found: bytes | None = _internal_kv_get(KEPT + name.encode(), namespace=NAMESPACE)
    return found
