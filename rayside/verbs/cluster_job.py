"""Job that a debugger watches, and the options with which it attaches to the relay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rayside.client.commands import Place
from rayside.client.events import JobState
from rayside.client.session import AttachOptions
from rayside.connection.instance import Instance
from rayside.dap.client import Client
from rayside.dap.group_commands import drawn_edits
from rayside.plain import line
from rayside.ray.metadata import EDITS
from rayside.ray.records import Job, jobs_for
from rayside.ray.state import Dashboard


@dataclass(frozen=True)
class ClusterJob:
    """Watched job: the job `submission_id`, or the newest one that `user` sees, running ones first."""

    dashboard: Dashboard
    submission_id: str | None
    user: str = ""

    def job(self) -> JobState | None:
        job = self.submitted()
        return JobState(job.submission_id, job.status, job.ended, edited(job)) if job else None

    def submitted(self) -> Job | None:
        jobs = self.dashboard.jobs()
        if self.submission_id:
            return next((job for job in jobs if job.submission_id == self.submission_id), None)
        jobs = jobs_for(self.user, jobs)
        running = [job for job in jobs if not job.ended]
        return [*jobs, *running][-1] if jobs else None


def edits_of(job: Job) -> dict[str, str]:
    """Returns the edited files in a job's (unauthenticated) metadata, with their SHA-256."""
    with suppress(ValueError, AttributeError, RecursionError):
        listed = json.loads(job.metadata.get(EDITS) or "{}")
        return {line(str(path)): line(str(sha256)) for path, sha256 in listed.items()}
    return {}


def edited(job: Job) -> str:
    """Returns a line for people about a job's edited files; empty for none."""
    return drawn_edits(edits_of(job))


def attach_options(
    instance: Instance,
    job: str | None,
    breakpoints: Sequence[Place],
    *,
    everyone: bool = False,
    children: bool = True,
    exceptions: bool,
    take_over: str,
) -> AttachOptions:
    """Returns the options to attach to a cluster's relay; `job` is a submission id, or None for all jobs.

    `everyone` includes the jobs of other users, `children` the processes that tasks start.
    """
    return AttachOptions(
        connect=partial(Client.connect, "127.0.0.1", instance.ports.relay),
        token=instance.token_file.read_text().strip(),
        job=job,
        everyone=everyone,
        breakpoints=breakpoints,
        exceptions=exceptions,
        children=children,
        take_over=take_over,
    )
