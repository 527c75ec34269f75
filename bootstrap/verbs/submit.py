"""Verb `submit`: submits the example, a job, or a user's own RayJob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.errors import NotARayJob
from bootstrap.kube.rayjob import document
from bootstrap.settings import Settings
from bootstrap.steps.example_job import example
from bootstrap.targets import choice
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.plain import line
from rayside.ray import jobs
from rayside.ray.records import Job
from rayside.system.shell import Shell
from rayside.verbs import submitting


@dataclass(frozen=True)
class Request(submitting.Request):
    """The options of `submit`; without any it is the example. `job`: file of the user's own RayJob."""

    job: str | None = None

    @property
    def names_program(self) -> tuple[str, ...]:
        return (*super().names_program, *(("--job",) if self.job else ()))

    def completed(self, rayjob: Mapping[str, Any] | None) -> jobs.Submission:
        """Returns the checked job; the RayJob provides missing options. Raises as `jobs.prepare`."""
        named = replace(self, job=None, debug=None) != Request()
        spec = rayjob["spec"] if rayjob else {}
        if not named and not spec.get("entrypoint"):
            job = replace(example(), debug=self.debug)
        else:
            own = document.runtime_env(rayjob) if rayjob else None
            job = self.prepare(entrypoint=spec.get("entrypoint"), of_rayjob=own)
        if rayjob is None:
            return job
        if self.debug and not document.has_relay(rayjob):
            raise NotARayJob(
                f"the RayJob in {self.job} makes a Ray cluster without a relay for --debug",
                hint="example/ray-job.interactive-mode.yaml has the container `relay`, and its volumes",
            )
        metadata = {**(spec.get("metadata") or {}), **job.metadata}
        return replace(job, reserved=document.reserved(rayjob), metadata=metadata)


def submit(settings: Settings, console: Console, request: Request, *, wait: bool) -> None:
    """Submits a job; with `wait`, shows its output until it ends. Raises JobFailed, Interrupted."""
    request = replace(request, debug=submitting.masking(request.debug, settings))
    target = choice.existing(settings, Shell())
    file, kubernetes = Path(request.job or ""), target.kubernetes
    rayjob = document.load(file, target.instance.namespace) if request.job else None
    submission = request.completed(rayjob)
    if rayjob and kubernetes is None:
        raise InvalidArgument("--job needs a Kubernetes cluster", hint="./invokew up --target kind makes one")
    if rayjob is None or kubernetes is None:
        submitting.submit(target.access, console, submission, wait=wait)
        return
    target.access.require()
    name, own = jobs.new_submission_id(submission.entrypoint), rayjob["metadata"]["name"]
    with console.progress(), console.work(name, f"submission of {line(submission.entrypoint)}"):
        beside = document.beside(file)

        def apply() -> None:
            for applied in kubernetes.apply(beside) if beside else ():
                console.event(f"{applied}; it stays when the job has ended")

        report = partial(console.note, name)
        dashboard, cluster = kubernetes.submit_rayjob(rayjob, submission, name, report, apply)

    def gone() -> Job | None:
        # With shutdownAfterJobFinishes KubeRay removes the cluster after the job's end.
        there = kubernetes.kube.ray("rayjobs", own)
        return document.ended(there) if there else None

    submitting.show(dashboard, name, console, submission, cluster=cluster, wait=wait, gone=gone)
    if wait:
        return
    if not document.has_relay(rayjob):
        kube = kubernetes.kube
        options = f"--context {kube.context} --namespace {kube.namespace} --ray-cluster {own}"
        console.result(f"Next: ./invokew up --name {own} {options} makes a relay for it, which it lacks")
    else:
        console.result(submitting.next_of(submission, name))
