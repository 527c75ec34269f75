"""Debuggees: description, discovery interface, child processes, pacing of retries to attach."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from rayside.dap.additions import title_of
from rayside.dap.client import Prove
from rayside.dap.framing import Message, as_json
from rayside.dap.paused_task import PausedTask
from rayside.worker.children import ATTRIBUTE


@dataclass(frozen=True)
class Debuggee:
    """Process whose debugpy listens on `host`:`port`; connect there only to debug (see `client`).

    `prove` makes the proof for a debuggee that asks for one.

    Unknown fields are empty: Ray's task rows lag its worker rows by about a second, and a worker has no job
    until its first task.
    """

    worker_id: str
    host: str
    port: int
    pid: int
    node_ip: str
    job_id: str = ""
    submission_id: str = ""
    user: str = ""  # the job's user as reported by the process (unauthenticated)
    task: str = ""
    since: str = ""  # ISO 8601
    driver: bool = False  # runs no task
    parent: str = ""  # the parent debuggee's worker_id; Ray does not list child processes
    # The moment, of `time.monotonic`, until which `task` is certain.
    as_of: float = float("inf")
    # Ray's id of the worker, if it became known after `worker_id`, which does not change.
    rays_id: str = ""
    prove: Prove | None = field(default=None, repr=False, compare=False)

    @property
    def title(self) -> str:
        """Returns the debuggee's name in an editor's list of threads."""
        return title_of(self.task, self.pid, self.node_ip)

    @property
    def shown_id(self) -> str:
        """Returns the id that is shown outside the relay."""
        return self.rays_id or self.worker_id

    @property
    def ray(self) -> Message:
        """Returns the task, process and job, as data (`ray`) of rows, stops and output."""
        return {
            "task": self.task,
            "workerId": self.shown_id,
            "nodeIp": self.node_ip,
            "pid": self.pid,
            "jobId": self.job_id,
            "submissionId": self.submission_id,
        }

    @cached_property
    def row(self) -> bytes:
        """Returns `name` and `ray` of the debuggee's rows, in JSON; cached, since many lists contain it."""
        return as_json({"name": self.title, "ray": self.ray})[1:-1]

    def paused(self) -> PausedTask:
        """Returns the debuggee's task as a PausedTask that the relay holds."""
        return PausedTask(
            *(self.shown_id, self.node_ip, self.pid, self.job_id, self.task, self.since),
            held=True,
            user=self.user,
        )


@dataclass(eq=False)
class Stop:
    """Stop of a thread.

    Attributes:
        body: the body of debugpy's `stopped` event.
        since: time of the stop, ISO 8601 in UTC.
        task: the task's name as reported by the thread; empty until then.
        task_id: Ray's id of the task, in hex, if a step may have led into it. `RemoteCalls` writes this.
        named: whether the thread was asked for its task. `Threads` writes this.
        reported: whether the stop was reported to the editor. `Threads` writes this.
    """

    body: Message
    since: str
    task: str = ""
    task_id: str = ""
    named: bool = False
    reported: bool = False


class Discovery(Protocol):
    """Finds debuggees."""

    async def debuggees(self) -> list[Debuggee]:
        """Returns the live processes with an open debugger port, attached or not.

        Raises:
            RaysideError: the cluster does not answer now; the caller retries.
        """

    async def waiting(self) -> list[PausedTask]:
        """Returns the tasks that wait for a debugger now; `held` is false. Raises as `debuggees`."""

    async def submission(self, job_id: str) -> str:
        """Returns the submission id for Ray's job id; "" if it has none. Raises as `debuggees`."""

    def user(self, job_id: str) -> str:
        """Returns the user that a job reports, by Ray's job id, from the last `submission`."""

    async def why_ended(self, debuggee: Debuggee) -> str:
        """Returns why a process has ended, in one sentence; "" if unknown.

        May wait some seconds for the reason. Raises as `debuggees`.
        """

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        """Returns the source folders of each package, by its name, such as `_ray_pkg_9e9d6e2076c1b321`.

        They are absolute paths on the submitter's machine, as of the last `debuggees`; the first is shown.
        The target of a symlink in a package has the symlink in its key: `_ray_pkg_9e9d6e2076c1b321/shared`.
        """


# Limit of attempts to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Seconds between attempts to attach to a debuggee that another debugger has, initially and at most; they
# double each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class AttachTries:
    """Counts failed attempts to attach, for one editor, and paces retries while another debugger attaches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: Counter[tuple[str, int]] = Counter()
        self._pauses: dict[tuple[str, int], float] = {}
        self._again: dict[tuple[str, int], float] = {}

    def may(self, debuggee: Debuggee) -> bool:
        """Returns whether an attempt to attach is allowed now."""
        key = _key(debuggee)
        return self._failures[key] < MOST_TRIES and self._clock() >= self._again.get(key, 0.0)

    def failed(self, debuggee: Debuggee) -> None:
        """Counts a failed attempt: the debuggee did not answer, or not as a debugger does."""
        self._failures[_key(debuggee)] += 1

    def give_up(self, debuggee: Debuggee) -> None:
        """Allows no further attempts."""
        self._failures[_key(debuggee)] = MOST_TRIES

    def taken(self, debuggee: Debuggee) -> None:
        """Records that another debugger has the debuggee: retries follow with growing pauses."""
        key = _key(debuggee)
        pause = self._pauses.get(key, _FIRST_PAUSE)
        self._again[key] = self._clock() + pause
        self._pauses[key] = min(2 * pause, _LONGEST_PAUSE)


def _key(debuggee: Debuggee) -> tuple[str, int]:
    return debuggee.worker_id, debuggee.port


def child_of(parent: Debuggee, child: Message) -> Debuggee:
    """Returns the Debuggee of a child process; `child` has `pid` and `port`, as its parent reported them."""
    pid = child["pid"]
    return replace(
        parent,
        worker_id=f"{parent.worker_id}.{pid}",
        rays_id=f"{parent.rays_id}.{pid}" if parent.rays_id else "",
        pid=pid,
        port=child["port"],
        task=f"child of {parent.task}" if parent.task else "child process",
        since="",
        parent=parent.worker_id,
    )


def let_child_go(child: Message) -> str:
    """Returns an expression with which a debuggee resumes a child that waits for a debugger."""
    return f"__import__('pydevd').get_global_debugger().{ATTRIBUTE}.go_on({child['pid']})"
