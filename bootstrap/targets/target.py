"""Defines what a target gives: its steps, what can be prepared, access to Ray, and its Kubernetes part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from bootstrap.instance import Instance
from bootstrap.kube.api import Kube
from bootstrap.ray.jobs import Submission
from bootstrap.ray.state import Dashboard
from bootstrap.settings import Settings
from bootstrap.step import Report, Step
from bootstrap.steps.example_job import ExampleJob


class Access(Protocol):
    """Access to the Ray of a target, once its steps are ready."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Returns the names of the steps after which jobs can be submitted."""

    @property
    def cluster(self) -> str:
        """Returns the name by which `submit --json` calls the cluster."""

    def urls(self) -> dict[str, str | None]:
        """Returns the addresses of `workspace`, `dashboard` and `relay`; None for what it does without."""

    def dashboard(self) -> Dashboard:
        """Returns a client of Ray's dashboard, which may not answer. Raises NotRunning without a token."""

    def require(self) -> Dashboard:
        """Returns a client of Ray's dashboard, which answers. Raises NotRunning, RayDied."""

    def completed(self, job: Submission) -> Submission:
        """Returns the job with what this Ray lacks for it. Raises what its steps raise."""

    def submit(self, job: Submission, submission_id: str) -> None:
        """Submits a job, completed. Raises SubmissionFailed and what else `ray.jobs.submit` raises."""

    @property
    def asks_for_token(self) -> bool:
        """Returns whether Ray asks for the token in the instance's file; the relay always does."""

    def log(self) -> str:
        """Returns what Ray's head has printed. Raises NotRunning."""

    def workspace_password(self) -> str | None:
        """Returns the workspace's password; None where there is none."""

    def open_folder(self) -> str:
        """Returns the newest job's working_dir, as the workspace sees it. Raises as `require`."""


class Kubernetes(Protocol):
    """What only a target on Kubernetes can do."""

    @property
    def kube(self) -> Kube:
        """Returns the Kubernetes API, in the cluster's namespace."""

    def use_context(self) -> None:
        """Makes its context kubectl's current one."""

    def kubectl(self, *arguments: str) -> list[str]:
        """Returns the command that runs kubectl with these arguments, in the cluster's namespace."""

    def apply(self, documents: Sequence[Mapping[str, Any]]) -> list[str]:
        """Applies a user's objects, as `kubectl apply` does; returns its lines. Raises SubmissionFailed."""

    def submit_rayjob(
        self,
        rayjob: dict[str, Any],
        job: Submission,
        submission_id: str,
        report: Report,
        before: Callable[[], None],
    ) -> tuple[Dashboard, str]:
        """Submits a user's own RayJob; returns the dashboard, and the name, of the cluster that it runs on.

        `before` is called when nothing speaks against making what the RayJob needs.
        If it makes its own cluster, the addresses of the target lead there from then on.
        """

    def forwarded(self, selector: str, port: int) -> AbstractContextManager[int]:
        """Yields a free port of this machine that leads, meanwhile, to that of the pod with these labels."""

    def lead_to(self, ray_cluster: str) -> None:
        """Has the addresses of the target lead to a RayCluster of its namespace that asks for a token.

        `up` leads them back. Raises NotRunning.
        """


class Target(Protocol):
    """One instance on one kind of place where Ray runs."""

    @property
    def settings(self) -> Settings:
        """Returns the settings that it was chosen with."""

    @property
    def instance(self) -> Instance:
        """Returns the cluster that is meant."""

    @property
    def reason(self) -> str:
        """Returns why it is this target, for people."""

    @property
    def brings_example(self) -> bool:
        """Returns whether `up` submits the example: not to a Ray that others made."""

    @property
    def access(self) -> Access:
        """Returns the access to its Ray."""

    @property
    def kubernetes(self) -> Kubernetes | None:
        """Returns its Kubernetes part; None where it has none."""

    @property
    def wheels(self) -> Path | None:
        """Returns the folder with the packages for Python that it needs; None where they are the index's."""

    def steps(self) -> list[Step]:
        """Returns the steps that make the cluster, in the order in which people read them."""

    def cacheable(self, *, engine: bool) -> list[Step]:
        """Returns the steps that can be made ready ahead without starting anything.

        `engine` says whether a Docker engine answers; what needs one is among the steps all the same.
        """

    def machine(self) -> list[Step]:
        """Returns the steps of this machine that `doctor` lists, and with `--fix` makes ready."""

    def present(self) -> bool:
        """Returns whether anything of the cluster is there: then it holds its ports, and its memory."""


def with_example(target: Target) -> list[Step]:
    """Returns the steps that make the cluster, with the example paused on it."""
    access = target.access
    return [*target.steps(), ExampleJob(access.dashboard, access.submit, needs=access.needs)]
