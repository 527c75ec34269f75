"""Verb `submit`: submits a job, or prints what another program needs for its tasks to be debugged."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap import step
from bootstrap.errors import NotARayJob
from bootstrap.kube.rayjob import document
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.step import Report
from bootstrap.steps.example_job import example
from bootstrap.steps.own_job import package
from bootstrap.targets import choice
from rayside import yaml_file
from rayside.console import Console
from rayside.errors import Interrupted, InvalidArgument, NotRunning
from rayside.plain import line
from rayside.ray import jobs, outcome
from rayside.ray.debug import Debug
from rayside.ray.metadata import USER_VARIABLE
from rayside.ray.state import LAG, Dashboard

# A worker finds its setup hook here (`load_and_execute_setup_hook` in ray/_private/runtime_env/setup_hook.py,
# 2.60). In the `runtime_env` of an actor, as Serve's replicas are, the field for it has no effect.
_HOOK = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


@dataclass(frozen=True)
class Request:
    """The options of `submit`; none at all mean the example."""

    working_dir: str | None = None
    py_modules: tuple[str, ...] = ()
    entrypoint: str | None = None
    runtime_env: str | None = None
    # It is a RayJob of the user's own.
    job: str | None = None
    debug: Debug | None = None

    def prepare(self, rayjob: Mapping[str, Any] | None) -> jobs.Submission:
        """Returns the checked job; the RayJob has what options lack. Raises what `jobs.prepare` raises."""
        named = replace(self, job=None, debug=None) != Request()
        spec = rayjob["spec"] if rayjob else {}
        if not named and not spec.get("entrypoint"):
            job = replace(example(), debug=self.debug)
        else:
            job = jobs.prepare(
                working_dir=self.working_dir,
                py_modules=self.py_modules,
                entrypoint=self.entrypoint or spec.get("entrypoint"),
                runtime_env=Path(self.runtime_env) if self.runtime_env else None,
                of_rayjob=document.runtime_env(rayjob) if rayjob else None,
                debug=self.debug,
            )
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
    target = choice.existing(settings, Shell())
    file, kubernetes = Path(request.job or ""), target.kubernetes
    rayjob = document.load(file, target.instance.namespace) if request.job else None
    submission = request.prepare(rayjob)
    if rayjob and kubernetes is None:
        raise InvalidArgument("--job needs a Kubernetes cluster", hint="./invokew up --target kind makes one")
    dashboard, cluster = target.access.require(), target.access.cluster
    name = jobs.new_submission_id(submission.entrypoint)
    with console.progress(), console.work(name, f"submission of {line(submission.entrypoint)}"):
        if rayjob and kubernetes:
            beside = document.beside(file)

            def apply() -> None:
                for applied in kubernetes.apply(beside) if beside else ():
                    console.event(f"{applied}; it stays when the job has ended")

            report = partial(console.note, name)
            dashboard, cluster = kubernetes.submit_rayjob(rayjob, submission, name, report, apply)
        else:
            target.access.submit(submission, name)
    try:
        for piece in followed(dashboard, name, console.event) if wait else ():
            console.output(piece)
        job = dashboard.job(name)
    except NotRunning:
        # With shutdownAfterJobFinishes the cluster goes when KubeRay has seen the end of the job.
        there = kubernetes.kube.ray("rayjobs", rayjob["metadata"]["name"]) if rayjob and kubernetes else None
        if not (there and (ended := document.ended(there))):
            raise
        console.event("its cluster has gone with the end of the job, and what it printed last")
        job = ended
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the job {name} goes on",
            hint=f"./invokew logs --follow --job {name}",
            submission_id=name,
        ) from None
    if wait and job.status != "SUCCEEDED":
        raise outcome.failure(job, output_shown=not console.as_json)
    if console.as_json:
        console.document({"submission_id": name, "job": job.job_id, "status": job.status, "cluster": cluster})
    console.result(f"Job {name} {'has ended: ' if wait else 'is '}{job.status}")
    for note in submission.notes():
        console.result(note)
    if limits := submission.raised_limits:
        console.result(
            f"A stop may last: {len(limits)} time limits of Ray's libraries are a day in this job: "
            "docs/internals/hook.md#time-limits"
        )
    if not wait and rayjob and kubernetes and not document.has_relay(rayjob):
        own, kube = rayjob["metadata"]["name"], kubernetes.kube
        options = f"--context {kube.context} --namespace {kube.namespace} --ray-cluster {own}"
        console.result(f"Next: ./invokew up --name {own} {options} makes a relay for it, which it lacks")
    elif not wait and submission.debug:
        console.result("Next: ./invokew debug --break FILE:LINE, or attach an editor")
    elif not wait:
        console.result(f"Next: ./invokew debug stops where it pauses; ./invokew logs --job {name} --follow")


def print_runtime_env(
    settings: Settings, console: Console, request: Request, *, wait: bool, serve: bool = False
) -> None:
    """Prints the runtime_env with which another program's `ray.init` has workers that can be debugged.

    Its driver is not among them: `python -m rayside.worker` is for that. With `serve` it is for the config of
    a Ray Serve application, whose replicas can then be debugged. Raises InvalidArgument.
    """
    if serve and (request.working_dir or request.py_modules):
        raise InvalidArgument(
            "the config of a Ray Serve application takes no folders",
            hint="write your code's address (https, s3, gs) into that config yourself",
        )
    if request.entrypoint or request.job or wait:
        raise InvalidArgument(
            "--print-runtime-env submits nothing", hint="leave out --entrypoint, --job and --wait"
        )
    target = choice.existing(settings, Shell())
    submission = jobs.prepare(
        working_dir=request.working_dir,
        py_modules=request.py_modules,
        # It is for a program that somebody else starts.
        entrypoint=":",
        runtime_env=Path(request.runtime_env) if request.runtime_env else None,
        debug=request.debug,
    )
    document = yaml_file.read(Path(request.runtime_env)) if request.runtime_env else None
    named = request.working_dir or (isinstance(document, Mapping) and document.get("working_dir"))
    folder = {"working_dir": submission.working_dir} if named else {}
    runtime_env = {**target.access.completed(submission).environment(), **folder}
    if user := target.instance.user:
        runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), USER_VARIABLE: user}
    console.document(for_serve(runtime_env, target.access.require()) if serve else runtime_env)


def followed(dashboard: Dashboard, submission_id: str, report: Report) -> Iterator[str]:
    """Yields what the job prints, in pieces as it comes, until it has ended. Raises NotRunning, JobNotFound.

    Ray's head ends the stream at a line of over 4 MiB, the most that it takes at once from where the job
    runs (`max_msg_size` of aiohttp's client): the rest comes when the job has ended.
    """
    shown = 0
    for piece in dashboard.follow(submission_id):
        shown += len(piece)
        yield piece

    def ended() -> bool:
        return dashboard.job(submission_id).ended

    # The output ends a moment before the job is recorded as ended.
    if not step.until(ended, bool, patience=LAG):
        report(f"Ray ended the stream of job {submission_id}'s output; the rest comes when the job has ended")
        step.until(ended, bool, patience=math.inf)
    if rest := dashboard.output(submission_id)[shown:]:
        yield rest


def for_serve(runtime_env: Mapping[str, Any], dashboard: Dashboard) -> dict[str, Any]:
    """Returns it for the config of a Serve application: with its folders uploaded to that Ray, and its hook.

    Raises NotRunning.
    """
    env = dict(runtime_env)
    variables = {**env["env_vars"], _HOOK: env.pop("worker_process_setup_hook")}
    modules = [
        _uploaded(Path(module), dashboard) if Path(module).is_dir() else module
        for module in env["py_modules"]
    ]
    return {**env, "py_modules": modules, "env_vars": variables}


def _uploaded(folder: Path, dashboard: Dashboard) -> str:
    """Uploads a package's own folder, as Ray has one of `py_modules`; returns its address."""
    with tempfile.TemporaryDirectory(prefix="rayside-") as around:
        shutil.copytree(folder, Path(around, folder.name), ignore=shutil.ignore_patterns("__pycache__"))
        return dashboard.upload(package(Path(around)))
