"""Watcher of a RayJob until its cluster is ready, or can't become ready."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.errors import NamespaceTerminating, OperatorNotRunning, PodFailed
from bootstrap.kube import operator, trouble
from bootstrap.kube.api import CORE, Kube, require_namespace
from bootstrap.kube.rayjob import document
from rayside.errors import ClusterUnreachable, NotReady, RaysideError, SubmissionFailed
from rayside.private_file import write_private

# Seconds between two checks, and timeout for KubeRay to name the cluster; 1 to 2 s were seen.
_PAUSE, _NAMING = 1.0, 20.0
# Timeouts in seconds for the cluster to be ready: of kubectl-ray, and ours without kubectl-ray.
_KUBECTL_RAYS, _OURS = 120.0, 600.0
# KubeRay's states once the cluster is ready: it waits for the job, or asks Ray for it.
_READY = ("Waiting", "Running")
# Seconds that a pod's problem has to last: a container may be restarted at once, and be healthy.
_SETTLING = 5.0


@dataclass
class Watcher:
    """Checks a RayJob, its operator and its pods while kubectl-ray, or `wait`, waits for them.

    The token of the RayJob's own cluster is written to `token_file`; None for no token. `problem` is why
    waiting is in vain, else None. `suspended` (the RayJob) and `ready` (its cluster) are from the last
    check.
    """

    kube: Kube
    name: str
    submission_id: str
    token_file: Path | None
    report: Callable[[str], None] = lambda _: None
    problem: RaysideError | None = None
    suspended: bool = False
    ready: bool = False
    _is_gone: bool = False
    _has_token: bool = False
    _first_seen: float | None = None
    _troubled_since: float | None = None
    _ray_cluster: str = ""
    _last_report: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Checks once a second in a thread; calls `end` once, as soon as kubectl-ray's wait is in vain.

        It is also in vain if the RayJob is suspended: see `document.suspended`.
        """
        defects: list[BaseException] = []

        def look_again_and_again() -> None:
            try:
                while not self._stop.wait(_PAUSE):
                    with contextlib.suppress(ClusterUnreachable):  # kubectl-ray notices by itself
                        self.problem = self.look(time.monotonic())
                    if self.problem or self.suspended:
                        return end()
            except BaseException as defect:  # raised in the caller's thread
                defects.append(defect)
                end()

        thread = threading.Thread(target=look_again_and_again, name=f"watcher of {self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            # A check may hang for longer than an interrupted command may take to end.
            thread.join(timeout=1)
            if defects:
                raise defects[0]

    def wait(self) -> None:
        """Waits in place of kubectl-ray, as long as the RayJob is suspended. Raises the problem."""

        def over() -> bool:
            try:
                self.problem = self.look(time.monotonic())
            except ClusterUnreachable as error:
                # A queue may take hours, in which this machine may sleep.
                self._say(error.message)
            if self._is_gone:
                self.problem = SubmissionFailed(
                    f"somebody has removed RayJob {self.name}", hint="submit it again"
                )
            return self.ready or self.problem is not None

        while not over():
            time.sleep(_PAUSE)
        if self.problem:
            raise self.problem

    def look(self, now: float) -> RaysideError | None:
        """Returns why waiting is in vain at `now`, in seconds of a monotonic clock.

        Raises ClusterUnreachable.
        """
        rayjob = self.kube.ray("rayjobs", self.name)
        self._is_gone = rayjob is None
        if rayjob is None or rayjob["spec"].get("jobId") != self.submission_id:
            return None
        if self._first_seen is None:
            self._first_seen = now
        status = rayjob.get("status") or {}
        if status.get("jobStatus"):  # Ray has the job: the rest is not watched here
            return None
        if given_up := document.problem(rayjob):
            return given_up
        try:
            require_namespace(self.kube)
        except NamespaceTerminating as error:
            return error
        self.suspended = document.suspended(rayjob)
        if self.suspended:
            # A cluster that it had, or that was named for a moment, is not the one that it will get.
            self._first_seen, self._troubled_since = now, None
            self.ready = self._has_token = False
            queue = document.queue(rayjob)
            waits = f"waits in the queue {queue}" if queue else "names no queue, and waits"
            self._say(f"RayJob {self.name} is suspended; it {waits} until its spec has suspend: false")
            return None
        self._ray_cluster = status.get("rayClusterName") or ""
        if not self._ray_cluster:
            return self._why_no_cluster(rayjob) if now - self._first_seen >= _NAMING else None
        if self.token_file is not None and not self._has_token:
            content = _token(self.kube, rayjob, self._selector)
            if content is not None:
                write_private(self.token_file, content)
                self._has_token = True
        self.ready = status.get("jobDeploymentStatus") in _READY and (
            self._has_token or self.token_file is None
        )
        pod_problem = trouble.first_problem(self.kube, self._selector) or self._why_no_pods()
        if pod_problem is None:
            self._troubled_since = None
            self._report_waits()
            return self.not_ready(_OURS) if now - self._first_seen >= _OURS else None
        if self._troubled_since is None:
            self._troubled_since = now
        return pod_problem if now - self._troubled_since >= _SETTLING else None

    def not_ready(self, seconds: float = _KUBECTL_RAYS) -> RaysideError:
        """Returns the error of a timeout of the cluster; default: kubectl-ray's timeout."""
        waits = f": {'; '.join(self._waits())}".removesuffix(": ")
        return NotReady(
            f"RayCluster {self._ray_cluster} was not ready after {seconds:g} s{waits}",
            hint="run the command again; ./invokew doctor shows what the machine lacks",
        )

    @property
    def _selector(self) -> str:
        return f"{document.CLUSTER_LABEL}={self._ray_cluster}"

    def _waits(self) -> list[str]:
        waits = {pod["metadata"]["name"]: trouble.waiting(pod) for pod in self.kube.pods(self._selector)}
        return [f"pod {name}: {wait}" for name, wait in waits.items() if wait]

    def _report_waits(self) -> None:
        for wait in self._waits()[:1]:
            self._say(wait)

    def _say(self, text: str) -> None:
        if text != self._last_report:
            self._last_report = text
            self.report(text)

    def _why_no_cluster(self, rayjob: Mapping[str, Any]) -> RaysideError:
        present = operator.installed(self.kube)
        if present is None:
            return OperatorNotRunning("this cluster has no KubeRay operator", hint="./invokew up installs it")
        if not present.runs():
            pod_problem = present.problem()
            return OperatorNotRunning(
                f"the KubeRay operator does not run, so nothing becomes of RayJob {self.name}"
                f"{f': {pod_problem.message}' if pod_problem else ''}",
                hint="./invokew up repairs it",
            )
        events = [event.get("message", "") for event in self.kube.events("RayJob", rayjob["metadata"])]
        return NotReady(
            f"KubeRay gave RayJob {self.name} no cluster within {_NAMING:g} s"
            f"{f': {events[-1]}' if events else ''}",
            hint="./invokew up repairs the operator",
        )

    def _why_no_pods(self) -> RaysideError | None:
        """Returns why KubeRay could make no pod of the cluster, such as a used-up quota."""
        if self.kube.pods(self._selector):
            return None
        ray_cluster = self.kube.ray("rayclusters", self._ray_cluster)
        events = self.kube.events("RayCluster", ray_cluster["metadata"]) if ray_cluster else []
        for event in reversed(events):
            if event["type"] == "Warning" and event["reason"].startswith("FailedToCreate"):
                return PodFailed(
                    f"KubeRay can't make a pod of RayCluster {self._ray_cluster}: {event.get('message', '')}",
                    hint="correct what it names",
                )
        return None


def _token(kube: Kube, rayjob: Mapping[str, Any], selector: str) -> bytes | None:
    """Returns the token of a RayJob's own cluster; None if KubeRay has not made it yet."""
    options = (rayjob["spec"].get("rayClusterSpec") or {}).get("authOptions") or {}
    secret_name = options.get("secretName")
    path = f"{CORE}/namespaces/{kube.namespace}/secrets"
    # By label if the RayJob names no Secret: KubeRay shortens long names.
    secrets = [kube.get(f"{path}/{secret_name}") or {}] if secret_name else kube.items(path, selector)
    for secret in secrets:
        if "auth_token" in secret.get("data", {}):
            return base64.b64decode(secret["data"]["auth_token"])
    return None
