"""Watches a RayJob while kubectl-ray waits for its cluster, and notices when that wait is in vain."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.errors import (
    ClusterUnreachable,
    NamespaceTerminating,
    NotReady,
    OperatorNotRunning,
    PodFailed,
    RaysideError,
)
from bootstrap.kube import operator, trouble
from bootstrap.kube.api import Kube, require_namespace
from bootstrap.kube.rayjob import document, token
from bootstrap.private_file import write_private

# Seconds between two looks, and how long KubeRay may take to name the cluster; 1 to 2 s were seen.
_PAUSE, _NAMING = 1.0, 20.0
# Seconds that a pod's trouble has to last: a container may be started again at once, and be well.
_SETTLING = 5.0


@dataclass
class Watcher:
    """Looks at a RayJob, its operator and its pods while kubectl-ray waits for them.

    `token_file` is where the token of the RayJob's own cluster is written to; None where there is
    nothing to write. `problem` is why waiting is in vain; None while it is not.
    """

    kube: Kube
    name: str
    submission_id: str
    token_file: Path | None
    report: Callable[[str], None] = lambda _: None
    problem: RaysideError | None = None
    _first_seen: float | None = None
    _troubled_since: float | None = None
    _ray_cluster: str = ""
    _last_report: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Looks once a second in a thread; `end` is called once, as soon as waiting is in vain."""
        defects: list[BaseException] = []

        def look_again_and_again() -> None:
            try:
                while not self._stop.wait(_PAUSE):
                    with contextlib.suppress(ClusterUnreachable):  # kubectl-ray notices by itself
                        self.problem = self.look(time.monotonic())
                    if self.problem:
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
            # A look may hang for longer than an interrupted command may take to end.
            thread.join(timeout=1)
            if defects:
                raise defects[0]

    def look(self, now: float) -> RaysideError | None:
        """Why waiting is in vain at `now`, in seconds of a clock that only goes on.

        Raises ClusterUnreachable.
        """
        rayjob = self.kube.ray("rayjobs", self.name)
        if rayjob is None or rayjob["spec"].get("jobId") != self.submission_id:
            return None
        if self._first_seen is None:
            self._first_seen = now
        status = rayjob.get("status") or {}
        if status.get("jobStatus"):  # Ray has the job: what becomes of it is no more our concern
            return None
        if given_up := document.problem(rayjob):
            return given_up
        try:
            require_namespace(self.kube)
        except NamespaceTerminating as error:
            return error
        self._ray_cluster = status.get("rayClusterName") or ""
        if not self._ray_cluster:
            return self._why_no_cluster(rayjob) if now - self._first_seen >= _NAMING else None
        if self.token_file is not None:
            content = token.read(self.kube, rayjob, self._selector)
            if content is not None:
                write_private(self.token_file, content)
                self.token_file = None
        pod_problem = trouble.first_problem(self.kube, self._selector) or self._why_no_pods()
        if pod_problem is None:
            self._troubled_since = None
            self._report_waits()
            return None
        if self._troubled_since is None:
            self._troubled_since = now
        return pod_problem if now - self._troubled_since >= _SETTLING else None

    def not_ready(self) -> RaysideError:
        """For when kubectl-ray's own patience with the cluster, 120 s, is over."""
        waits = "; ".join(self._waits())
        return NotReady(
            f"RayCluster {self._ray_cluster} was not ready after 120 s{f': {waits}' if waits else ''}",
            hint="run the command again; ./invokew doctor shows what the machine lacks",
        )

    @property
    def _selector(self) -> str:
        return f"{document.CLUSTER_LABEL}={self._ray_cluster}"

    def _waits(self) -> list[str]:
        waits = {pod["metadata"]["name"]: trouble.waiting(pod) for pod in self.kube.pods(self._selector)}
        return [f"pod {name}: {wait}" for name, wait in waits.items() if wait]

    def _report_waits(self) -> None:
        waits = self._waits()
        if waits and waits[0] != self._last_report:
            self._last_report = waits[0]
            self.report(waits[0])

    def _why_no_cluster(self, rayjob: Mapping[str, Any]) -> RaysideError:
        present = operator.installed(self.kube)
        if present is None:
            return OperatorNotRunning("this cluster has no KubeRay operator", hint="./invokew up installs it")
        if not present.runs():
            pod_problem = present.problem()
            return OperatorNotRunning(
                f"the KubeRay operator does not run, so nothing becomes of RayJob {self.name}"
                f"{f': {pod_problem.message}' if pod_problem else ''}",
                hint="./invokew up mends it",
            )
        events = [event.get("message", "") for event in self.kube.events("RayJob", rayjob["metadata"])]
        return NotReady(
            f"KubeRay gave RayJob {self.name} no cluster within {_NAMING:g} s"
            f"{f': {events[-1]}' if events else ''}",
            hint="./invokew up mends the operator",
        )

    def _why_no_pods(self) -> RaysideError | None:
        """Where KubeRay could make no pod of the cluster, as where a quota is used up."""
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
