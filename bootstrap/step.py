"""Makes steps true: checks, applies, waits, reports; side by side where it can.

Waiting, progress, timing and interruption exist here, once; a step holds no loop.
"""

from __future__ import annotations

import contextlib
import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Protocol, TypeVar, runtime_checkable

from bootstrap.errors import Drifted, NotReady
from bootstrap.timing import Timing
from rayside.errors import ClusterUnreachable, Interrupted, NotRunning, RaysideError

Report = Callable[[str], None]


class Condition(str, enum.Enum):
    """The findings of a check."""

    MISSING = "missing"  # It does not exist: apply makes it.
    PENDING = "pending"  # It is coming: wait.
    READY = "ready"
    DRIFTED = "drifted"  # It is ours, but not as it would be made now: never changed unasked.


@dataclass(frozen=True)
class Status:
    """A condition, with a text for people on what was seen.

    Attributes:
        error: what the check raised, if it did.
        gave_up: of what is missing: whether it has ended only because it took longer than it allows itself.
    """

    condition: Condition
    detail: str = ""
    error: RaysideError | None = None
    gave_up: bool = False

    def document(self) -> dict[str, Any]:
        """Returns it as `status --json` shows it; `error` only stands there where there is one."""
        document = {"condition": self.condition.value, "detail": self.detail}
        return {**document, **(self.error.document() if self.error else {})}


def missing(detail: str = "", *, gave_up: bool = False) -> Status:
    return Status(Condition.MISSING, detail, gave_up=gave_up)


def pending(detail: str = "") -> Status:
    return Status(Condition.PENDING, detail)


def ready(detail: str = "") -> Status:
    return Status(Condition.READY, detail)


def drifted(detail: str) -> Status:
    return Status(Condition.DRIFTED, detail)


def failed(error: RaysideError) -> Status:
    """Returns the status of a step of which nothing is known but the error."""
    return Status(Condition.MISSING, error.message, error)


class Step(Protocol):
    """A thing that must be true. What it may have besides is in the protocols that follow."""

    @property
    def name(self) -> str:
        """Returns its name, unique and stable: it is in `status --json`."""

    @property
    def title(self) -> str:
        """Returns its name for people: a noun phrase."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Returns the names of the steps that have to be ready first."""

    def check(self) -> Status:
        """Reads whether it is true, and changes nothing. Raises RaysideError where no apply can help."""


@runtime_checkable
class Appliable(Step, Protocol):
    """A step that can be made. The check of any other never says MISSING: it raises."""

    def apply(self, report: Report) -> None:
        """Makes it, or sets it going; run only when `check` says MISSING. May be killed anywhere."""


@runtime_checkable
class Patient(Protocol):
    """A step that may be pending for a while; any other gets no time."""

    @property
    def patience(self) -> float:
        """Returns how many seconds it may stay pending."""


@runtime_checkable
class Undoable(Protocol):
    """A step that `down` removes; what others made stays, as a cache, or as the machine's."""

    def undo(self, report: Report) -> str | None:
        """Removes what `apply` made, and nothing else; reports only where there is something.

        Returns what it has left, and why, where it has left anything.
        """


class Progress(Protocol):
    """The engine reports here what it does; the console is one."""

    def started(self, name: str, title: str) -> None: ...
    def note(self, name: str, text: str) -> None: ...
    def finished(self, name: str, title: str, outcome: str, detail: str) -> None: ...


# A check is repeated after this many seconds, each time half as long again, up to the limit:
# quick things are seen at once, slow things are not hammered.
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.05, 1.5, 0.5
# A program that does not answer while a step waits may be busy with coming up, for so many seconds.
_SILENCE, _LONGEST_SILENCE = (NotRunning, ClusterUnreachable), 15.0


def up(
    steps: Sequence[Step],
    progress: Progress,
    *,
    interrupt: Callable[[], None] = lambda: None,
    at_once: int | None = None,
    goes_on: bool = False,
) -> list[Timing]:
    """Makes every step ready, in the order of their needs, independent ones side by side.

    `at_once` bounds how many (default: all). After the first failure nothing new starts, unless it `goes_on`
    with what does not need what failed, and tells of each failure as it comes; what runs is waited for,
    everything stays as it is, and the first error is raised. On Ctrl-C `interrupt` is called (it has to end
    what blocks the steps, within 2 s) and KeyboardInterrupt is raised. Returns a timing for each step.
    """
    stop = threading.Event()
    origin = time.monotonic()

    def timed(step: Step) -> Timing:
        began = time.monotonic()
        changed = _make_ready(step, progress, stop, tells_why=goes_on)
        return Timing(step.name, began - origin, time.monotonic() - began, changed)

    return _each(
        *(steps, timed, stop, interrupt),
        order=lambda step: step.needs,
        at_once=at_once,
        goes_on=goes_on,
    )


def check(steps: Sequence[Step]) -> dict[str, Status]:
    """Returns every step's status now, all read side by side; an error that a check raises is kept in it."""
    statuses = dict(_each(steps, lambda step: (step.name, status_of(step))))
    return {step.name: statuses[step.name] for step in steps}


def status_of(step: Step) -> Status:
    """Returns the step's status now; an error that its check raises is kept in it."""
    try:
        return step.check()
    except RaysideError as error:
        return failed(error)


def down(steps: Sequence[Step], progress: Progress, *, at_once: int | None = None) -> None:
    """Undoes every step, those that need others first; tells of those that had something to undo."""

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
    """Returns that step's name, and the names of all that need it, directly or by way of others."""
    needs = {step.name: step.needs for step in steps}
    names = {name}
    for other in TopologicalSorter(needs).static_order():
        if names.intersection(needs.get(other, ())):
            names.add(other)
    return names


def _make_ready(step: Step, progress: Progress, stop: threading.Event, *, tells_why: bool) -> bool:
    """Checks, applies if missing, waits until ready; returns whether anything had to be done.

    What gives up is made once more, and not again. `tells_why`: progress has the error, too, for it is one of
    several, and only the first is raised.
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
    return applied


def _wait(step: Step, progress: Progress, stop: threading.Event) -> Status:
    """Returns the first status that is not pending.

    Raises NotReady when the step's patience is over, and what the check raises when it is silent to the end.
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


Seen = TypeVar("Seen")


def until(
    read: Callable[[], Seen],
    done: Callable[[Seen], bool],
    patience: float,
    stop: threading.Event | None = None,
) -> Seen:
    """Reads until `done`, at most `patience` seconds or until `stop` is set; returns the last thing read."""
    deadline = time.monotonic() + patience
    stop = stop or threading.Event()
    pause = _FIRST_PAUSE
    while not done(last := read()) and time.monotonic() < deadline and not stop.wait(pause):
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    return last


def _next(ended: queue.Queue[tuple[str, Any, BaseException | None]]) -> tuple[str, Any, BaseException | None]:
    """Returns what is put into the queue next; Ctrl-C is noticed meanwhile."""
    while True:
        # A signal that comes just before CPython blocks does not wake it: a wait without end could miss it.
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
    """Runs `work` for each step, in threads, each after the steps that `order` names; returns the results."""
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
                # They are daemons, so that a read that blocks cannot keep an interrupted command alive.
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
