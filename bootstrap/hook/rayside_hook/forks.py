"""Lets the forks of a debugged process (multiprocessing, a data loader) run on without a debugger.

A fork has the parent's breakpoints, but none of the threads that would tell anybody of a stop: it would
stand still for good, unseen.
"""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any

from . import tracing
from .listener import Listener

_TEXT = b"rayside: this process forks others, in which breakpoints do not stop: they run on\n"
_reported = False  # in this process


def run_on(listener: Listener) -> None:
    """Lets every fork of this process run on from now on; other programs that it starts are not touched."""
    os.register_at_fork(after_in_parent=_tell, after_in_child=lambda: _run_on(listener))


def _tell() -> None:
    """Says so once, and only where a debugger is attached, whose user may wonder."""
    global _reported
    if not _reported and tracing.is_attached():
        _reported = True
        os.write(2, _TEXT)  # Another thread may hold the lock of sys.stderr.


def _run_on(listener: Listener) -> None:
    """Runs in the fork, before any code of the user's; it takes no lock that a lost thread may hold."""
    listener.close()
    tracing.end()
    sys.breakpointhook = sys.__breakpointhook__ = builtins.breakpoint = _pass_over


def _pass_over(*args: Any, **kwargs: Any) -> None:
    """Replaces Ray's `breakpoint()`, which would wait for a debugger without end."""
