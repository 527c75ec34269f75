"""`debug`: the terminal debugger, and the scripted one, on the paused tasks of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import plan
from bootstrap.console import Console
from bootstrap.debug.session import Debuggee, JobState
from bootstrap.errors import InvalidArgument
from bootstrap.ray.paths import PathMap
from bootstrap.ray.state import Dashboard, Job
from bootstrap.settings import Settings
from bootstrap.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Sequence


class ClusterDiscovery:
    """The debuggees of one job, or of all; the job watched is that one, or the newest that runs."""

    def __init__(self, dashboard: Dashboard, job_id: str | None) -> None:
        self._dashboard = dashboard
        self._job_id = dashboard.job(job_id).submission_id if job_id else None
        self._paths = PathMap.of(dashboard.jobs())

    def paused(self) -> list[Debuggee]:
        """Raises NotRunning when Ray has gone."""
        found = self._dashboard.paused()
        if not found:
            return []
        jobs = self._dashboard.jobs()
        self._paths = PathMap.of(jobs)
        running = [job.job_id for job in jobs if not job.ended]
        watched = self._watched(jobs)
        debuggees = []
        for task in found:
            # Until Ray can name a task, it is of the only job that runs, if there is only one.
            job_id = task.job_id or (running[0] if len(running) == 1 else None)
            if self._job_id is None or (watched and job_id == watched.job_id):
                debuggees.append(Debuggee(**{**vars(task), "job_id": job_id or ""}))
        return debuggees

    def job(self) -> JobState | None:
        watched = self._watched(self._dashboard.jobs())
        return JobState(watched.submission_id, watched.status, watched.ended) if watched else None

    def local_path(self, remote: str) -> str | None:
        return self._paths.local(remote)

    def _watched(self, jobs: Sequence[Job]) -> Job | None:
        if self._job_id:
            return next((job for job in jobs if job.submission_id == self._job_id), None)
        running = [job for job in jobs if not job.ended]
        return [*jobs, *running][-1] if jobs else None


def debug(
    settings: Settings,
    console: Console,
    *,
    job: str | None,
    evaluate: Sequence[str],
    timeout: float,
) -> int:
    """Debugs what is paused: in the terminal, or scripted, with one document as its result; exit code."""
    if timeout <= 0:
        raise InvalidArgument(f"--timeout {timeout:g} leaves no time", hint="give it in seconds, above 0")
    target = plan.choose(settings, Shell())
    dashboard, connect = target.require(), target.connect()
    scripted = console.as_json or bool(evaluate)
    if not scripted:
        from bootstrap.debug import terminal

        history = target.folder / "debug-history"
        discovery = ClusterDiscovery(dashboard, job)
        return terminal.run(discovery, console, timeout=timeout, history=history, connect=connect)
    from bootstrap.debug import scripted as script

    if job is None and dashboard.jobs():
        # One job, from the first stop to its end.
        watched = ClusterDiscovery(dashboard, None).job()
        job = watched.submission_id if watched else None
    document = script.run_sync(
        ClusterDiscovery(dashboard, job),
        evaluate=list(evaluate),
        timeout=timeout,
        on_event=console.event,
        connect=connect,
    )
    console.document(document)
    return 0
