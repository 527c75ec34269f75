"""Events of a session: stops, ended threads, the end of the job or the connection, messages to the user."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rayside.dap.additions import (
    CALLED_BY,
    DEBUGGER_LEFT,
    FORWARD_ENDED,
    RELAY_GONE,
    TAKEN_OVER,
    WAY_LOST,
    title_of,
)
from rayside.errors import ConnectionLost, DebuggerBusy, DebuggerGone, NotRunning, RaysideError
from rayside.plain import line, printed

# Limit in characters of a task's name, which is part of a line.
_LONGEST_NAME = 200
# Limit in characters of an exception's message, in the same line.
_LONGEST_MESSAGE = 400
# pydevd's message for an exception without one.
_NO_MESSAGE = "exception: no description"


@dataclass(frozen=True, eq=False)
class Stop:
    """Stop of one thread of a task.

    Attributes:
        reason: DAP's reason: breakpoint, step, exception, pause.
        text: the name of an exception.
        message: the message of an exception, if it has one.
        called_by: the thread whose step into `.remote()` led here; 0 for none.
        task: the name of the task; empty if the relay does not know it.
        title: the task's name in an editor's list of threads.
        job: the job's submission id, or else Ray's id; empty if the relay does not know it.
    """

    thread_id: int
    reason: str
    text: str
    worker_id: str
    task: str
    title: str
    job: str = ""
    message: str = ""
    called_by: int = 0

    @property
    def why(self) -> str:
        """Returns the reason in one line, such as `exception: KeyError: 'k'`."""
        return ": ".join(part for part in (self.reason, self.text, self.message) if part)


@dataclass(frozen=True)
class Ended:
    """End of a thread that had stopped; `was_stopped`: whether it was still stopped."""

    stop: Stop
    was_stopped: bool


@dataclass(frozen=True)
class JobState:
    """State of the watched job; a program that was not submitted has no `submission_id`."""

    submission_id: str
    status: str
    ended: bool
    edited: str = ""  # a line that lists its edited files, for people

    @property
    def title(self) -> str:
        return f"job {self.submission_id}" if self.submission_id else "the program"

    @property
    def next(self) -> str:
        """Returns the next command for the user after its end; empty for a program that was not submitted."""
        if not self.submission_id:
            return ""
        if self.status == "SUCCEEDED":
            return "./invokew submit --help says how to run your own program"
        return f"./invokew logs --job {self.submission_id} shows its output"


@dataclass(frozen=True)
class JobEnded:
    job: JobState


@dataclass(frozen=True)
class Notice:
    """Message for the user, from the relay or about a breakpoint."""

    text: str


@dataclass(frozen=True)
class Lost:
    """Last event of a session: the relay or Ray is gone, another editor took over, or a defect."""

    error: Exception


SessionEvent = Stop | Ended | JobEnded | Notice | Lost


def stop_of(body: Mapping[str, Any]) -> Stop:
    """Parses the body of the relay's `stopped` event."""
    ray: Mapping[str, Any] = body.get("ray") or {}
    text, message = (str(body.get(key) or "") for key in ("text", "description"))
    if text.startswith("RayTaskError"):  # Its message is the task's whole traceback, with colors.
        message = "".join(printed(message).strip().splitlines()[-1:])
    task = line(str(ray.get("task", "")), _LONGEST_NAME)
    return Stop(
        thread_id=body.get("threadId", 0),
        reason=line(str(body.get("reason", "")), _LONGEST_NAME),
        text=line(text, _LONGEST_NAME),
        message=line(message, _LONGEST_MESSAGE) if message != _NO_MESSAGE else "",
        worker_id=str(ray.get("workerId", "")),
        task=task,
        title=title_of(task, int(ray.get("pid", 0)), str(ray.get("nodeIp", ""))),
        job=line(str(ray.get("submissionId", "")), _LONGEST_NAME) or str(ray.get("jobId", "")),
        called_by=int(ray.get(CALLED_BY) or 0),
    )


def stop_after(stepped: Stop, stops: Iterable[Stop], before: Collection[Stop]) -> Stop | None:
    """Returns the stop at which a step has ended, if any: in the task that it went into, or in its own.

    Args:
        stepped: the stop before the step.
        stops: the stops now.
        before: all stops before the step.
    """
    ended = [stop for stop in stops if stop not in before]
    into = [stop for stop in ended if stop.called_by == stepped.thread_id]
    return next(iter([*into, *(stop for stop in ended if stop.thread_id == stepped.thread_id)]), None)


_WAY = {WAY_LOST: "it was looked for in vain", FORWARD_ENDED: "the forward to it has ended"}


def error_of(reason: str | None) -> RaysideError:
    """Returns the error for the reason in a `terminated` event."""
    if reason in _WAY:
        hint = "./invokew status shows what is there; then ./invokew debug attaches again"
        return ConnectionLost(f"the connection to the cluster is lost: {_WAY[reason]}", hint=hint)
    if reason == RELAY_GONE:
        return relay_gone("the cluster is there without it")
    if reason == TAKEN_OVER:
        hint = "what was stopped is stopped there now; ./invokew debug takes it back"
        return DebuggerGone("another debugger has taken over", hint=hint)
    if reason == DEBUGGER_LEFT:
        hint = "./invokew debug attaches in its place"
        return DebuggerGone("the debugger that was watched has left", hint=hint)
    return relay_gone("it was ended")


def relay_gone(why: str) -> NotRunning:
    return NotRunning(f"the debug relay has gone: {why}", hint="./invokew up brings it up again")


def busy(ray: Mapping[str, Any]) -> DebuggerBusy:
    """Returns the error of an `attach` refused because of another debugger; `ray` is the relay's answer."""
    who = line(str(ray.get("client") or "another debugger"))
    return DebuggerBusy(
        f"{who} has debugged these tasks since {line(str(ray.get('since')))}",
        hint="./invokew debug --job takes another job; end that one, or answer `y` to take over",
    )
