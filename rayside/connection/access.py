"""Access to Ray's dashboard on a recorded cluster, for the debugger's commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rayside.connection.debugpy_packages import packages_for
from rayside.connection.instance import Instance
from rayside.ray import jobs
from rayside.ray.state import Dashboard

if TYPE_CHECKING:
    from rayside.steps.existing_ray import RecordedRay


class Access(ABC):
    """Base class of the access to Ray on one cluster."""

    @property
    @abstractmethod
    def identity(self) -> Instance:
        """Returns the cluster's identity."""

    @property
    @abstractmethod
    def cluster(self) -> str:
        """Returns the cluster's name in the output of `submit --json`."""

    @abstractmethod
    def dashboard(self) -> Dashboard:
        """Returns a client of Ray's dashboard, which may not answer. Raises NotRunning without a token."""

    def require(self) -> Dashboard:
        """Returns a client of Ray's dashboard that has answered. Raises NotRunning, RayDied."""
        dashboard = self.dashboard()
        dashboard.version()
        return dashboard

    def completed(self, job: jobs.Submission) -> jobs.Submission:
        """Returns the job with additions that this Ray cluster requires. Raises the errors of its steps."""
        return job

    def submit(self, job: jobs.Submission, submission_id: str) -> None:
        """Submits a job, completed. Raises SubmissionFailed and the other errors of `ray.jobs.submit`."""
        jobs.submit(self.dashboard(), self.completed(job), submission_id)

    def log(self) -> str:
        """Returns the log of Ray's head. Raises NotRunning."""
        return self.require().head_log()


@dataclass(frozen=True)
class RecordedAccess(Access):
    """Access to a cluster through its recorded files, independent of the target that wrote them."""

    record: Instance

    @property
    def identity(self) -> Instance:
        return self.record

    @property
    def cluster(self) -> str:
        if self.record.address:
            return self.record.place
        return self.record.ray_cluster if self.record.context else self.record.target

    def dashboard(self) -> Dashboard:
        return self._ray.dashboard()

    def completed(self, job: jobs.Submission) -> jobs.Submission:
        return of_user(job, self.record, self._ray.known.get("python", "")) if self.record.address else job

    @property
    def _ray(self) -> RecordedRay:
        # Imported late: targets have their own Access, and don't need these steps.
        from rayside.steps.existing_ray import RecordedRay

        return RecordedRay(self.record)


def of_user(job: jobs.Submission, instance: Instance, python: str) -> jobs.Submission:
    """Returns a job for an existing Ray cluster, with its user, and with debugger packages for --debug.

    `python` is the Python version of the workers, as in 3.11.7.
    """
    job = replace(job, user=instance.user)
    if not job.debug:
        return job
    packages = packages_for(python, instance.folder)
    return replace(job, debug=replace(job.debug, packages=packages))
