"""Works around faults of Python and of pydevd, debugpy's engine, that disturb the programs of this process.

It leans on pydevd 1.8.22: `PyDB` in pydevd.py, and pydevd_tracing.py.
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

_COLLECTS_NOTHING = "rayside_collects_nothing"  # what lists the threads' frames has it
_TRIES_AGAIN = "rayside_tries_again"  # what sets a thread's trace function has it
_START = "RAYSIDE_START"  # names start.py, in the environments and images that Rayside makes
_FOLDERS = "rayside_folders"  # pydevd's debugger has the folders of this package: that of each copy here


def apply() -> None:
    """Applies all of them, those for pydevd where it is loaded; may be called again."""
    list_frames_safely()
    set_trace_functions_safely()
    if "pydevd" in sys.modules:
        know_files_by_folder(sys.modules["pydevd"].PyDB)
        # It would print ten lines where coverage or a profiler sets a trace function. No breakpoint needs
        # pydevd's, and a step that takes the other's place says so (stopping.py).
        sys.modules["pydevd_tracing"].TracingFunctionHolder._warn = False


def know_files_by_folder(debugger: Any) -> None:
    """Makes pydevd take files for Python's or its own by where those lie, and not by their name alone.

    Its table of names (pydevd_dont_trace_files.py) has `io.py`, `queue.py`, `socket.py` and others: where a
    user's file had such a name, nothing stopped in it, and no step went into it. This package's files are
    taken for pydevd's own.
    """
    folders: set[str] | None = getattr(debugger, _FOLDERS, None)
    # What Python runs at its start (start.py) may lie elsewhere than what a job has brought.
    started = os.environ.get(_START)
    places = [folder(), *([os.path.dirname(started)] if started else [])]  # noqa: PTH120 (as below)
    own = {*places, *map(os.path.realpath, places)}
    if folders is not None and own <= folders:
        return
    if folders is None:
        setattr(debugger, _FOLDERS, own)
        _look_at_folders(debugger)
    else:  # another copy of this module has done the rest
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
        # Packages may lie below Python's own folder.
        is_pythons = path[0] == f"{pythons}/{path[2]}"
        return kind if kind is None or is_pythons or path[0].startswith(known) else None

    is_users = debugger.in_project_roots_filename_uncached

    def in_project_roots_filename_uncached(self: Any, path: str) -> bool:
        return not is_ours(path) and bool(is_users(self, path))

    debugger._internal_get_file_type = _internal_get_file_type
    debugger.in_project_roots_filename_uncached = in_project_roots_filename_uncached


def folder() -> str:
    """Returns the folder of this package, also where its code came by value."""
    return os.path.dirname(folder.__code__.co_filename)  # noqa: PTH120 (as pydevd compares it)


def is_ours(path: str) -> bool:
    """Returns whether that is a file of this package, of any copy that this process has."""
    folders = getattr(sys.modules["pydevd"].PyDB, _FOLDERS)
    return any(path.startswith(f"{each}/") for each in folders)


def list_frames_safely() -> None:
    """Keeps Python 3.11 from collecting garbage while it lists the frames of all threads.

    It has the lock of the threads' states then, and makes objects. A collection may run finalizers, and
    let other threads run: one that begins or ends waits for that lock while it has Python's, and the
    process stands still for good (https://github.com/python/cpython/issues/106883). Python 3.10 makes
    none, and from 3.12 on nothing is collected where an object is made. pydevd lists frames at each
    change of breakpoints, we at each resume.
    """
    frames = sys._current_frames
    if sys.version_info[:2] != (3, 11) or hasattr(frames, _COLLECTS_NOTHING):
        return
    once: list[tuple[()]] = [()]

    def _current_frames() -> dict[int, FrameType]:
        collects: list[bool] = []
        result: list[dict[int, FrameType]] = []
        try:
            # All of it happens in this call, in which no other thread runs but in audit hooks.
            deque(
                chain(
                    map(collects.append, starmap(gc.isenabled, once)),
                    starmap(gc.disable, once),
                    map(result.append, starmap(frames, once)),
                    starmap(gc.enable, compress(once, collects)),
                ),
                maxlen=0,
            )
        except BaseException:  # an audit hook's
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
    """Lets Python 3.10 and 3.11 set a thread's trace function while another thread sets its own.

    `sys.settrace` tells audit hooks first, some of which are ours. Another thread that comes to it meanwhile
    gets a RuntimeError (`_PyEval_SetTrace` in Python/ceval.c): a thread of the user's that begins would not
    run, and where pydevd begins one, it waits for it for good (`set_trace_to_threads`). The error ends that
    state, so the next try goes on.
    """
    if sys.version_info >= (3, 12):
        return
    pydevds: Any = getattr(sys.modules.get("pydevd_tracing"), "TracingFunctionHolder", None)
    # pydevd keeps Python's own where it has put another in its place.
    kept = getattr(pydevds, "_original_tracing", None)
    settrace = kept or sys.settrace
    if hasattr(settrace, _TRIES_AGAIN):
        return
    within: set[int] = set()

    def _settrace(function: Any) -> None:
        ident = threading.get_ident()
        if ident in within:  # an audit hook's own, which is an error for good
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
