"""Collector of the evidence for a diagnosis: parallel requests to Ray and Kubernetes, with a timeout."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bootstrap.diagnosis import cleaned, tables
from bootstrap.diagnosis.evidence import Evidence
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.trouble import add_last_words
from bootstrap.targets.target import Target
from rayside.dap.paused_task import PausedTask
from rayside.errors import RaysideError
from rayside.plain import line
from rayside.ray.records import Job

# Timeout in seconds for all parallel requests. Ray's tables take less than 1 with 1,000 tasks; a dashboard
# that hangs gives up by itself after 20.
_PATIENCE = 20.0
# Number of jobs whose output is read: the newest ones, and the newest failed ones.
_NEWEST, _NEWEST_FAILED = 5, 20
_LINES = 400
# Number of pods whose logs are read, and of lines of each container.
_MOST_PODS, _LINES_OF_POD = 20, "200"
# Limit: characters of a reason why something could not be read.
_LONGEST = 2_000

# Errors of parsing a malformed response.
_ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError)

Ask = Callable[[], Any]


@dataclass(frozen=True)
class Gathered:
    """Sanitized responses: `documents` by name, as received, and `evidence`, as parsed."""

    documents: Mapping[str, Any]
    evidence: Evidence


@dataclass
class _Answers:
    """Sanitized responses so far; `unread` has the reasons why others are missing."""

    documents: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    errors: dict[str, RaysideError] = field(default_factory=dict)

    def ask(self, asks: Mapping[str, Ask], patience: float) -> None:
        """Sends all requests in parallel; `patience` is the timeout in seconds."""
        answers: queue.Queue[tuple[str, Any, Exception | None]] = queue.Queue()

        def answer(name: str, ask: Ask) -> None:
            try:
                answers.put((name, ask(), None))
            # A response may have any shape: an error in one must not end the others.
            except Exception as error:
                answers.put((name, None, error))

        for name, ask in asks.items():
            # Daemon threads, as nobody waits for one without a response.
            threading.Thread(target=answer, args=(name, ask), daemon=True).start()
        deadline, left = time.monotonic() + patience, set(asks)
        while left:
            try:
                name, document, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            left.discard(name)
            if error is None:
                self._keep(name, document)
            elif isinstance(error, RaysideError):
                self.errors[name], self.unread[name] = error, error.message
            else:
                self.unread[name] = f"its answer can't be read: {type(error).__name__}: {error}"
        self.unread |= dict.fromkeys(left, f"no answer within {patience:g} s")

    def note(self, name: str, why: str) -> None:
        self.unread[name] = f"{self.unread[name]}; {why}" if name in self.unread else why

    def _keep(self, name: str, document: Any) -> None:
        cleaning = cleaned.Cleaning()
        self.documents[name] = cleaning.document(document)
        if isinstance(document, list) and len(document) > cleaned.MOST_ROWS:
            self.note(name, f"only {cleaned.MOST_ROWS} of its {len(document)} rows were looked at")
        if cleaning.left <= 0:
            self.note(name, "it is so large that its end was left out")

    def rows(self, name: str, how: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Returns a table's parsed rows, without malformed ones."""
        understood: list[Any] = []
        errors: list[str] = []
        rows = self.read(name, list, [])
        for row in rows:
            try:
                understood += how([row])
            except _ODD as error:
                errors.append(f"{type(error).__name__}: {error}")
        if errors:
            self.note(name, f"{len(errors)} of {len(rows)} rows can't be understood: {errors[0]}")
        return understood

    def read(self, name: str, how: Callable[[Any], Any], otherwise: Any) -> Any:
        if name not in self.documents:
            return otherwise
        try:
            return how(self.documents[name])
        except _ODD as error:
            self.note(name, f"its answer can't be understood: {type(error).__name__}: {error}")
            return otherwise


def gather(
    target: Target, paused: Callable[[], list[PausedTask]], *, job: str = "", pod: str = ""
) -> Gathered:
    """Returns what can be read from the cluster. `paused` lists the paused tasks.

    Raises no errors of requests: they are in `evidence.unread`.
    """
    answers, access = _Answers(), target.access
    asks: dict[str, Ask] = {
        "ray": lambda: access.require().version(),
        # Of too many, the newest jobs and the failed tasks are kept.
        "jobs": lambda: sorted(access.dashboard().job_rows(), key=_start, reverse=True),
        "tasks": lambda: sorted(
            _without_profiles(access.dashboard().table("tasks", ("state", "FINISHED"))),
            key=lambda row: row.get("state") != "FAILED",
        ),
        # Without these, a task whose retry succeeded would look failed.
        "tasks tried again": lambda: _without_profiles(
            access.dashboard().table("tasks", ("attempt_number", "0"), state="FINISHED")
        ),
        "actors": lambda: access.dashboard().table("actors"),
        "nodes": lambda: access.dashboard().table("nodes"),
        "placement groups": lambda: access.dashboard().table("placement_groups"),
        "resources in use": lambda: access.dashboard().cluster_status(),
        "paused tasks": lambda: [asdict(task) for task in paused()],
        "head's log": lambda: cleaned.log(access.log()),
        "raylets' errors": lambda: cleaned.log(access.dashboard().raylet_errors()),
    }
    if target.kubernetes:
        asks |= of_kubernetes(target.kubernetes.kube, pod)
    answers.ask(asks, _PATIENCE)
    jobs = sorted(answers.rows("jobs", tables.read_jobs), key=lambda each: each.started)
    failed = [each for each in jobs if each.status == "FAILED"]
    logged = {
        each.submission_id: each
        for each in [*jobs[-_NEWEST:], *failed[-_NEWEST_FAILED:], *(each for each in jobs if _is(each, job))]
        # A job that has no node yet has printed nothing.
        if each.node_id and (not job or _is(each, job))
    }
    logs = _Answers()
    logs.ask({name: _output(target, each) for name, each in logged.items()}, _PATIENCE / 2)
    for name, why in logs.unread.items():
        answers.note(f"output of job {name}", why)
    understood = _understood(answers, jobs, logs.documents)
    return Gathered({**answers.documents, "output of jobs": logs.documents}, understood)


