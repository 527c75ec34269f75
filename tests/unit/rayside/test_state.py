"""Tests that the State API's rows, as recorded from Ray 2.60, become paused tasks and jobs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from rayside.errors import CredentialsRefused, JobNotFound, NotAttachable, NotRay, NotReady, NotRunning
from rayside.ray import authentication, job_processes, own_job
from rayside.ray.own_job import OwnJob
from rayside.ray.state import Dashboard
from tests.http_servers import answering, says
from tests.patience import PATIENCE

WORKER = {
    "worker_id": "w1",
    "is_alive": True,
    "worker_type": "WORKER",
    "ip": "127.0.0.2",
    "pid": 3575,
    "start_time_ms": 1795259567001,
    "debugger_port": 52381,
    "num_paused_threads": 1,
}
TASK = {
    "name": "my_task",
    "job_id": "02000000",
    "worker_id": "w1",
    "state": "RUNNING",
    "start_time_ms": 1795259567005.0,
}
JOB: dict[str, Any] = {
    "type": "SUBMISSION",
    "job_id": "02000000",
    "submission_id": "j1",
    "driver_info": {"id": "02000000", "node_ip_address": "127.0.0.2", "pid": "3543"},
    "status": "RUNNING",
    "entrypoint": "python sample_code.py",
    "message": "Job is currently running.",
    "start_time": 1795259563439,
    "metadata": {"a": "b"},
    "runtime_env": {"working_dir": "gcs://_ray_pkg_9e9d6e2076c1b321.zip"},
    "driver_exit_code": None,
}


class Recorded(Dashboard):
    """Answers from a record; anything that is not in it is a KeyError."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.answers = answers
        self.paths: list[str] = []

    def _get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> Any:
        self.paths.append(path)
        if path == "/api/jobs/":
            return self.answers["jobs"]
        return {"data": {"result": {"result": self.answers[path.removeprefix("/api/v0/")]}}}


def test_a_paused_worker_is_joined_with_its_task_if_there_is_one() -> None:
    # Nothing more is asked for.
    assert Recorded(workers=[]).waiting() == []
    (paused,) = Recorded(workers=[WORKER], tasks=[TASK]).waiting()
    assert (paused.worker_id, paused.pid, paused.job_id, paused.task) == ("w1", 3575, "02000000", "my_task")
    assert paused.since == "2026-11-21T11:12:47Z"
    assert (paused.host, paused.port) == ("127.0.0.2", 52381)
    # The table of tasks lags.
    (paused,) = Recorded(workers=[WORKER], tasks=[]).waiting()
    assert (paused.task, paused.job_id) == ("", "")


def test_of_a_threaded_actor_as_many_tasks_are_listed_as_are_paused() -> None:
    tasks = [{**TASK, "name": f"A.m{i}", "start_time_ms": 1795259567005.0 + i} for i in range(3)]
    paused = Recorded(workers=[{**WORKER, "num_paused_threads": 2}], tasks=tasks).waiting()
    assert sorted(task.task for task in paused) == ["A.m1", "A.m2"]


def test_a_drivers_job_is_told_by_its_id() -> None:
    driver = {**WORKER, "worker_type": "DRIVER", "worker_id": "02000000" + 48 * "f"}
    dashboard = Recorded(workers=[driver], tasks=[])
    (paused,), (worker,) = dashboard.waiting(), dashboard.debuggable()
    assert (paused.task, paused.job_id) == ("driver", "02000000")
    assert (worker.driver, worker.job_id) == (True, "02000000")


def test_jobs_are_found_by_either_id_and_ordered_by_start() -> None:
    older = {**JOB, "submission_id": "j0", "job_id": None, "start_time": 1, "driver_info": None}
    dashboard = Recorded(jobs=[JOB, older, {"type": "DRIVER"}])
    assert [job.submission_id for job in dashboard.jobs()] == ["j0", "j1"]
    assert dashboard.job("02000000").submission_id == "j1"
    with pytest.raises(JobNotFound, match="'j9'") as caught:
        dashboard.job("j9")
    assert caught.value.hint == "the latest jobs are j1, j0"


def test_a_worker_with_an_open_debugger_is_debuggable_paused_or_not() -> None:
    never_opened = {**WORKER, "worker_id": "w2", "debugger_port": None}
    attached = {**WORKER, "worker_id": "w3", "num_paused_threads": 0}
    dashboard = Recorded(workers=[WORKER, never_opened, attached])
    first, second = dashboard.debuggable()
    assert (first.worker_id, first.node_ip, first.port, first.pid) == ("w1", "127.0.0.2", 52381, 3575)
    assert (first.driver, first.job_id, first.since) == (False, "", "2026-11-21T11:12:47Z")
    assert second.worker_id == "w3"
    assert dashboard.paths == ["/api/v0/workers"]


ACTOR = {"node_id": "n1", "pid": 3575, "actor_id": "a1", "job_id": "02000000", "class_name": "A"}


