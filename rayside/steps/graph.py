"""Step engine: makes the steps of a graph ready, independent ones in parallel, and measures each.

Waiting, progress, timing and interruption are implemented only here; a step contains no loop.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Protocol

from rayside.errors import ClusterUnreachable, Drifted, Interrupted, NotReady, NotRunning, RaysideError
from rayside.steps.step import Appliable, Condition, Patient, Status, Step, Undoable, failed, pending
from rayside.waiting import until

# Errors of a program that is still starting, and for how many seconds they are tolerated.
_SILENCE, _LONGEST_SILENCE = (NotRunning, ClusterUnreachable), 15.0


@dataclass(frozen=True)
class Timing:
    """Outcome of one step that was made ready: when, whether it changed anything, and its last detail.

    `started` and `seconds` are in seconds, `started` since the start of the run.
    """

    name: str
    started: float
    seconds: float
    changed: bool
    detail: str = ""

    def document(self) -> dict[str, Any]:
        """Returns the timing as in `status --json`."""
        return {"name": self.name, "started": round(self.started, 3), "seconds": round(self.seconds, 3)}


class Progress(Protocol):
    """Receiver of the engine's progress, such as the console."""

    def started(self, name: str, title: str) -> None: ...
    def note(self, name: str, text: str) -> None: ...
    def finished(self, name: str, title: str, outcome: str, detail: str) -> None: ...


def up(
    steps: Sequence[Step],
    progress: Progress,
    *,
    interrupt: Callable[[], None] = lambda: None,
    at_once: int | None = None,
    goes_on: bool = False,
) -> list[Timing]:
    """Makes every step ready in the order of their needs, independent ones in parallel; returns the timings.

    `at_once` limits the parallel steps (default: all). After the first failure no new step starts; with
    `goes_on`, steps that don't need the failed one still do, and each failure is reported as it comes.
    Running steps are waited for, nothing is undone, and the first error is raised. On Ctrl-C `interrupt` is
    called (it has to end the steps' blocking calls within 2 s) and KeyboardInterrupt is raised.
    """
    stop = threading.Event()
    origin = time.monotonic()

    def timed(step: Step) -> Timing:
        began = time.monotonic()
        changed, detail = _make_ready(step, progress, stop, tells_why=goes_on)
        return Timing(step.name, began - origin, time.monotonic() - began, changed, detail)

    return _each(
        *(steps, timed, stop, interrupt),
        order=lambda step: step.needs,
        at_once=at_once,
        goes_on=goes_on,
    )


def check(steps: Sequence[Step]) -> dict[str, Status]:
    """Returns every step's current status, checked in parallel; a status contains its check's error."""
    statuses = dict(_each(steps, lambda step: (step.name, status_of(step))))
    return {step.name: statuses[step.name] for step in steps}


def status_of(step: Step) -> Status:
    """Returns the step's current status; it contains the check's error, if any."""
    try:
        return step.check()
    except RaysideError as error:
        return failed(error)


def down(steps: Sequence[Step], progress: Progress, *, at_once: int | None = None) -> None:
    """Undoes every step, dependents before their needs; reports the steps that had something to undo."""

    def undo(step: Step) -> None:
        if not isinstance(step, Undoable):
            return
        reports: list[str] = []

        def report(text: str) -> None:
            if not reports:
                progress.started(step.name, step.title)
            reports.append(text)
            progress.note(step.name, text)

        left = step.undo(report)
        if left:
            report(left)
        if reports:
            progress.finished(step.name, step.title, "done", left or "removed")

    _each(steps, undo, order=lambda step: dependants(steps, step.name) - {step.name}, at_once=at_once)


def dependants(steps: Sequence[Step], name: str) -> set[str]:
    """Returns that step's name, and the names of all steps that need it, directly or indirectly."""
    needs = {step.name: step.needs for step in steps}
    names = {name}
    for other in TopologicalSorter(needs).static_order():
        if names.intersection(needs.get(other, ())):
            names.add(other)
    return names


def _make_ready(
    step: Step, progress: Progress, stop: threading.Event, *, tells_why: bool
) -> tuple[bool, str]:
    """Checks, applies if missing, waits until ready; returns whether it applied, and the last detail.

    A step that gave up is applied once more, and not again. `tells_why`: progress also gets the error, as
    only the first of several is raised.
    """
    progress.started(step.name, step.title)
    applied = waited = again = False
    outcome, detail = "failed", ""
    try:
        status = step.check()
        while status.condition is not Condition.READY:
            if status.condition is Condition.DRIFTED:
                raise Drifted(
                    f"{step.title} is not what up would make now: {status.detail}",
                    hint="./invokew down, then ./invokew up, makes it anew; or take back what was changed",
                )
            if status.condition is Condition.PENDING:
                waited = True
                progress.note(step.name, status.detail)
                status = _wait(step, progress, stop)
            elif applied and (again or not status.gave_up):
                raise NotReady(
                    f"{step.title} did not come up: {status.detail}", hint="./invokew logs --ray says more"
                )
            else:
                if applied:
                    again = True
                    progress.note(step.name, f"once more, for {status.detail}")
                applied = True
                assert isinstance(step, Appliable), f"{step.name} can't be made: its check has to raise"
                step.apply(lambda text: progress.note(step.name, text))
                status = _wait(step, progress, stop)
        outcome, detail = ("ready" if applied or waited else "kept"), status.detail
    except (Interrupted, KeyboardInterrupt):
        outcome = "interrupted"
        raise
    except RaysideError as error:
        detail = error.message if tells_why else ""
        raise
    finally:
        progress.finished(step.name, step.title, outcome, detail)
    return applied, detail


