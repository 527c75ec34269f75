"""Breakpoints compiled into functions, so that nothing else of a process is traced.

pydevd keeps the breakpoints; only the detection of their lines is replaced, and stopping.py then stops. For a
breakpoint that can't be compiled in, the whole process is traced, as without this module: see `_Breakpoints`.

This relies on pydevd 1.8.22, on the names in `begin` and the functions below it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from types import CodeType, FrameType, FunctionType
from typing import Any

from .. import tracing
from . import entering, exceptions, inserted, made, objects, stopping

_SETTLE = "rayside_settle"  # attribute of pydevd's debugger, which tracing.py calls
# Seconds until frames that started before their breakpoints are checked again; doubles up to the latter.
_SOONEST, _LATEST = 0.25, 4.0
# Minimum time between two scans, as a multiple of a scan's processor time: with five million objects a scan
# takes half a second.
_LEAST_SHARE = 20


class _Breakpoints:
    """Breakpoints of pydevd, and the code objects with them.

    Not compiled in are breakpoints in running frames, in code that was not imported or unpickled (until its
    functions are found), in functions whose code other packages compile, and breakpoints whose conditions
    pydevd has to evaluate itself.

    Attributes:
        traced: whether a breakpoint requires tracing.
        codes: the code objects with breakpoints, as `Codes` in made.py.
    """

    def __init__(self) -> None:
        self.traced, self.codes = False, made.Codes()
        self._process, self._own_lock = os.getpid(), threading.RLock()
        self._as_is: weakref.WeakSet[FunctionType] = weakref.WeakSet()  # functions that keep their own code
        self._came = self._main_comes = False
        self._awake = False
        self._look_again: threading.Thread | None = None
        self._not_before = 0.0  # earliest next scan, by `time.monotonic`
        self._is_in_request = False

    @property
    def _lock(self) -> threading.RLock:
        if self._process != os.getpid():
            # A fork lacks the threads that may have held the lock, and its pydevd has started anew, or ended.
            self._look_again, self._is_in_request = None, False
            self.codes.files, self.traced, self._awake = {}, False, False
            # In this order: a second thread of the fork may run this at the same time.
            self._own_lock = threading.RLock()
            self._process = os.getpid()
        return self._own_lock

    # --- code --------------------------------------------------------------------------------

    def original(self, code: CodeType) -> CodeType:
        return self.codes.original(code)

    def compiled_in(self, code: CodeType, namespace: dict[str, Any]) -> CodeType:
        if not self.codes.lines(code):
            return code
        with stopping.passed_over(), self._lock, entering.Ours():
            return self.codes.compiled_in(code, namespace)

    def watches(self, filename: str) -> bool:
        return self.codes.watches(filename)

    # --- changes of breakpoints --------------------------------------------------------------

    def settle(self) -> None:
        """Compiles in pydevd's breakpoints, removes deleted ones, and wakes the process or lets it sleep."""
        if self._is_in_request:
            return
        pydevd = tracing.debugger()
        if pydevd is None:
            return
        # Scanned objects: their release may run the program's finalizers, which must happen without the lock.
        held: list[Any] = []
        with self._lock, entering.Ours():
            files, others = stopping.wanted(pydevd)
            changed = files != self.codes.files
            if changed:
                self.codes.set(files)
                entering.watch(self)
            lacking: list[FrameType] = []
            if changed or (self.traced and time.monotonic() >= self._not_before):
                self.traced = True  # in case `_compile` raises
                self.traced = not self._compile(lacking, held)
            if self.traced or others or tracing.something_else_to_stop_at(pydevd):
                if changed or not self._awake:
                    tracing.wake()
                self._awake = True
                stopping.notice_lines_of(lacking)
            else:
                self._awake = False
                tracing.sleep()
                if self._came:  # in the meantime
                    self._trace()
            if self.traced:
                self._look_again_soon()

    def _trace(self) -> None:
        self.traced = self._awake = True
        tracing.wake()

    def _compile(self, lacking: list[FrameType], held: list[Any]) -> bool:
        """Gives each function its code with breakpoints; returns whether all code has its breakpoints.

        Adds frames whose code lacks breakpoints to `lacking`, and the scanned objects to `held`.
        """
        self._came = False
        began = time.thread_time()
        complete = True
        # Twice if there are breakpoints: between two scans a frame may make a function, and end.
        for _ in range(2 if self.codes.files else 1):
            found, frames = objects.held(self.codes.concerns), sys._current_frames()
            held += [found, frames]
            if self.codes.files:
                lacking += self._lacking(found, frames)
            complete = self._replace(found)
        self._not_before = time.monotonic() + _LEAST_SHARE * (time.thread_time() - began)
        return complete and not (lacking or self._came or self._main_comes)

    def _replace(self, found: list[Any]) -> bool:
        """Gives functions their code with breakpoints; returns whether all have it now."""
        complete = True
        for function in found:
            if type(function) is not FunctionType:
                continue
            code = function.__code__
            original = self.original(code)
            try:
                is_free = function not in self._as_is
                new = self.compiled_in(original, function.__globals__) if is_free else original
                if new is not code:
                    function.__code__ = new
                complete = complete and self.codes.has_all(new)
            except Exception:  # code that `bytecode` does not support
                complete = False
        return complete

    def _lacking(self, found: list[Any], frames: dict[int, FrameType]) -> list[FrameType]:
        """Returns the frames, running or suspended, that may reach a breakpoint that their code lacks."""
        lacking: list[FrameType] = []
        known: dict[tuple[int, int], bool] = {}
        for each in found:
            name = objects.FRAMES.get(type(each))
            waiting = None if name is None else getattr(each, name)
            if waiting is not None and not self.codes.has_all_ahead(waiting, known):
                lacking.append(waiting)
        main = getattr(sys.modules.get("__main__"), "__dict__", None)
        for top in frames.values():
            frame: FrameType | None = top
            while frame is not None:
                if not self.codes.has_all_ahead(frame, known):
                    lacking.append(frame)
                if frame.f_globals is main and frame.f_code.co_name == "<module>":
                    self._main_comes = False
                frame = frame.f_back
        return lacking

    def _look_again_soon(self) -> None:
        if self._look_again is not None and self._look_again.is_alive():
            return

        def look() -> None:
            seconds = _SOONEST
            while self.traced and tracing.debugger() is not None:
                # There is no event for the end of a frame.
                time.sleep(max(seconds, self._not_before - time.monotonic()))
                seconds = min(2 * seconds, _LATEST)
                self.settle()
            self._look_again = None

        self._look_again = tracing.in_background(look)

    # --- new code ----------------------------------------------------------------------------

    def came(self, code: CodeType | None) -> None:
        """Traces code that runs without its breakpoints."""
        if code is not None and self.codes.has_all(code):
            return
        # The main program is compiled after this, and runs as long as its process.
        self._main_comes = self._main_comes or code is None
        self._came = True
        self._trace()
        self._look_again_soon()

    def is_read(self, function: FunctionType) -> None:
        """Restores a function's own code, for a package that may compile it, and traces it."""
        with entering.Ours():
            original = self.original(function.__code__)
            if original is function.__code__:
                return
            self._as_is.add(function)
            function.__code__ = original
        self.came(original)


