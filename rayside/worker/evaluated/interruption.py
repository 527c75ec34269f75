"""Ends what an editor has a stopped thread evaluate, inside a debuggee.

pydevd evaluates in the thread that is stopped, so an evaluation without end holds up that thread for good.
A thread is interrupted only while it is in pydevd's own evaluation: anywhere else the exception would be the
user's. It is a KeyboardInterrupt, for which pydevd is prepared there.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from types import FrameType

# This function of pydevd's evaluates for `evaluate` (debugpy 1.8.22, pydevd_vars.py). It is private: where it
# is named otherwise, nothing is interrupted.
_EVALUATION = ("pydevd_vars.py", "evaluate_expression")
_TO_OTHERS = 0.001  # seconds without Python's lock, in which others take it that wait for it


def interrupt() -> int:
    """Interrupts evaluations; returns in how many threads."""
    # Between the reading of the frames and the exception no other thread may run. Whoever has taken Python's
    # lock anew keeps it for a whole switch interval, 5 ms: so long do the others wait before they ask for it
    # (`take_gil` in CPython's ceval_gil.h). A longer interval would do nothing to those that wait already,
    # and who begins to wait meanwhile might wait that long.
    time.sleep(_TO_OTHERS)
    own = threading.get_ident()
    evaluating = [
        ident for ident, frame in sys._current_frames().items() if ident != own and _evaluates(frame)
    ]
    for ident in evaluating:
        main = ident == threading.main_thread().ident
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # The signal also ends a sleep, or a wait for input.
            signal.pthread_kill(ident, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt)
            )
    return len(evaluating)


def _evaluates(frame: FrameType | None) -> bool:
    """Returns whether code of the user's runs in an evaluation."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == _EVALUATION[1] and code.co_filename.endswith(_EVALUATION[0]):
            return True
        frame = frame.f_back
    return False
