"""Debuggees: their description, their discovery, the processes they start, when to attach again."""

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
    """Describes a process whose debugpy listens on `host`:`port`; connect there only to debug (see `client`).

    `prove` is for a debuggee that asks for a proof.

    What discovery doesn't know is empty: Ray's task rows lag behind its worker rows by about a second,
    and a worker has no job until its first task.
    """

    worker_id: str
    host: str
    port: int
    pid: int
    node_ip: str
    job_id: str = ""
    submission_id: str = ""
    user: str = ""  # the name of the user whose job it says it is
    task: str = ""
    since: str = ""  # ISO 8601
    driver: bool = False  # runs no task
    parent: str = ""  # the worker_id of the debuggee that has started it; Ray does not list such a one
    # The moment, of `time.monotonic`, up to which Ray's word on the task surely holds.
    as_of: float = float("inf")
    # Ray's id of the worker, where that came to be known after `worker_id`, which stays.
    rays_id: str = ""
    prove: Prove | None = field(default=None, repr=False, compare=False)

    @property
    def title(self) -> str:
        """Returns the name of its row in an editor's list of threads."""
        return title_of(self.task, self.pid, self.node_ip)

    @property
    def shown_id(self) -> str:
        """Returns the id by which others know it, too."""
        return self.rays_id or self.worker_id

    @property
    def ray(self) -> Message:
        """Returns what programs are told of whose row, stop or line something is."""
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
        """Returns `name` and `ray` of its rows in an editor's list, in JSON, made once for many lists."""
        return as_json({"name": self.title, "ray": self.ray})[1:-1]

    def paused(self) -> PausedTask:
        """Returns the description of its task, which the relay holds."""
        return PausedTask(
            *(self.shown_id, self.node_ip, self.pid, self.job_id, self.task, self.since),
            held=True,
            user=self.user,
        )


@dataclass(eq=False)
class Stop:
    """Describes where a thread stands still.

    Attributes:
        body: that of debugpy's `stopped` event.
        since: the moment, ISO 8601 in UTC.
        task: the name of its task, as the thread itself gave it; empty while it did not.
        task_id: Ray's id of its task, in hex, where that may be stepped into. `RemoteCalls` writes this.
        named: whether it was asked for its task. `Threads` writes this.
        reported: whether the editor knows of it. `Threads` writes this.
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
            RaysideError: the cluster does not answer now; it is asked again.
        """

    async def waiting(self) -> list[PausedTask]:
        """Returns the tasks that wait for a debugger now; none of them is `held`. Raises as `debuggees`."""

    async def submission(self, job_id: str) -> str:
        """Returns the submission id of Ray's job id; "" where it has none. Raises as `debuggees`."""

    def user(self, job_id: str) -> str:
        """Returns the name of the user whose job it says it is, by Ray's job id, as `submission` last saw."""

    async def why_ended(self, debuggee: Debuggee) -> str:
        """Returns what is known of the end of a process that has ended: one sentence, "" where nothing is.

        May wait some seconds for it. Raises as `debuggees`.
        """

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        """Returns the folders that a package was packed from, by its name, as in `_ray_pkg_9e9d6e2076c1b321`.

        They are of the submitter's machine, absolute, and as of the last `debuggees`; the first is shown.
        What a symlink in a package leads to has the symlink in its key: `_ray_pkg_9e9d6e2076c1b321/shared`.
        """


# The most tries to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Seconds before a debuggee is tried again that somebody else debugs, the first time and at most; each pause
# is twice the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class AttachTries:
    """Counts failed tries to attach, for one editor, and paces those of debuggees that others debug."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: Counter[tuple[str, int]] = Counter()
        self._pauses: dict[tuple[str, int], float] = {}
        self._again: dict[tuple[str, int], float] = {}

    def may(self, debuggee: Debuggee) -> bool:
        """Returns whether it may be tried now."""
        key = _key(debuggee)
        return self._failures[key] < MOST_TRIES and self._clock() >= self._again.get(key, 0.0)

    def failed(self, debuggee: Debuggee) -> None:
        """Notes that it did not answer, or not as a debugger does."""
        self._failures[_key(debuggee)] += 1

    def give_up(self, debuggee: Debuggee) -> None:
        """Notes that it is tried no more."""
        self._failures[_key(debuggee)] = MOST_TRIES

    def taken(self, debuggee: Debuggee) -> None:
        """Notes that somebody else debugs it: it is tried again, ever more seldom."""
        key = _key(debuggee)
        pause = self._pauses.get(key, _FIRST_PAUSE)
        self._again[key] = self._clock() + pause
        self._pauses[key] = min(2 * pause, _LONGEST_PAUSE)


def _key(debuggee: Debuggee) -> tuple[str, int]:
    return debuggee.worker_id, debuggee.port


def child_of(parent: Debuggee, child: Message) -> Debuggee:
    """Returns the description of a child; `child` has its `pid` and its `port`, as the parent told them."""
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
    """Returns what a debuggee evaluates to have a child go on, which waits to be attached to."""
    return f"__import__('pydevd').get_global_debugger().{ATTRIBUTE}.go_on({child['pid']})"
