"""Verbs `submit` and `breakpoints`: submit jobs, and list their paused tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.errors import NotARayJob
from bootstrap.kube.rayjob import document
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.steps.example_job import example
from bootstrap.targets import choice
from bootstrap.verbs.output import followed
from bootstrap.verbs.paused import paused
from bootstrap.verbs.serve_config import for_serve
from rayside import yaml_file
from rayside.console import Console
from rayside.dap.paused_task import PausedTask
from rayside.errors import Interrupted, InvalidArgument, NotRunning
from rayside.plain import line
from rayside.ray import jobs, outcome
from rayside.ray.debug import Debug
from rayside.ray.metadata import USER_VARIABLE
from rayside.ray.records import Job
from rayside.ray.state import Dashboard
from rayside.users import sees


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
    file = Path(request.job or "")
    rayjob = document.load(file, target.instance.namespace) if request.job else None
    submission = request.prepare(rayjob)
    if rayjob and target.kubernetes is None:
        raise InvalidArgument("--job needs a Kubernetes cluster", hint="./invokew up --target kind makes one")
    dashboard, cluster = target.access.require(), target.access.cluster
    name = jobs.new_submission_id(submission.entrypoint)
    with console.progress(), console.work(name, f"submission of {line(submission.entrypoint)}"):
        if rayjob and (kubernetes := target.kubernetes):
            beside = document.beside(file)

            def apply() -> None:
                for applied in kubernetes.apply(beside) if beside else ():
                    console.event(f"{applied}; it stays when the job has ended")

            report = partial(console.note, name)
            dashboard, cluster = kubernetes.submit_rayjob(rayjob, submission, name, report, apply)
        else:
            target.access.submit(submission, name)
    try:
        job = _submitted(dashboard, name, console, wait=wait)
    except NotRunning:
        # With shutdownAfterJobFinishes the cluster goes when KubeRay has seen the end of the job.
        kube = target.kubernetes.kube if rayjob and target.kubernetes else None
        there = kube.ray("rayjobs", rayjob["metadata"]["name"]) if rayjob and kube else None
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
        return
    console.result(f"Job {name} {'has ended: ' if wait else 'is '}{job.status}")
    for note in submission.notes():
        console.result(note)
    if limits := submission.raised_limits:
        console.result(
            f"A stop may last: {len(limits)} time limits of Ray's libraries are a day in this job: "
            "docs/hook.md#time-limits"
        )
    if not wait and rayjob and target.kubernetes and not document.has_relay(rayjob):
        own, kube = rayjob["metadata"]["name"], target.kubernetes.kube
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
    named = request.working_dir or (request.runtime_env and _names_a_folder(Path(request.runtime_env)))
    folder = {"working_dir": submission.working_dir} if named else {}
    runtime_env = {**target.access.completed(submission).environment(), **folder}
    if user := target.instance.user:
        runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), USER_VARIABLE: user}
    console.document(for_serve(runtime_env, target.access.require()) if serve else runtime_env)


def _names_a_folder(runtime_env: Path) -> bool:
    document = yaml_file.read(runtime_env)
    return isinstance(document, Mapping) and bool(document.get("working_dir"))


def _submitted(dashboard: Dashboard, name: str, console: Console, *, wait: bool) -> Job:
    """Returns the job as it is now; with `wait`, shows its output and returns the job as it ends."""
    if wait:
        for piece in followed(dashboard, name, console.event):
            console.output(piece)
    return dashboard.job(name)


def breakpoints(settings: Settings, console: Console, *, everyone: bool = False) -> None:
    """Lists the tasks that stand still now; with `everyone`, those of other users of that Ray too."""
    target = choice.existing(settings, Shell())
    seen = paused(target, everyone=everyone)
    tasks = seen.tasks
    if console.as_json:
        console.document([task.document() for task in tasks])
        return
    if seen.hidden:
        console.result(f"Paused in jobs of others: {seen.hidden} (--everyone lists them)\n")
    if not tasks:
        user = "" if everyone else target.instance.user
        # A job that was just submitted takes some seconds until a task of it runs.
        jobs = [job for job in target.access.require().jobs() if not job.ended and sees(user, job.user)]
        running = f"; running: {', '.join(job.submission_id for job in jobs)}" if jobs else ""
        submit = "--help" if target.instance.user else "runs the example, which pauses"
        following = "debug waits until one stops" if jobs else f"submit {submit}"
        of_user = f" of {user}" if user else ""
        console.result(f"No task{of_user} is paused{running}. Next: ./invokew {following}")
        return
    whose = ("user",) if target.instance.user else ()
    console.table(
        ("task", "job", *whose, "node", "pid", "when"),
        [
            (task.task, task.job_id, *(task.user for _ in whose), task.node_ip, str(task.pid), _when(task))
            for task in tasks
        ],
    )
    console.result(f"\nNext: ./invokew debug{' --everyone' if everyone and whose else ''}")


def _when(task: PausedTask) -> str:
    # Ray does not record when a task that waits for a debugger stopped.
    return f"{'stopped' if task.held else 'began to run'} {task.since}"
