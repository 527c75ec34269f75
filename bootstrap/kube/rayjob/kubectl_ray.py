"""Submission of RayJobs through kubectl-ray, with timeouts, or without it.

kubectl-ray's source is KubeRay's kubectl-plugin/pkg/cmd/job/job_submit.go (1.6.2).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bootstrap.kube.api import RAY, Kube, require_namespace
from bootstrap.kube.rayjob import document
from bootstrap.kube.rayjob.watcher import Watcher
from rayside.errors import (
    ClusterUnreachable,
    CommandFailed,
    JobNotFound,
    NotReady,
    RaysideError,
    SubmissionFailed,
)
from rayside.loopback import require_own_listener, without_proxy
from rayside.ray import jobs
from rayside.ray.runtime_env import checked
from rayside.ray.state import Dashboard
from rayside.system import processes
from rayside.system.shell import Shell, printable
from rayside.waiting import until

# Environment variable that marks kubectl-ray and the `ray` that it runs, to find and end both.
_MARK = "RAYSIDE_SUBMISSION"
# Timeout in seconds of a RayJob's removal: KubeRay stops its job first.
_REMOVAL = 30.0


@dataclass(frozen=True)
class KubectlRay:
    """`kubectl ray job submit`, with timeouts.

    `ray_programs` is the folder of the `ray` that kubectl-ray runs.
    """

    shell: Shell
    kube: Kube
    program: Path
    ray_programs: Path

    def submit(
        self,
        rayjob: Mapping[str, Any],
        job: jobs.Submission,
        submission_id: str,
        *,
        url: str,
        token_file: Path,
        report: Callable[[str], None] = lambda _: None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes the RayJob, waits for its cluster, and submits `job` to the dashboard at `url`.

        `before` creates objects that the RayJob needs; it is called after all checks.
        `token_file` holds the token of the standing cluster; for a RayJob that makes its own
        cluster it is written, readable by its owner alone, as soon as there is a token. An interrupted
        attempt with the same submission id is resumed. A failed submission removes its RayJob.

        Raises SubmissionFailed, NotReady, PodFailed and its kin, OperatorNotRunning, NamespaceTerminating,
        ClusterUnreachable, MissingProgram, Interrupted.
        """
        name = rayjob["metadata"]["name"]
        require_namespace(self.kube)
        if self._submitted_before(name, submission_id, url, token_file):
            return
        makes_cluster = "rayClusterSpec" in rayjob["spec"]
        asks_for_token = document.asks_for_token(rayjob)
        new_token = token_file if makes_cluster and asks_for_token else None
        watcher = Watcher(self.kube, name, submission_id, new_token, report)
        of_rayjob = _without_folders(document.runtime_env(rayjob))
        job = replace(job, runtime_env=checked({**of_rayjob, **job.runtime_env}, "the job"))
        env = self.environment(submission_id, token_file if asks_for_token else None)
        sent = document.with_own_cluster(rayjob) if makes_cluster else rayjob
        # YAML has dates, which Kubernetes expects as text.
        sent = json.loads(json.dumps(sent, default=str))
        require_own_listener(url)
        before()
        try:
            # kubectl-ray does not wait for queues, needs a working_dir, and has a typing error in the option
            # of `ray` for entrypointResources.
            if document.suspended(rayjob) or not job.working_dir or "entrypoint_resources" in job.reserved:
                self._make(sent, submission_id)
            elif self._by_kubectl_ray(sent, job, url, env, watcher):
                return
            watcher.wait()
            token = token_file.read_text().strip() if asks_for_token else ""
            jobs.submit(Dashboard(url, token), job, submission_id)
        except BaseException:
            self._remove(watcher)
            raise

    def _make(self, rayjob: Mapping[str, Any], submission_id: str) -> None:
        metadata = {**rayjob["metadata"], "namespace": self.kube.namespace}
        spec = {**rayjob["spec"], "jobId": submission_id}
        try:
            self.kube.apply({**rayjob, "metadata": metadata, "spec": spec})
        except ClusterUnreachable as error:
            raise SubmissionFailed(
                f"RayJob {metadata['name']} was not made: {error.message}", hint="correct what it names"
            ) from None

    def _by_kubectl_ray(
        self,
        rayjob: Mapping[str, Any],
        job: jobs.Submission,
        url: str,
        env: Mapping[str, str],
        watcher: Watcher,
    ) -> bool:
        """Returns whether Ray has the job; it has not if Kueue has suspended the RayJob, which then exists.

        Raises the problem that ended kubectl-ray's wait.
        """
        failed = None
        with (
            tempfile.TemporaryDirectory(prefix="rayside-") as folder,
            _private_environment(job) as runtime_env,
        ):
            manifest = Path(folder, "rayjob.json")
            manifest.write_text(json.dumps(rayjob))
            command = self.command(manifest, job, watcher.submission_id, url, runtime_env)
            try:
                with watcher.watching(lambda: self._end(watcher.submission_id)):
                    self.shell.run(command, env=env)
            except CommandFailed as error:
                failed = error
        if failed and not watcher.problem:
            # KubeRay names a cluster before it sees that the RayJob is suspended: kubectl-ray finds none.
            with contextlib.suppress(ClusterUnreachable):
                watcher.problem = watcher.look(time.monotonic())
        if watcher.problem:  # kubectl-ray exits with 0 when it is terminated
            raise watcher.problem
        if failed and not watcher.suspended:
            raise self._why_it_failed(watcher, failed)
        return not watcher.suspended

    def command(
        self, manifest: Path, job: jobs.Submission, submission_id: str, url: str, runtime_env: Path | None
    ) -> list[str]:
        """Returns kubectl-ray's command; `manifest`: the RayJob's file; `runtime_env`: the runtime_env's.

        A runtime_env may hold secrets (env_vars), which an argument would show in the process list.
        """
        inline = ["--runtime-env-json", json.dumps(job.environment())]
        reserved = {f"--{name.replace('_', '-')}": value for name, value in job.reserved.items()}
        return [
            *[str(self.program), "job", "submit", "--filename", str(manifest)],
            *[*self.kube.options, "--namespace", self.kube.namespace, "--address", url],
            *["--no-wait", "--submission-id", submission_id],
            *(["--working-dir", job.working_dir] if job.working_dir else []),
            *(["--runtime-env", str(runtime_env)] if runtime_env else inline),
            *["--metadata-json", json.dumps(job.all_metadata())],
            *(word for option, value in reserved.items() for word in (option, json.dumps(value))),
            # kubectl-ray joins the words with spaces and splits them again: so they are quoted as one.
            *["--", printable(job.words())],
        ]

    def environment(self, submission_id: str, token_file: Path | None) -> dict[str, str]:
        """Returns the environment of kubectl-ray and its `ray`; the token only as a file's name."""
        unwanted = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
        token = {"RAY_AUTH_TOKEN_PATH": str(token_file)} if token_file else {}
        return {
            **{name: value for name, value in os.environ.items() if name not in (*unwanted, "KUBECONFIG")},
            "PATH": f"{self.ray_programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "RAY_AUTH_MODE": "token" if token_file else "disabled",
            **token,
            document.USAGE_REPORT: "0",
            **without_proxy(os.environ),
            _MARK: submission_id,
        }

    def _submitted_before(self, name: str, submission_id: str, url: str, token_file: Path) -> bool:
        """Returns whether Ray has the job already; removes the RayJob of an earlier attempt.

        Raises SubmissionFailed if the RayJob belongs to another job.
        """
        earlier = self.kube.ray("rayjobs", name)
        if earlier is None:
            return False
        if "deletionTimestamp" not in earlier["metadata"]:
            if earlier["spec"].get("jobId") != submission_id:
                status = earlier.get("status") or {}
                state = status.get("jobStatus") or status.get("jobDeploymentStatus") or "new"
                raise SubmissionFailed(
                    f"there is a RayJob {name} already; it is {state}",
                    hint=f"give yours another metadata.name, or: {self._removal(name)}",
                )
            if _known(url, token_file, submission_id):
                return True
            self.kube.delete(_path(self.kube, name))
        if until(lambda: self.kube.ray("rayjobs", name), lambda seen: seen is None, _REMOVAL) is not None:
            raise NotReady(
                f"the earlier RayJob {name} is still being removed after {_REMOVAL:g} s",
                hint="./invokew up repairs the operator, which has to let it go",
            )
        return False

    def _removal(self, name: str) -> str:
        """Returns the command that removes the RayJob of that name."""
        return printable(["kubectl", *self.kube.options, "-n", self.kube.namespace, "delete", "rayjob", name])

    def _end(self, submission_id: str) -> None:
        processes.end(lambda: processes.marked(_MARK, submission_id), patience=2)

    def _remove(self, watcher: Watcher) -> None:
        # kubectl-ray may have made it, unseen, just before it was ended.
        with contextlib.suppress(ClusterUnreachable):
            there = self.kube.ray("rayjobs", watcher.name)
            if there and there["spec"].get("jobId") == watcher.submission_id:
                self.kube.delete(_path(self.kube, watcher.name))

    def _why_it_failed(self, watcher: Watcher, error: CommandFailed) -> RaysideError:
        with contextlib.suppress(ClusterUnreachable):
            require_namespace(self.kube)
            if "Timed out waiting for cluster" in error.message:
                return watcher.not_ready()
        if "rayclusters.ray.io" in error.message and "not found" in error.message:
            return NotReady("the RayCluster of this RayJob is gone", hint="./invokew up makes it again")
        return SubmissionFailed(
            f"the job was not submitted: {_reason(error.message)}", hint="./invokew status shows what is left"
        )


