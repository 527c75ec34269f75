"""Reads Ray's dashboard over HTTP: the State API and the Jobs API.

Sources: https://docs.ray.io/en/latest/ray-observability/reference/api.html (State API) and
https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html (Jobs API).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from bootstrap.errors import JobNotFound, NotRunning
from bootstrap.loopback import require_own

# The State API gives at most so many rows in one answer (RAY_MAX_LIMIT_FROM_API_SERVER).
MOST_ROWS = 10_000
# Ray's tables of tasks and jobs may lag so many seconds behind what is; about 1 s was measured.
LAG = 3.0
_LONGEST_END = 2_000_000
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


@dataclass(frozen=True)
class WaitingTask:
    """A task whose worker waits for a debugger, which listens on `host`:`port`.

    Never connect there but to debug: one connect-and-close and the task can't be attached any more
    (microsoft/debugpy #974).
    `task` is empty, or what the worker ran before, for about a second after the pause, until Ray's
    task table has caught up (`LAG`).
    `since` is when it began to run, ISO 8601 in UTC and of whole seconds: Ray does not record when it paused.
    """

    worker_id: str
    pid: int
    job_id: str
    task: str
    since: str
    host: str
    port: int


@dataclass(frozen=True)
class DebuggableWorker:
    """A live process of Ray's whose debugger listens on `node_ip`:`port`, attached to or not.

    `job_id` is known of a driver only: a worker's row does not say whose tasks it runs. `since` is when
    the process was ready, ISO 8601 in UTC.
    """

    worker_id: str
    node_ip: str
    port: int
    pid: int
    driver: bool
    job_id: str
    since: str


@dataclass(frozen=True)
class RunningTask:
    """A task, as Ray's task table has it about a second after the task began."""

    name: str
    job_id: str
    since: str


@dataclass(frozen=True)
class Job:
    """A submitted job, as the Jobs API describes it."""

    submission_id: str
    job_id: str | None
    status: str
    entrypoint: str
    message: str
    exit_code: int | None
    started: float
    driver_pid: int | None
    metadata: dict[str, str]
    runtime_env: dict[str, Any]
    node_id: str = ""  # It is the node on which its driver was started.

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class _Known(HTTPAdapter):
    """Sends nothing over a connection before it knows who is behind it."""

    def __init__(self, trusted: Collection[int]) -> None:
        self._trusted = trusted
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        trusted = self._trusted

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                try:
                    require_own(self.sock, trusted)
                except BaseException:
                    self.close()
                    raise

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        super().init_poolmanager(*arguments, **more)
        # Each manager has a map of its own, documented for this use.
        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


class Dashboard:
    """A client of one dashboard; `url` as in http://127.0.0.1:8265, `token` Ray's authentication.

    `patience`: seconds to connect, and for each piece of an answer. `trusted`: uids that may listen there,
    besides this user; what is another's on this machine gets no byte, and each method raises StrangerListens.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: tuple[float, float] = (2, 20),
        trusted: Collection[int] = (),
    ) -> None:
        self.url, self._patience, self._trusted = url, patience, trusted
        self._session = requests.Session()
        # Neither a proxy nor ~/.netrc may come between us and a loopback address.
        self._session.trust_env = False
        self._session.mount("http://", _Known(trusted))
        self._session.headers["Authorization"] = f"Bearer {token}"

    def version(self) -> dict[str, Any]:
        """Returns Ray's version and session name. Raises NotRunning."""
        return dict(self._get("/api/version"))

    def live_nodes(self) -> int:
        """Returns how many nodes Ray counts as alive."""
        return len(self._rows("nodes", [("state", "=", "ALIVE")]))

    def node_addresses(self) -> dict[str, str]:
        """Returns the address of each live node, by its id."""
        rows = self._rows("nodes", [("state", "=", "ALIVE")])
        return {row["node_id"]: row["node_ip"] for row in rows}

    def jobs(self) -> list[Job]:
        """Returns the submitted jobs, oldest first."""
        return sorted((read_job(row) for row in self.job_rows()), key=lambda job: job.started)

    def job_rows(self) -> list[dict[str, Any]]:
        """Returns what the Jobs API has of each submitted job."""
        return [row for row in self._get("/api/jobs/") if row["type"] == "SUBMISSION"]

    def job(self, job_id: str) -> Job:
        """Returns the job of that submission id, or of Ray's own job id. Raises JobNotFound."""
        jobs = self.jobs()
        for job in jobs:
            if job_id in (job.submission_id, job.job_id):
                return job
        latest = ", ".join(job.submission_id for job in jobs[-5:][::-1])
        hint = f"the latest jobs are {latest}" if jobs else "./invokew submit starts one"
        raise JobNotFound(f"Ray has no job {job_id!r}", hint=hint)

    def output(self, submission_id: str) -> str:
        """Returns all that the job has printed so far."""
        return str(self._get(f"/api/jobs/{submission_id}/logs")["logs"])

    def stop(self, submission_id: str) -> None:
        """Asks Ray to stop a job; it does nothing to one that has ended."""
        self._ask("POST", f"/api/jobs/{submission_id}/stop")

    def output_end(self, job: Job, lines: int) -> str:
        """Returns the last lines that the job has printed, at most 2 MB of them. Raises NotRunning."""
        # Without the node, Ray 2.60 answers 500, though it could find it by the submission id.
        query = {"submission_id": job.submission_id, "node_id": job.node_id, "lines": str(lines)}
        url = f"{self.url}/api/v0/logs/file"
        end = b""
        try:
            with self._session.get(url, params=query, timeout=self._patience, stream=True) as answer:
                answer.raise_for_status()
                for piece in answer.iter_content(65536):
                    end = (end + piece)[-_LONGEST_END:]
        except requests.RequestException:
            raise NotRunning(
                f"Ray gives no output of job {job.submission_id}",
                hint="./invokew status says whether Ray is whole",
            ) from None
        return end.decode(errors="replace")

    def follow(self, submission_id: str) -> Iterator[str]:
        """Yields what the job prints, in pieces as it comes, until it has ended. Raises NotRunning."""
        import websocket

        url = f"{self.url.replace('http', 'ws', 1)}/api/jobs/{submission_id}/logs/tail"
        header = [f"Authorization: {self._session.headers['Authorization']!s}"]
        try:
            # We open the socket ourselves, or the library would ask a proxy of the environment.
            parts = urlsplit(self.url)
            address = parts.hostname or "", parts.port or 80
            connection = socket.create_connection(address, timeout=self._patience[0])
            with connection:
                require_own(connection, self._trusted)
                connection.settimeout(None)
                stream = websocket.create_connection(url, header=header, socket=connection)
                while piece := stream.recv():
                    yield str(piece)
        except (websocket.WebSocketException, OSError) as error:
            raise NotRunning(
                f"the dashboard at {self.url} closed the job's output: {error}",
                hint="./invokew status shows what is left",
            ) from None

    def cluster_status(self) -> dict[str, Any]:
        """Returns what Ray's autoscaler knows of the resources in use, and of those asked for."""
        return dict(self._get("/api/cluster_status"))

    def workers_with_debugger(self) -> set[str]:
        """Returns the ids of the live workers whose debugger has been opened, paused now or not."""
        rows = self._rows("workers", [("is_alive", "=", "True"), ("debugger_port", "!=", "0")])
        return {row["worker_id"] for row in rows if row["debugger_port"]}

    def debuggable(self) -> list[DebuggableWorker]:
        """Returns the live workers and drivers whose debugger has been opened: one request."""
        rows = self._rows("workers", [("is_alive", "=", "True"), ("debugger_port", "!=", "0")])
        # Ray counts a port that was never set as one that is not 0.
        return [_debuggable(row) for row in rows if row["debugger_port"]]

    def end_of(self, worker_id: str) -> str | None:
        """Returns why a worker has ended, with its last task's error; None while Ray takes it for alive."""
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
            since = _time(row["start_time_ms"]) if row["start_time_ms"] else ""
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

        `running` is for who has the running tasks already.
        """
        workers = self._rows("workers", [("num_paused_threads", "!=", "0"), ("is_alive", "=", "True")])
        if not workers:
            return []
        tasks = (running or self.running_tasks)()
        # In a threaded actor more tasks may run than are paused, and Ray does not say which are: the latest
        # are the likeliest.
        waiting = [
            _waiting(worker, task)
            for worker in workers
            for task in _own(worker, tasks)[: worker["num_paused_threads"]] or [RunningTask("", "", "")]
        ]
        return sorted(waiting, key=lambda task: (task.since, task.worker_id))

    def table(self, name: str, *without: tuple[str, str], **fields: str) -> list[dict[str, Any]]:
        """Returns those rows of a State API table, such as `tasks`, whose fields have these values.

        `without` are fields, each with a value that it does not have.
        """
        others = [(field, "!=", value) for field, value in without]
        return self._rows(name, [*((field, "=", value) for field, value in fields.items()), *others])

    def _rows(self, resource: str, filters: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
        parameters: list[tuple[str, str]] = [("detail", "1"), ("limit", str(MOST_ROWS))]
        for key, predicate, value in filters:
            parameters += [("filter_keys", key), ("filter_predicates", predicate), ("filter_values", value)]
        answer = self._get(f"/api/v0/{resource}", parameters)
        return list(answer["data"]["result"]["result"])

    def _get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> Any:
        return self._ask("GET", path, params=list(parameters))

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            answer = self._session.request(method, self.url + path, timeout=self._patience, **more)
            answer.raise_for_status()
            return answer.json()
        except requests.HTTPError as error:
            refused = error.response.status_code in (401, 403)
            why = "refuses our token: it is another Ray" if refused else f"failed: {error}"
            raise NotRunning(f"the dashboard at {self.url} {why}", hint="./invokew doctor") from None
        except requests.ReadTimeout:
            raise NotRunning(
                f"the dashboard at {self.url} gave no answer within {self._patience[1]:g} s",
                hint="./invokew logs --ray says more",
            ) from None
        except (requests.RequestException, ValueError):
            raise NotRunning(
                f"no Ray dashboard answers at {self.url}", hint="./invokew up starts one"
            ) from None


def read_job(row: Mapping[str, Any]) -> Job:
    """Returns the job of a row of `Dashboard.job_rows`."""
    driver = row.get("driver_info") or {}
    return Job(
        submission_id=row["submission_id"],
        job_id=row.get("job_id"),
        status=row["status"],
        entrypoint=row["entrypoint"],
        message=row.get("message") or "",
        exit_code=row.get("driver_exit_code"),
        started=(row.get("start_time") or 0) / 1000,
        driver_pid=int(driver["pid"]) if driver.get("pid") else None,
        metadata=row.get("metadata") or {},
        runtime_env=row.get("runtime_env") or {},
        node_id=row.get("driver_node_id") or "",
    )


def _debuggable(row: dict[str, Any]) -> DebuggableWorker:
    driver = row["worker_type"] == "DRIVER"
    return DebuggableWorker(
        worker_id=row["worker_id"],
        node_ip=row["ip"],
        port=row["debugger_port"],
        pid=row["pid"],
        driver=driver,
        job_id=_job_of_driver(row["worker_id"]) if driver else "",
        since=_time(row["start_time_ms"]),
    )


def _own(worker: dict[str, Any], tasks: Mapping[str, Sequence[RunningTask]]) -> Sequence[RunningTask]:
    if worker["worker_type"] == "DRIVER":
        return [RunningTask("driver", _job_of_driver(worker["worker_id"]), "")]
    return tasks.get(worker["worker_id"], [])


def _job_of_driver(worker_id: str) -> str:
    # It is ComputeDriverIdFromJob of Ray's C++ core: the job's four bytes, then ones (seen on 2.60).
    return worker_id[:8]


def _waiting(worker: dict[str, Any], task: RunningTask) -> WaitingTask:
    return WaitingTask(
        worker_id=worker["worker_id"],
        pid=worker["pid"],
        job_id=task.job_id or "",
        task=task.name or "",
        since=task.since or _time(worker["start_time_ms"]),
        host=worker["ip"],
        port=worker["debugger_port"],
    )


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