@pytest.mark.parametrize(("port", "paused", "is_open"), [(0, 0, False), (52381, 1, False), (52381, 0, True)])
def test_a_job_is_open_once_a_process_of_it_can_be_reached_that_does_not_pause_by_itself(
    port: int, paused: int, is_open: bool
) -> None:
    worker = {**WORKER, "node_id": "n1", "debugger_port": port, "num_paused_threads": paused}
    dashboard = Recorded(workers=[worker], tasks=[], actors=[ACTOR])
    assert job_processes.is_open(dashboard, "02000000") is is_open
    assert not job_processes.is_open(dashboard, "03000000")


def test_a_job_that_has_not_joined_ray_yet_is_told_from_one_that_does_not_run() -> None:
    ended = {**JOB, "submission_id": "j0", "status": "FAILED"}
    dashboard = Recorded(jobs=[{**JOB, "job_id": None}, ended], workers=[], tasks=[], actors=[])
    with pytest.raises(NotAttachable, match="job j1 is RUNNING, and has not joined Ray yet"):
        job_processes.processes_of(dashboard, "j1")
    for id in ("j0", "nobody"):
        with pytest.raises(JobNotFound, match=f"nothing that runs now is of .*'{id}'"):
            job_processes.processes_of(dashboard, id)


def test_a_job_of_ours_that_does_not_end_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Recorded):
        def stop(self, submission_id: str) -> None:
            assert submission_id == self.answers["jobs"][0]["submission_id"]
            self.answers["jobs"][0]["status"] = "STOPPED"

        def forget(self, submission_id: str) -> None:
            self.answers["jobs"].clear()

    dashboard = Full(jobs=[])

    def submit(submission_id: str) -> None:
        dashboard.answers["jobs"].append({**JOB, "submission_id": submission_id, "status": "PENDING"})

    monkeypatch.setattr(own_job, "_WRITTEN_ANEW", 0.1)
    with pytest.raises(NotReady, match=r"a job of Rayside's is PENDING in Ray still, after 0\.1 s"):
        OwnJob(dashboard, "rayside-attach", longest=0.1).run(submit)
    assert dashboard.answers["jobs"] == []


def test_running_tasks_are_by_worker_the_latest_first() -> None:
    later = {**TASK, "name": "later", "start_time_ms": 1795259568005.0}
    starting = {**TASK, "name": "starting", "worker_id": "w2", "start_time_ms": None}
    running = Recorded(tasks=[TASK, later, starting]).running_tasks()
    assert [task.name for task in running["w1"]] == ["later", "my_task"]
    assert (running["w1"][1].job_id, running["w1"][1].since) == ("02000000", "2026-11-21T11:12:47Z")
    assert [(task.name, task.since) for task in running["w2"]] == [("starting", "")]


def test_a_dashboard_that_hangs_is_told_from_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NotRunning, match=rf"the dashboard at {url} gave no answer within 0\.2 s"):
            Dashboard(url, "token", patience=(2, 0.2)).version()
    with pytest.raises(NotRunning, match=f"no Ray dashboard answers at {url}"):
        Dashboard(url, "token").version()


@pytest.mark.parametrize("token", ["hunter\n2", "hunter 2", "hunter\x002", "hunter\u20282"])
def test_a_token_that_no_header_takes_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(CredentialsRefused, match="a line break or another character") as caught:
        Dashboard("http://127.0.0.1:1", authentication.token("", {"RAY_AUTH_TOKEN": token}))
    assert "hunter" not in str(caught.value.document())


# --- where the token goes ----------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda dashboard: dashboard.version(), id="GET"),
        pytest.param(lambda dashboard: dashboard.forget("j1"), id="DELETE"),
        pytest.param(lambda dashboard: dashboard.submit("true", "j1", {}), id="POST"),
        pytest.param(lambda dashboard: dashboard.head_log(), id="stream"),
        pytest.param(lambda dashboard: list(dashboard.follow("j1")), id="websocket"),
        pytest.param(lambda dashboard: authentication.mode(dashboard.url), id="mode"),
    ],
)
def test_a_dashboard_can_send_us_to_no_other_server(asked: Callable[[Dashboard], object]) -> None:
    others: list[str] = []

    def other(request: BaseHTTPRequestHandler) -> None:
        others.append(request.path)
        says(request, 404)

    def redirects(request: BaseHTTPRequestHandler) -> None:
        scheme = "ws" if request.headers["Upgrade"] else "http"
        says(request, 307, Location=f"{scheme}://127.0.0.1:{port}/internal")

    refused = pytest.raises((NotRunning, NotRay))
    with answering(other) as port, answering(redirects) as asked_port, refused:
        asked(Dashboard(f"http://127.0.0.1:{asked_port}", "token"))
    assert others == []


def test_output_is_not_followed_in_clear_text_where_the_address_is_https() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:

        def received() -> bytes:
            connection, _ = server.accept()
            with connection:
                return connection.recv(4096)

        first = thread.submit(received)
        with pytest.raises(NotRunning, match="closed the job's output"):
            list(Dashboard(f"https://127.0.0.1:{server.getsockname()[1]}", "token").follow("j1"))
        # A handshake of TLS.
        assert first.result(PATIENCE)[:1] == b"\x16"