def _understood(answers: _Answers, jobs: Sequence[Job], logs: Mapping[str, str]) -> Evidence:
    tasks = answers.rows("tasks", tables.read_tasks)
    again = answers.rows("tasks tried again", tables.read_tasks)
    understood = {
        "jobs": jobs,
        "error_types": tables.read_error_types(answers.documents.get("jobs") or [], jobs),
        "tasks": [*tasks, *again],
        "knows_attempts": "tasks tried again" not in answers.unread,
        "actors": answers.rows("actors", tables.read_actors),
        "nodes": answers.rows("nodes", tables.read_nodes),
        "groups": answers.rows("placement groups", tables.read_groups),
        "used": answers.read("resources in use", tables.read_used, {}),
        "paused": answers.rows("paused tasks", lambda rows: [PausedTask(**row) for row in rows]),
        "head_log": answers.documents.get("head's log") or "",
        "raylet_errors": answers.documents.get("raylets' errors") or "",
        "pods": answers.rows("pods", tables.read_named),
        "events": answers.rows("events", list),
        "rayjobs": answers.rows("RayJobs", tables.read_named),
    }
    # Last, as rows that can't be parsed are reported with the responses that could not be read.
    return Evidence(
        now=time.time(), ray=answers.errors.get("ray"), logs=logs, unread=_told(answers.unread), **understood
    )


def _start(row: dict[str, Any]) -> float:
    """Returns a job's start time in ms since 1970; 0 if its row has none."""
    start = row.get("start_time")
    return start if isinstance(start, int | float) else 0


def _is(job: Job, named: str) -> bool:
    """Returns whether a job has that submission id or Ray job id."""
    return named in (job.submission_id, job.job_id)


def _output(target: Target, job: Job) -> Ask:
    return lambda: cleaned.log(target.access.dashboard().output_end(job, _LINES))


def _without_profiles(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Profiles have the times of each part of a task, and are most of Ray's response.
    return [{key: value for key, value in row.items() if key != "profiling_data"} for row in rows]


def _told(unread: Mapping[str, str]) -> list[str]:
    """Returns each reason once, with everything that it kept from being read."""
    reasons: dict[str, list[str]] = {}
    for name, why in unread.items():
        reasons.setdefault(why, []).append(name)
    # Names of jobs are in it, which may contain line breaks.
    return [line(f"{', '.join(names)}: {why}", _LONGEST) for why, names in reasons.items()]


# --- Kubernetes: Ray's pods with their last words, events, RayJobs, logs --------------------


def of_kubernetes(kube: Kube, pod: str) -> dict[str, Ask]:
    """Returns the requests by name of the document; `pod`: name of the one pod to read, or empty."""
    return {
        "pods": lambda: _pods(kube, pod),
        "events": lambda: kube.items(f"{CORE}/namespaces/{kube.namespace}/events"),
        "RayJobs": lambda: kube.items(f"{RAY}/namespaces/{kube.namespace}/rayjobs"),
        "RayClusters": lambda: kube.items(f"{RAY}/namespaces/{kube.namespace}/rayclusters"),
        "logs of pods": lambda: _logs(kube, pod),
    }


def _pods(kube: Kube, name: str) -> list[dict[str, Any]]:
    pods = _of_ray(kube, name)
    for pod in pods:
        add_last_words(kube, pod)
    return pods


def _of_ray(kube: Kube, name: str) -> list[dict[str, Any]]:
    """Returns the pod of that name; without a name, Ray's pods of the namespace, not others."""
    return [
        pod
        for pod in kube.pods("")
        if pod["metadata"]["name"] == name
        or (not name and any(key.startswith("ray.io/") for key in pod["metadata"].get("labels") or {}))
    ]


def _logs(kube: Kube, name: str) -> dict[str, str]:
    """Returns the end of each container's log, and of the one before its restart, by `pod/container`."""
    logs: dict[str, str] = {}
    for pod in _of_ray(kube, name)[:_MOST_PODS]:
        for container in (pod.get("status") or {}).get("containerStatuses") or []:
            for previous in (False, True) if container.get("restartCount") else (False,):
                called = f"{pod['metadata']['name']}/{container['name']}{'-before' if previous else ''}"
                try:
                    text = kube.pod_log(
                        pod["metadata"]["name"],
                        container["name"],
                        previous=str(previous).lower(),
                        tailLines=_LINES_OF_POD,
                    )
                except RaysideError as error:  # A container that never ran has none.
                    text = error.message
                logs[called] = cleaned.log(text)
    return logs
