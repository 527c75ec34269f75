"""Verb `logs`, and the table of jobs that `status` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rayside.connection.access import Access
from rayside.console import Console
from rayside.errors import INTERRUPTED, JobNotFound
from rayside.ray.records import Job, jobs_for


def logs(access: Access, console: Console, *, job: str | None, follow: bool, ray: bool) -> int:
    """Prints a job's output (default: the newest job's), or the log of Ray's head; returns the exit code.

    Ctrl-C ends a followed log without a message.
    """
    if ray:
        console.output(access.log().rstrip("\n") + "\n")
        return 0
    from rayside.verbs.submitting import followed

    dashboard = access.require()
    jobs = jobs_for(access.identity.user, dashboard.jobs())
    if not job and not jobs:
        raise JobNotFound("no job was submitted yet", hint="./invokew submit --help says how")
    chosen = dashboard.job(job) if job else jobs[-1]
    name = chosen.submission_id
    try:
        for piece in followed(dashboard, name, console.event) if follow else [dashboard.output(name)]:
            console.output(piece)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def show_jobs(console: Console, jobs: Sequence[Job], user: str, *, everyone: bool) -> None:
    """Shows the jobs that `user` sees, with `everyone` the jobs of all users."""
    shown = jobs if everyone else jobs_for(user, jobs)
    whose = ("user",) if user else ()
    if shown:
        console.result()
        console.table(
            ("job", "status", *whose, "program"),
            [(job.submission_id, job.status, *(job.user for _ in whose), job.entrypoint) for job in shown],
        )
    if hidden := len(jobs) - len(shown):
        console.result(f"\nJobs of others: {hidden} (--everyone lists them)")
