"""Client of Ray's dashboard: the State API and the Jobs API.

Sources: https://docs.ray.io/en/latest/ray-observability/reference/api.html (State API) and
https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html (Jobs API).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from rayside.errors import JobNotFound, NotRunning
from rayside.loopback import require_own
from rayside.ray.http_client import HttpClient
from rayside.ray.metadata import USER
from rayside.ray.outcome import refusal
from rayside.ray.records import (
    DebuggableWorker,
    Job,
    RunningTask,
    WaitingTask,
    read_debuggable,
    read_job,
    read_waiting,
    tasks_of,
    utc_time,
)

# Limit: rows in one answer of the State API (RAY_MAX_LIMIT_FROM_API_SERVER).
MOST_ROWS = 10_000
# Seconds by which Ray's tables of tasks and jobs may be late; about 1 s was measured.
LAG = 3.0
_LONGEST_END = 2_000_000
# Limit: nodes whose raylet errors are read.
_MOST_NODES = 8
# Timeouts in seconds, as `patience`, for uploads over a slow network, and for Ray to start a job.
_FILES_PATIENCE = (60.0, 120.0)


class Dashboard(HttpClient):
    """Client of the State API, the Jobs API and the store of packages."""

    def version(self) -> dict[str, Any]:
        """Returns Ray's version and session name. Raises NotRunning."""
        return dict(self._get("/api/version"))

    def python_version(self) -> str:
        """Returns the cluster's Python version, as in 3.11.2."""
        return str(self._get("/api/v0/cluster_metadata")["data"]["pythonVersion"])

    def raylets(self) -> dict[str, int]:
        """Returns the port of each live node's raylet, by the node's address."""
        nodes = self._get("/nodes", [("view", "summary")])["data"]["summary"]
        raylets = [node["raylet"] for node in nodes]
        return {
            str(raylet["nodeManagerAddress"]): int(raylet["nodeManagerPort"])
            for raylet in raylets
            if raylet["state"] == "ALIVE"
        }

    def live_nodes(self) -> int:
        """Returns the number of nodes that Ray counts as alive."""
        return len(self._rows("nodes", [("state", "=", "ALIVE")]))

    def node_addresses(self) -> dict[str, str]:
        """Returns the address of each live node, by its id."""
        rows = self._rows("nodes", [("state", "=", "ALIVE")])
        return {row["node_id"]: row["node_ip"] for row in rows}

    def jobs(self) -> list[Job]:
        """Returns the submitted jobs, oldest first."""
        return sorted((read_job(row) for row in self.job_rows()), key=lambda job: job.started)

    def all_jobs(self) -> list[Job]:
        """Returns all jobs, also those without a submission, oldest first: one request."""
        rows = self._get("/api/jobs/")
        return sorted((read_job(row) for row in rows), key=lambda job: job.started)

    def job_rows(self) -> list[dict[str, Any]]:
        """Returns the Jobs API's rows of the submitted jobs."""
        return [row for row in self._get("/api/jobs/") if row["type"] == "SUBMISSION"]

    def job(self, job_id: str) -> Job:
        """Returns the job with that submission id, or with that job id of Ray's. Raises JobNotFound."""
        jobs = self.jobs()
        for job in jobs:
            if job_id in (job.submission_id, job.job_id):
                return job
        latest = ", ".join(job.submission_id for job in jobs[-5:][::-1])
        hint = f"the latest jobs are {latest}" if jobs else "./invokew submit starts one"
        raise JobNotFound(f"Ray has no job {job_id!r}", hint=hint)

    def output(self, submission_id: str) -> str:
        """Returns the job's output so far."""
        return str(self._get(f"/api/jobs/{submission_id}/logs")["logs"])

    def submit(
        self,
        entrypoint: str,
        submission_id: str,
        runtime_env: Mapping[str, Any],
        *,
        user: str = "",
        metadata: Mapping[str, str] | None = None,
        **reserved: Any,
    ) -> None:
        """Submits a job of that user; its files have to be uploaded already.

        `reserved` are the resources of the entrypoint, as `entrypoint_num_cpus`.
        A submission id that Ray knows counts as submitted. Raises SubmissionFailed, NotRunning.
        """
        body = {
            "entrypoint": entrypoint,
            "submission_id": submission_id,
            "runtime_env": dict(runtime_env),
            "metadata": {**(metadata or {}), **({USER: user} if user else {})},
            **reserved,
        }
        answer = self._answer("POST", "/api/jobs/", json=body, timeout=_FILES_PATIENCE)
        if "already exists" not in answer.text:  # An earlier try got through after all.
            _require_taken(answer)

    def has_package(self, name: str) -> bool:
        """Returns whether Ray has that package, which it then keeps for some minutes. Raises NotRunning."""
        answer = self._answer("GET", _package(name))
        if answer.status_code not in (200, 404):
            _require_taken(answer)
        return answer.status_code == 200

    def upload(self, name: str, file: Path) -> None:
        """Uploads a package, whose URI in a runtime_env is then gcs://<name>.

        Raises SubmissionFailed, NotRunning.
        """
        with file.open("rb") as data:
            _require_taken(self._answer("PUT", _package(name), data=data, timeout=_FILES_PATIENCE))

    def stop(self, submission_id: str) -> None:
        """Asks Ray to stop a job; an ended job stays as it is."""
        self._ask("POST", f"/api/jobs/{submission_id}/stop")

    def forget(self, submission_id: str) -> None:
        """Removes an ended job from Ray's list of jobs."""
        self._ask("DELETE", f"/api/jobs/{submission_id}")

    def output_end(self, job: Job, lines: int) -> str:
        """Returns the last lines of the job's output, at most 2 MB. Raises NotRunning."""
        # Without the node, Ray 2.60 answers 500, though it could find it by the submission id.
        query = {"submission_id": job.submission_id, "node_id": job.node_id, "lines": str(lines)}
        return self._end_of_file(query, f"output of job {job.submission_id}")

    def _end_of_file(self, query: Mapping[str, str], what: str) -> str:
        url = f"{self.url}/api/v0/logs/file"
        end = b""
        try:
            with self._session.get(url, params=query, timeout=self._patience, stream=True) as answer:
                answer.raise_for_status()
                for piece in answer.iter_content(65536):
                    end = (end + piece)[-_LONGEST_END:]
        except requests.RequestException:
            raise NotRunning(
                f"Ray does not give {what}",
                hint="./invokew status says whether Ray is whole",
            ) from None
        return end.decode(errors="replace")

    def follow(self, submission_id: str) -> Iterator[str]:
        """Yields the job's output in pieces as it comes, until the job has ended. Raises NotRunning."""
        import websocket

        url = f"{self.url.replace('http', 'ws', 1)}/api/jobs/{submission_id}/logs/tail"
        header = [
            f"{name}: {value!s}" for name, value in self._session.headers.items() if name == "Authorization"
        ]
        try:
            # The socket is opened here, as the library would use a proxy from the environment.
            parts = urlsplit(self.url)
            is_secure = parts.scheme == "https"
            address = parts.hostname or "", parts.port or (443 if is_secure else 80)
            with contextlib.ExitStack() as opened:
                connection = opened.enter_context(
                    socket.create_connection(address, timeout=self._patience[0])
                )
                require_own(connection, self._trusted)
                if is_secure:  # The library does not encrypt a given socket.
                    context = ssl.create_default_context(cafile=requests.utils.DEFAULT_CA_BUNDLE_PATH)
                    secured = context.wrap_socket(connection, server_hostname=parts.hostname)
                    connection = opened.enter_context(secured)
                connection.settimeout(None)
                # A redirect would get the token, too.
                stream = websocket.create_connection(url, header=header, socket=connection, redirect_limit=0)
                while piece := stream.recv():
                    yield str(piece)
        except (websocket.WebSocketException, OSError) as error:
            raise NotRunning(
                f"the dashboard at {self.url} closed the job's output: {error}",
                hint="./invokew status shows what is left",
            ) from None

    def cluster_status(self) -> dict[str, Any]:
        """Returns the autoscaler's record of the resources in use, and of the requested ones."""
        return dict(self._get("/api/cluster_status"))

    def head_log(self) -> str:
        """Returns the end of the log of the head's GCS. Raises NotRunning."""
        heads = [row for row in self._rows("nodes", [("state", "=", "ALIVE")]) if row["is_head_node"]]
        if not heads:
            raise NotRunning("Ray has no head node that is alive", hint="./invokew status says more")
        query = {"node_id": heads[0]["node_id"], "filename": "gcs_server.out", "lines": "1000"}
        return self._end_of_file(query, "the head's log")

    def raylet_errors(self) -> str:
        """Returns the ends of live nodes' raylet.err, with the output of workers that are still starting."""
        nodes = self._rows("nodes", [("state", "=", "ALIVE")])[:_MOST_NODES]
        ends = []
        for node in nodes:
            query = {"node_id": node["node_id"], "filename": "raylet.err", "lines": "100"}
            with contextlib.suppress(NotRunning):  # Another node's log may have the error.
                ends.append(self._end_of_file(query, "a raylet's errors"))
        return "\n".join(ends)

    def workers_with_debugger(self) -> set[str]:
        """Returns the ids of the live workers with an open debugger, paused now or not."""
        rows = self._rows("workers", [("is_alive", "=", "True"), ("debugger_port", "!=", "0")])
        return {row["worker_id"] for row in rows if row["debugger_port"]}

    def debuggable(self) -> list[DebuggableWorker]:
        """Returns the live workers and drivers with an open debugger: one request."""
        rows = self._rows("workers", [("is_alive", "=", "True"), ("debugger_port", "!=", "0")])
        # Ray's filter also matches a port that was never set.
        return [read_debuggable(row) for row in rows if row["debugger_port"]]

    def end_of(self, worker_id: str) -> str | None:
        """Returns why a worker has ended, with its last task's error; None while Ray lists it as alive."""
        rows = self._rows("workers", [("worker_id", "=", worker_id), ("is_alive", "=", "False")])
        if not rows:
            return None
        ended = [str(rows[0].get(name) or "") for name in ("exit_type", "exit_detail")]
        tasks = self._rows("tasks", [("worker_id", "=", worker_id), ("state", "=", "FAILED")])
        failed = max(tasks, key=lambda row: row.get("end_time_ms") or 0, default={})
        return ": ".join(text for text in [*ended, str(failed.get("error_message") or "")] if text)

    def running_tasks(self) -> dict[str, list[RunningTask]]:
        """Returns the tasks that run now, by worker, the latest first: one request."""
        running: dict[str, list[RunningTask]] = {}
        rows = self._rows("tasks", [("state", "=", "RUNNING")])
        for row in sorted(rows, key=lambda row: row["start_time_ms"] or 0, reverse=True):
            since = utc_time(row["start_time_ms"]) if row["start_time_ms"] else ""
            task = RunningTask(row["name"], row["job_id"], since)
            running.setdefault(row["worker_id"], []).append(task)
        return running

    def running_workers(self, job_id: str) -> set[str]:
        """Returns the ids of the workers that run a task of the job now."""
        rows = self._rows("tasks", [("job_id", "=", job_id), ("state", "=", "RUNNING")])
        return {row["worker_id"] for row in rows}

    def waiting(
        self, running: Callable[[], Mapping[str, Sequence[RunningTask]]] | None = None
    ) -> list[WaitingTask]:
        """Returns the tasks, and drivers, that wait for a debugger now: one request, or two if there are any.

        `running` returns the running tasks, if the caller has them already.
        """
        workers = self._rows("workers", [("num_paused_threads", "!=", "0"), ("is_alive", "=", "True")])
        if not workers:
            return []
        tasks = (running or self.running_tasks)()
        # In a threaded actor more tasks may run than are paused, and Ray does not say which are: the latest
        # are the likeliest.
        waiting = [
            read_waiting(worker, task)
            for worker in workers
            for task in tasks_of(worker, tasks)[: worker["num_paused_threads"]] or [RunningTask("", "", "")]
        ]
        return sorted(waiting, key=lambda task: (task.since, task.worker_id))

    def table(self, name: str, *without: tuple[str, str], **fields: str) -> list[dict[str, Any]]:
        """Returns the rows of a State API table, such as `tasks`, whose fields have these values.

        `without` are fields with a value that they must not have.
        """
        others = [(field, "!=", value) for field, value in without]
        return self._rows(name, [*((field, "=", value) for field, value in fields.items()), *others])

    def _rows(self, resource: str, filters: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
        parameters: list[tuple[str, str]] = [("detail", "1"), ("limit", str(MOST_ROWS))]
        for key, predicate, value in filters:
            parameters += [("filter_keys", key), ("filter_predicates", predicate), ("filter_values", value)]
        answer = self._get(f"/api/v0/{resource}", parameters)
        return list(answer["data"]["result"]["result"])


def _package(name: str) -> str:
    return f"/api/packages/gcs/{name}"


def _require_taken(answer: requests.Response) -> None:
    if not answer.ok:
        raise refusal(answer.text)
