"""File locks: one command at a time, so that two don't undo each other's work."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Creates and holds the lock `file`; calls `waiting` first if another process holds it.

    The kernel releases the lock when its holder ends, even if killed. The file stays.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def trying(file: Path) -> Iterator[bool]:
    """Tries to hold the lock `file`; yields whether it is free. Does not create the file."""
    try:
        lock = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
