"""Verb `submit`: job submission, and the runtime_env that makes another program's tasks debuggable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rayside import waiting, yaml_file
from rayside.connection.access import Access
from rayside.console import Console
from rayside.errors import Interrupted, InvalidArgument, NotRunning
from rayside.plain import line
from rayside.ray import jobs, outcome, packages
from rayside.ray.debug import Debug
from rayside.ray.metadata import USER_VARIABLE
from rayside.ray.records import Job
from rayside.ray.state import LAG, Dashboard
from rayside.settings import Settings
from rayside.verbs.cluster_job import edited

# A worker reads its setup hook from this variable (`load_and_execute_setup_hook` in
# ray/_private/runtime_env/setup_hook.py, 2.60). In an actor's `runtime_env`, such as a Serve replica's, the
# field for the hook has no effect.
_HOOK = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


@dataclass(frozen=True)
class Request:
    """Options of `submit` that define the job."""

    working_dir: str | None = None
    py_modules: tuple[str, ...] = ()
    entrypoint: str | None = None
    runtime_env: str | None = None
    debug: Debug | None = None

    @property
    def names_program(self) -> tuple[str, ...]:
        """Returns the given options that name a program to run."""
        return ("--entrypoint",) if self.entrypoint else ()

    def prepare(
        self, entrypoint: str | None = None, of_rayjob: Mapping[str, Any] | None = None
    ) -> jobs.Submission:
        """Returns the validated job; `entrypoint` is the default if the options name none.

        `of_rayjob` is passed to `jobs.prepare`. Raises the errors of that function.
        """
        return jobs.prepare(
            working_dir=self.working_dir,
            py_modules=self.py_modules,
            entrypoint=self.entrypoint or entrypoint,
            runtime_env=Path(self.runtime_env) if self.runtime_env else None,
            of_rayjob=of_rayjob,
            debug=self.debug,
        )


def masking(debug: Debug | None, settings: Settings) -> Debug | None:
    """Returns the job's debug options with the settings' masks for recorded failures."""
    return debug and replace(debug, masked=(settings.masked_names, settings.masked_values))


def submit(access: Access, console: Console, submission: jobs.Submission, *, wait: bool) -> None:
    """Submits a job; with `wait`, shows its output until it ends. Raises JobFailed, Interrupted."""
    dashboard = access.require()
    name = jobs.new_submission_id(submission.entrypoint)
    with console.progress(), console.work(name, f"submission of {line(submission.entrypoint)}"):
        access.submit(submission, name)
    show(dashboard, name, console, submission, cluster=access.cluster, wait=wait)
    if not wait:
        console.result(next_of(submission, name))


def next_of(submission: jobs.Submission, name: str) -> str:
    """Returns the hint after a submission without `wait`."""
    if submission.debug:
        again = "; ./invokew retry runs failed tasks again" if submission.debug.post_mortem else ""
        return f"Next: ./invokew debug --break FILE:LINE, or attach an editor{again}"
    return f"Next: ./invokew debug stops where it pauses; ./invokew logs --job {name} --follow"


def show(
    dashboard: Dashboard,
    name: str,
    console: Console,
    submission: jobs.Submission,
    *,
    cluster: str,
    wait: bool,
    gone: Callable[[], Job | None] = lambda: None,
) -> None:
    """Shows a submitted job; with `wait`, its output until it ends. Raises JobFailed, Interrupted.

    `gone` returns the job if its cluster has ended with it.
    """
    try:
        for piece in followed(dashboard, name, console.event) if wait else ():
            console.output(piece)
        job = dashboard.job(name)
    except NotRunning:
        if not (ended := gone()):
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
    if wait and (files := edited(job)):
        console.result(files)
    for note in submission.notes():
        console.result(note)
    if limits := submission.raised_limits:
        console.result(
            f"A stop may last: {len(limits)} time limits of Ray's libraries are a day in this job."
        )


def print_runtime_env(
    access: Access, console: Console, request: Request, *, wait: bool, serve: bool = False
) -> None:
    """Prints the runtime_env for another program's `ray.init` that makes its workers debuggable.

    It does not include the driver: `python -m rayside.worker` is for that. With `serve` it is for the config
    of a Ray Serve application, and makes the replicas debuggable. Raises InvalidArgument.
    """
    if serve and (request.working_dir or request.py_modules):
        raise InvalidArgument(
            "the config of a Ray Serve application takes no folders",
            hint="write your code's address (https, s3, gs) into that config yourself",
        )
    if submits := [*request.names_program, *(["--wait"] if wait else [])]:
        raise InvalidArgument(
            "--print-runtime-env submits nothing", hint=f"leave out {' and '.join(submits)}"
        )
    # `:` stands for a program that the user starts.
    submission = request.prepare(entrypoint=":")
    document = yaml_file.read(Path(request.runtime_env)) if request.runtime_env else None
    named = request.working_dir or (isinstance(document, Mapping) and document.get("working_dir"))
    folder = {"working_dir": submission.working_dir} if named else {}
    runtime_env = {**access.completed(submission).environment(), **folder}
    if user := access.identity.user:
        runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), USER_VARIABLE: user}
    console.document(for_serve(runtime_env, access.require()) if serve else runtime_env)


def followed(dashboard: Dashboard, submission_id: str, report: Callable[[str], None]) -> Iterator[str]:
    """Yields the job's output in pieces as it comes, until the job has ended. Raises NotRunning, JobNotFound.

    Ray's head ends the stream at a line of over 4 MiB, its limit for one message from the job's node
    (`max_msg_size` of aiohttp's client): the rest is read when the job has ended.
    """
    shown = 0
    for piece in dashboard.follow(submission_id):
        shown += len(piece)
        yield piece

    def ended() -> bool:
        return dashboard.job(submission_id).ended

    # The output ends a moment before the job is recorded as ended.
    if not waiting.until(ended, bool, patience=LAG):
        report(f"Ray ended the stream of job {submission_id}'s output; the rest comes when the job has ended")
        waiting.until(ended, bool, patience=math.inf)
    if rest := dashboard.output(submission_id)[shown:]:
        yield rest


def for_serve(runtime_env: Mapping[str, Any], dashboard: Dashboard) -> dict[str, Any]:
    """Returns the runtime_env for a Serve application's config: folders uploaded, the hook as a variable.

    Raises SubmissionFailed, NotRunning.
    """
    env = dict(runtime_env)
    variables = {**env["env_vars"], _HOOK: env.pop("worker_process_setup_hook")}
    modules = [
        packages.py_module(dashboard, module, ["__pycache__"]) if Path(module).is_dir() else module
        for module in env["py_modules"]
    ]
    return {**env, "py_modules": modules, "env_vars": variables}
