"""Example job, submitted once, which then pauses at its breakpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.settings import ROOT
from rayside.ray import jobs, outcome
from rayside.ray.records import Job, WaitingTask
from rayside.ray.state import LAG, Dashboard
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.waiting import until

# Prefix of the submission ids of the example's jobs.
ID_PREFIX = "rayside-example"
# Its task with the breakpoint.
PAUSES_IN = "estimate"


def example() -> jobs.Submission:
    """Returns the job that `up` submits, and `submit` by default."""
    return jobs.prepare(
        working_dir=str(ROOT / "example" / "working_dir"),
        py_modules=[str(ROOT / "example" / "dependency")],
        entrypoint="python sample_code.py",
    )


def runs(dashboard: Dashboard) -> list[Job]:
    """Returns the example's jobs, oldest first."""
    return [job for job in dashboard.jobs() if job.submission_id.startswith(ID_PREFIX)]


def paused_in(dashboard: Dashboard) -> str:
    """Returns the task in which its newest run is paused, or ""; waits until Ray's table has it (`LAG`)."""
    newest = {job.job_id for job in runs(dashboard)[-1:]}

    def settled(tasks: list[WaitingTask]) -> bool:
        # Until then the worker's row has no task, or an earlier one.
        return all(task.task and (task.task == PAUSES_IN or task.job_id not in newest) for task in tasks)

    tasks = until(dashboard.waiting, settled, patience=LAG)
    names = [task.task for task in tasks if task.job_id in newest]
    # Another task means that the example was changed.
    return PAUSES_IN if PAUSES_IN in names else next(iter(names), "")


@dataclass(frozen=True)
class ExampleJob:
    """One of its tasks is paused; a run that ended without failure counts, too."""

    dashboard: Callable[[], Dashboard]
    submit: Callable[[jobs.Submission, str], None]
    needs: tuple[str, ...]
    name: str = "example"
    title: str = "example job"
    # Workers start and import in 3 to 5 s, measured; a loaded machine takes much longer.
    patience: float = 120.0

    def check(self) -> Status:
        dashboard = self.dashboard()
        submitted = runs(dashboard)
        if not submitted:
            return missing("not submitted yet")
        job = submitted[-1]
        if job.status == "FAILED":
            return missing(outcome.failure(job).message)
        if job.ended:
            return ready(f"{job.submission_id} ended, {job.status}")
        if any(task.job_id == job.job_id for task in dashboard.waiting()):
            # The task is not named: for a second it may be the worker's previous one (`LAG`).
            return ready(f"{job.submission_id} is paused; ./invokew debug stops in it")
        if job.job_id and dashboard.running_workers(job.job_id) & dashboard.workers_with_debugger():
            return ready(f"{job.submission_id} is being debugged")
        return pending(f"{job.submission_id} is {job.status}, no task is paused yet")

    def apply(self, report: Report) -> None:
        name = f"{ID_PREFIX}-{len(runs(self.dashboard())) + 1}"
        report(f"submitting {name}")
        self.submit(example(), name)