@contextlib.contextmanager
def _private_environment(job: jobs.Submission) -> Iterator[Path | None]:
    """Yields a private file with the job's runtime_env; None if the user gave none."""
    if not job.runtime_env:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:  # mkdtemp makes it 0700.
        file = Path(folder, "runtime_env.yaml")
        file.touch(mode=0o600)
        file.write_text(json.dumps(job.environment()))  # JSON is YAML.
        yield file


def _without_folders(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a runtime_env without folders, which the submission sets."""
    return {name: value for name, value in environment.items() if name not in ("working_dir", "py_modules")}


def _known(url: str, token_file: Path, submission_id: str) -> bool:
    try:
        Dashboard(url, token_file.read_text().strip()).job(submission_id)
    except (JobNotFound, FileNotFoundError):
        return False
    return True


def _path(kube: Kube, name: str) -> str:
    return f"{RAY}/namespaces/{kube.namespace}/rayjobs/{name}"


def _reason(output: str) -> str:
    # The first lines are the command itself; the last one is kubectl-ray's, with Ray's exit code only. The
    # reason is at the end of Ray's traceback.
    lines = [line.strip() for line in output.splitlines()[1:] if line.strip()]
    telling = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    from_ray = [line for line in telling if "Error occurred with Ray job submit" not in line]
    return (from_ray or telling or lines or ["it gave no reason"])[-1].removeprefix("Error: ")