def _wait(step: Step, progress: Progress, stop: threading.Event) -> Status:
    """Returns the first status that is not pending.

    Raises NotReady after the step's timeout, or the check's own error if that lasts until then.
    """
    silence: RaysideError | None = None
    silent_since = 0.0

    def read() -> Status:
        nonlocal silence, silent_since
        try:
            status = step.check()
            silence = None
        except _SILENCE as error:
            # It counts from the first error, not from the last answer: a check may itself wait long.
            silent_since = silent_since if silence else time.monotonic()
            if time.monotonic() - silent_since > _LONGEST_SILENCE:
                raise
            silence, status = error, pending(error.message)
        if status.condition is Condition.PENDING:
            progress.note(step.name, status.detail)
        return status

    patience = step.patience if isinstance(step, Patient) else 0.0
    status = until(read, lambda status: status.condition is not Condition.PENDING, patience, stop)
    if stop.is_set() and status.condition is not Condition.READY:
        raise Interrupted(f"{step.title} was interrupted", hint="./invokew up goes on from there")
    if silence is not None:
        raise silence
    if status.condition is Condition.PENDING:
        raise NotReady(
            f"{step.title} was not ready after {patience:g} s: {status.detail}",
            hint="./invokew up waits longer; ./invokew down, then up, starts afresh",
        )
    return status


def _next(ended: queue.Queue[tuple[str, Any, BaseException | None]]) -> tuple[str, Any, BaseException | None]:
    """Returns the queue's next item; Ctrl-C interrupts the wait."""
    while True:
        # A signal just before CPython blocks does not wake it: a wait without timeout could miss it.
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=0.5)


def _each(
    steps: Sequence[Step],
    work: Callable[[Step], Any],
    stop: threading.Event | None = None,
    interrupt: Callable[[], None] = lambda: None,
    *,
    order: Callable[[Step], Iterable[str]] = lambda _: (),
    at_once: int | None = None,
    goes_on: bool = False,
) -> list[Any]:
    """Runs `work` for each step in a thread, after the steps that `order` names; returns the results."""
    by_name = {step.name: step for step in steps}
    # A need that is not among the steps counts as met: one step can be made ready by itself.
    sorter = TopologicalSorter({step.name: [n for n in order(step) if n in by_name] for step in steps})
    sorter.prepare()
    ended: queue.Queue[tuple[str, Any, BaseException | None]] = queue.Queue()
    results: list[Any] = []
    failure: BaseException | None = None
    waiting: deque[str] = deque()
    running = 0

    def thread(step: Step) -> None:
        try:
            ended.put((step.name, work(step), None))
        except BaseException as error:  # The caller's thread raises it.
            ended.put((step.name, None, error))

    try:
        while sorter.is_active():
            waiting.extend(sorter.get_ready())
            if failure is not None and not goes_on:
                waiting.clear()
            while waiting and running < (at_once or len(steps)):
                name = waiting.popleft()
                # Daemon threads, so that a blocking read can't keep an interrupted command alive.
                threading.Thread(target=thread, args=(by_name[name],), name=name, daemon=True).start()
                running += 1
            if running == 0:
                break
            name, result, error = _next(ended)
            running -= 1
            failure = failure or error
            if error is None:
                results.append(result)
                sorter.done(name)
    except KeyboardInterrupt:
        if stop is not None:
            stop.set()
        interrupt()
        raise
    if failure is not None:
        raise failure
    return results


def critical_path(needs_of: Mapping[str, Sequence[str]], timings: Sequence[Timing]) -> list[str]:
    """Returns the chain of needs that took longest, first to last: what to speed up to finish sooner."""
    seconds = {timing.name: timing.seconds for timing in timings}
    # A need that is not among the steps counts as met.
    needs = {name: [need for need in names if need in needs_of] for name, names in needs_of.items()}
    best: dict[str, tuple[float, list[str]]] = {}
    for name in TopologicalSorter(needs).static_order():
        before = max((best[need] for need in needs[name]), default=(0.0, []), key=lambda chain: chain[0])
        best[name] = (before[0] + seconds.get(name, 0.0), [*before[1], name])
    return max(best.values(), default=(0.0, []), key=lambda chain: chain[0])[1]
