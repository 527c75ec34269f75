"""Immediate handling of signals, such as Ctrl-C, while the main thread waits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds between two interruptions of a wait.
_PAUSE = 0.05
# SIGURG does not end a program: it is ignored by default. Its number is above the terminating signals'
# numbers, so Python runs their handlers first.
_NUDGE = signal.SIGURG


def termination_interrupts() -> None:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt in this process, as Ctrl-C does. Main thread only."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


@contextmanager
def signals_noticed(*ends: signal.Signals) -> Iterator[None]:
    """Interrupts each wait of the main thread on a signal; `ends` raise SystemExit(128 + number).

    Python runs a handler when a signal has interrupted a wait. A signal just before the wait begins (for a
    key, for a thread's result) interrupts nothing, and its handler would run only when the wait ends. So a
    thread, woken as the signal arrives (`signal.set_wakeup_fd`), interrupts the wait until the handler has
    run. Main thread only.
    """
    main = threading.get_ident()
    closing = threading.Event()
    nudged = True
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    def nudge(number: int, frame: object) -> None:
        # It takes no lock, as it may interrupt another handler.
        nonlocal nudged
        nudged = True

    def watch() -> None:
        nonlocal nudged
        while arrived := os.read(reader, 64):
            nudged = all(number == _NUDGE for number in arrived)
            while not nudged and not closing.wait(_PAUSE):
                signal.pthread_kill(main, _NUDGE)

    handlers = {**dict.fromkeys(ends, end), _NUDGE: nudge}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        closing.set()
        os.close(writer)
        watching.join()
        os.close(reader)
        for number, earlier in before.items():
            signal.signal(number, earlier)
