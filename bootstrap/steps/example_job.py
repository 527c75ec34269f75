"""The example job: submitted once, then paused at its breakpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.ray import jobs
from bootstrap.ray.state import Dashboard, Job
from bootstrap.settings import ROOT
from bootstrap.step import Report, Status, missing, pending, ready

# How the example is told from the user's own jobs.
ID_PREFIX = "rayside-example"
# Its task with the breakpoint.
PAUSES_IN = "estimate"


def example() -> jobs.Submission:
    """The job that `up` submits, and `submit` where it is told nothing else."""
    return jobs.prepare(
        working_dir=str(ROOT / "example" / "working_dir"),
        py_modules=[str(ROOT / "example" / "dependency")],
        entrypoint="python sample_code.py",
    )


@dataclass(frozen=True)
class ExampleJob:
    """One of its tasks is paused; a run that was debugged to its end counts too."""

    dashboard: Callable[[], Dashboard]
    submit: Callable[[jobs.Submission, str], None]
    needs: tuple[str, ...]
    name: str = "example"
    title: str = "example job"
    # Workers start and import in 3 to 5 s, measured; a loaded machine takes much longer.
    patience: float = 120.0

    def check(self) -> Status:
        dashboard = self.dashboard()
        runs = self._runs(dashboard)
        if not runs:
            return missing("not submitted yet")
        job = runs[-1]
        if job.status == "FAILED":
            return missing(jobs.failure(job).message)
        if job.ended:
            return ready(f"{job.submission_id} ended, {job.status}")
        if any(task.job_id == job.job_id for task in dashboard.paused()):
            # Not in which task: for a second that may be the one that its worker ran before (`LAG`).
            return ready(f"{job.submission_id} is paused")
        if job.job_id and dashboard.running_workers(job.job_id) & dashboard.workers_with_debugger():
            return ready(f"{job.submission_id} is being debugged")
        return pending(f"{job.submission_id} is {job.status}, no task is paused yet")

    def apply(self, report: Report) -> None:
        name = f"{ID_PREFIX}-{len(self._runs(self.dashboard())) + 1}"
        report(f"submitting {name}")
        self.submit(example(), name)

    def undo(self, report: Report) -> None:
        """It goes with its cluster."""

    @staticmethod
    def _runs(dashboard: Dashboard) -> list[Job]:
        return [job for job in dashboard.jobs() if job.submission_id.startswith(ID_PREFIX)]