_breakpoints = _Breakpoints()


def begin() -> bool:
    """Compiles in breakpoints from now on, also those that are already set.

    Returns whether that is possible here; if not, the process is traced from now on.
    """
    pydevd = tracing.debugger()
    if pydevd is not None:
        _have_users_files_wherever_they_lie(type(pydevd))
    if pydevd is None or not inserted.SUPPORTED:
        tracing.wake()
        return False
    tracing.wake_by_itself()
    if not hasattr(pydevd, _SETTLE):
        setattr(pydevd, _SETTLE, _breakpoints.settle)
        _settle_after_requests()
        stopping.remember_stops(pydevd)
        exceptions.notice(pydevd, lambda: bool(_breakpoints.codes.files))
    _breakpoints.settle()
    return True


def _have_users_files_wherever_they_lie(debugger: Any) -> None:
    """Makes pydevd treat every file with a breakpoint as the user's code, also an installed one.

    With `justMyCode` it would ignore all of `site-packages`.
    """
    apply_files_filter = debugger.apply_files_filter
    if hasattr(apply_files_filter, _SETTLE):
        return
    path_of = sys.modules["pydevd_file_utils"].get_abs_path_real_path_and_base_from_frame

    def leaves_out(self: Any, frame: FrameType, *arguments: Any) -> bool:
        if self.breakpoints.get(path_of(frame)[1]):
            return False
        return bool(apply_files_filter(self, frame, *arguments))

    setattr(leaves_out, _SETTLE, True)
    debugger.apply_files_filter = leaves_out


def _settle_after_requests() -> None:
    """Settles once after all breakpoints of a request, before its response, and when a thread resumes."""
    processor = sys.modules["_pydevd_bundle.pydevd_process_net_command_json"].PyDevJsonCommandProcessor
    api = sys.modules["_pydevd_bundle.pydevd_api"].PyDevdAPI
    if hasattr(api, _SETTLE):  # A fork inherits its parent's API class, with a new debugger object.
        return
    setattr(api, _SETTLE, True)
    set_breakpoints, resume = processor.on_setbreakpoints_request, api.request_resume_thread

    def on_setbreakpoints_request(self: Any, py_db: Any, request: Any) -> Any:
        _breakpoints._is_in_request = True
        try:
            return set_breakpoints(self, py_db, request)
        finally:
            _breakpoints._is_in_request = False
            _settle_safely()

    def request_resume_thread(self: Any, thread_id: str) -> None:
        # A stop at `breakpoint()` or a step turns tracing on. Without tracing, settling would only remove the
        # trace functions of other tools, such as coverage.
        is_tracing = stopping.is_tracing_stopped_threads()
        resume(self, thread_id)
        if is_tracing:
            _settle_safely()

    processor.on_setbreakpoints_request = on_setbreakpoints_request
    api.request_resume_thread = request_resume_thread


def _settle_safely() -> None:
    try:
        _breakpoints.settle()
    except Exception:  # pydevd's own thread has to continue, and breakpoints have to stop
        _breakpoints._trace()
