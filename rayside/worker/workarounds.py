"""Workarounds for bugs in Python and in pydevd, debugpy's engine, that disturb the program of this process.

This relies on pydevd 1.8.22: `PyDB` in pydevd.py, and pydevd_tracing.py.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from itertools import chain, compress, starmap
from pathlib import Path
from types import FrameType
from typing import Any

_COLLECTS_NOTHING = "rayside_collects_nothing"  # mark of our function that lists the threads' frames
_TRIES_AGAIN = "rayside_tries_again"  # mark of our function that sets a thread's trace function
_START = "RAYSIDE_START"  # path of start.py, in the environments and images that Rayside makes
_FOLDERS = "rayside_folders"  # attribute of pydevd's debugger: folders of this package's copies here


def apply() -> None:
    """Applies all workarounds, those for pydevd only once it is loaded; may be called again."""
    list_frames_safely()
    set_trace_functions_safely()
    if "pydevd" in sys.modules:
        know_files_by_folder(sys.modules["pydevd"].PyDB)
        # pydevd would print ten lines if coverage or a profiler sets a trace function. No breakpoint needs
        # pydevd's own, and a step that replaces the other function reports that (stopping.py).
        sys.modules["pydevd_tracing"].TracingFunctionHolder._warn = False


def know_files_by_folder(debugger: Any) -> None:
    """Makes pydevd recognize Python's and its own files by their folder, and not by their name alone.

    Its table of names (pydevd_dont_trace_files.py) has `io.py`, `queue.py`, `socket.py` and others: a user's
    file with such a name had no working breakpoints and steps. This package's files count as pydevd's own.
    """
    folders: set[str] | None = getattr(debugger, _FOLDERS, None)
    # The copy that Python runs at its start (start.py) may be in another folder than the job's copy.
    started = os.environ.get(_START)
    places = [folder(), *([os.path.dirname(started)] if started else [])]  # noqa: PTH120 (as below)
    own = {*places, *map(os.path.realpath, places)}
    if folders is not None and own <= folders:
        return
    if folders is None:
        setattr(debugger, _FOLDERS, own)
        _look_at_folders(debugger)
    else:  # Another copy of this module has done the rest.
        folders |= own
    pydevd = sys.modules["pydevd"].get_global_debugger()
    if pydevd is not None:
        pydevd.clear_dont_trace_start_end_patterns_caches()


def _look_at_folders(debugger: Any) -> None:
    by_name = debugger._internal_get_file_type
    pythons, pydevds = (str(Path(sys.modules[name].__file__ or "").parent) for name in ("os", "pydevd"))
    known = (f"{pythons}/encodings/", f"{pydevds}/", "<")

    def _internal_get_file_type(self: Any, path: tuple[str, str, str]) -> int | None:
        if is_ours(path[0]):
            return int(self.PYDEV_FILE)
        kind: int | None = by_name(self, path)
        # Packages may be installed below Python's own folder.
        is_pythons = path[0] == f"{pythons}/{path[2]}"
        return kind if kind is None or is_pythons or path[0].startswith(known) else None

    is_users = debugger.in_project_roots_filename_uncached

    def in_project_roots_filename_uncached(self: Any, path: str) -> bool:
        return not is_ours(path) and bool(is_users(self, path))

    debugger._internal_get_file_type = _internal_get_file_type
    debugger.in_project_roots_filename_uncached = in_project_roots_filename_uncached


def folder() -> str:
    """Returns the folder of this package, also for code that was pickled by value."""
    return os.path.dirname(folder.__code__.co_filename)  # noqa: PTH120 (as pydevd compares it)


def is_ours(path: str) -> bool:
    """Returns whether a file belongs to a copy of this package in this process."""
    folders = getattr(sys.modules["pydevd"].PyDB, _FOLDERS)
    return any(path.startswith(f"{each}/") for each in folders)


def list_frames_safely() -> None:
    """Turns off garbage collection in Python 3.11 while it lists the frames of all threads.

    Python then holds the lock of the thread states, and allocates objects. A collection may run finalizers,
    and let other threads run: one that starts or ends waits for that lock while it holds the GIL, which is a
    deadlock (https://github.com/python/cpython/issues/106883). Python 3.10 allocates nothing there, and from
    3.12 on an allocation starts no collection. pydevd lists frames at each change of breakpoints, Rayside at
    each resume.
    """
    frames = sys._current_frames
    if sys.version_info[:2] != (3, 11) or hasattr(frames, _COLLECTS_NOTHING):
        return
    once: list[tuple[()]] = [()]

    def _current_frames() -> dict[int, FrameType]:
        collects: list[bool] = []
        result: list[dict[int, FrameType]] = []
        try:
            # One call of C code, during which other threads run only in audit hooks.
            deque(
                chain(
                    map(collects.append, starmap(gc.isenabled, once)),
                    starmap(gc.disable, once),
                    map(result.append, starmap(frames, once)),
                    starmap(gc.enable, compress(once, collects)),
                ),
                maxlen=0,
            )
        except BaseException:  # from an audit hook
            if any(collects):
                gc.enable()
            raise
        own, caller = threading.get_ident(), sys._getframe().f_back
        if caller is None:
            del result[0][own]
        else:
            result[0][own] = caller
        return result[0]

    setattr(_current_frames, _COLLECTS_NOTHING, True)
    sys._current_frames = _current_frames
    for name, module in list(sys.modules.items()):
        if name.startswith(("pydevd", "_pydevd")):
            for attribute, value in list(vars(module).items()):
                if value is frames:
                    setattr(module, attribute, _current_frames)


def set_trace_functions_safely() -> None:
    """Makes `sys.settrace` in Python 3.10 and 3.11 retry while another thread sets its trace function.

    `sys.settrace` first calls audit hooks, some of them ours. A concurrent call in another thread raises a
    RuntimeError (`_PyEval_SetTrace` in Python/ceval.c): a user's thread that starts would not run, and pydevd
    would wait forever for a thread that it starts (`set_trace_to_threads`). The error ends that state, so a
    retry succeeds.
    """
    if sys.version_info >= (3, 12):
        return
    pydevds: Any = getattr(sys.modules.get("pydevd_tracing"), "TracingFunctionHolder", None)
    # pydevd keeps Python's own function here if it has replaced it.
    kept = getattr(pydevds, "_original_tracing", None)
    settrace = kept or sys.settrace
    if hasattr(settrace, _TRIES_AGAIN):
        return
    within: set[int] = set()

    def _settrace(function: Any) -> None:
        ident = threading.get_ident()
        if ident in within:  # a call from within an audit hook: a retry would fail, too
            settrace(function)
            return
        within.add(ident)
        try:
            while True:
                try:
                    settrace(function)
                except RuntimeError as error:
                    if "another trace function" not in str(error):
                        raise
                else:
                    return
        finally:
            within.discard(ident)

    setattr(_settrace, _TRIES_AGAIN, True)
    if kept is None:
        sys.settrace = _settrace
    else:
        pydevds._original_tracing = _settrace
