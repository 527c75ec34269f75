"""Describes what can be debugged."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bootstrap.dap.additions import title_of
from bootstrap.dap.client import Prove
from bootstrap.dap.framing import Message, as_json
from bootstrap.dap.paused import PausedTask


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
