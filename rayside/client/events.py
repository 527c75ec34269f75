"""Describes what happens in a session: stops, their ends, the end of the job, what the user has to know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rayside.dap.additions import CALLED_BY, title_of
from rayside.plain import line

# The most characters of a task's name, which is part of one line.
_LONGEST_NAME = 200
# The most characters of an exception's message, in the same line.
_LONGEST_MESSAGE = 400
# pydevd has this message where an exception has none.
_NO_MESSAGE = "exception: no description"


@dataclass(frozen=True, eq=False)
class Stop:
    """Describes one stopped thread of one task.

    Attributes:
        reason: DAP's reason: breakpoint, step, exception, pause.
        text: the name of an exception.
        message: the message of an exception, if it has one.
        called_by: the thread whose step into `.remote()` has led here; 0 for none.
        task: the name of the task; empty where the relay does not know it.
        title: as editors show the task in their list of threads.
        job: its job, by the submission id where it has one; empty where the relay does not know it.
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
    """A thread which had stopped is gone: with its worker, unless it was not stopped any more."""

    stop: Stop
    was_stopped: bool


@dataclass(frozen=True)
class JobState:
    """Describes the job that is watched."""

    submission_id: str
    status: str
    ended: bool


@dataclass(frozen=True)
class JobEnded:
    job: JobState


@dataclass(frozen=True)
class Notice:
    """Something that the user has to know, from the relay or about a breakpoint."""

    text: str


@dataclass(frozen=True)
class Lost:
    """No event will follow: the relay or Ray is gone, another editor took over, or a defect."""

    error: Exception


SessionEvent = Stop | Ended | JobEnded | Notice | Lost


def stop_of(body: Mapping[str, Any]) -> Stop:
    """Returns what the body of the relay's `stopped` event says."""
    ray: Mapping[str, Any] = body.get("ray") or {}
    message = str(body.get("description") or "")
    task = line(str(ray.get("task", "")), _LONGEST_NAME)
    return Stop(
        thread_id=body.get("threadId", 0),
        reason=line(str(body.get("reason", "")), _LONGEST_NAME),
        text=line(str(body.get("text") or ""), _LONGEST_NAME),
        message=line(message, _LONGEST_MESSAGE) if message != _NO_MESSAGE else "",
        worker_id=str(ray.get("workerId", "")),
        task=task,
        title=title_of(task, int(ray.get("pid", 0)), str(ray.get("nodeIp", ""))),
        job=line(str(ray.get("submissionId", "")), _LONGEST_NAME) or str(ray.get("jobId", "")),
        called_by=int(ray.get(CALLED_BY) or 0),
    )


def stop_after(stepped: Stop, stops: Iterable[Stop], before: Collection[Stop]) -> Stop | None:
    """Returns the stop in which a step has ended, if any: in the task that it went into, or in its own.

    Args:
        stepped: the stop before the step.
        stops: the stops now.
        before: those of before the step.
    """
    ended = [stop for stop in stops if stop not in before]
    into = [stop for stop in ended if stop.called_by == stepped.thread_id]
    return next(iter([*into, *(stop for stop in ended if stop.thread_id == stepped.thread_id)]), None)
