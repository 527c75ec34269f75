"""Finds the jobs of labs that a learner has left running, and ends them.

A task that waits for a debugger keeps its processor, and a small cluster has no other for the next lab.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from bootstrap import step
from bootstrap.labs.copies import FOLDER
from bootstrap.labs.lesson import lessons
from rayside.ray.metadata import WORKING_DIR
from rayside.ray.records import Job
from rayside.ray.state import Dashboard

# Ray gives a driver 3 s to end by itself; a loaded machine takes longer for the rest.
_PATIENCE = 60.0


def running(dashboard: Dashboard, home: Path = FOLDER) -> dict[str, str]:
    """Returns the lab of each running job from a copy of a lab in `home`, by the job's submission id.

    Raises NotRunning.
    """
    names = {lesson.name for lesson in lessons()}
    labs = {job.submission_id: _lab(job, home) for job in dashboard.jobs() if not job.ended}
    return {submission_id: lab for submission_id, lab in labs.items() if lab in names}


def end(dashboard: Dashboard, submission_ids: Collection[str]) -> None:
    """Stops these jobs, and waits until they have ended, for a minute at most. Raises NotRunning."""
    for submission_id in submission_ids:
        dashboard.stop(submission_id)
    step.until(
        lambda: [job for job in dashboard.jobs() if job.submission_id in submission_ids and not job.ended],
        lambda still_running: not still_running,
        _PATIENCE,
    )


def _lab(job: Job, home: Path) -> str:
    """Returns the name of the folder in `home` that a job was submitted from; empty where it was not.

    Where jobs have users, several people submit them, and none is the learner's.
    """
    folder = Path(job.metadata.get(WORKING_DIR) or "")
    is_below = folder != home and folder.is_relative_to(home) and ".." not in folder.parts
    # A folder below a copy is the lab's too: lab 18 submits one.
    return folder.relative_to(home).parts[0] if is_below and not job.user else ""
