"""Tests the relay as a process: what it asks of Ray and when, how it is started, and its container."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.instance import configured
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.workspace_image import workspace_image
from bootstrap.steps.local_ray import RayHead
from rayside.dap.paused_task import PausedTask
from rayside.debugger_files import DEBUGGER
from rayside.errors import NotRunning
from rayside.own_folder import make_own
from rayside.ray.job_folders import PathMap
from rayside.ray.metadata import WORKING_DIR
from rayside.ray.records import Job, RunningTask
from rayside.relay.cluster import ClusterDebuggees
from rayside.relay.config import Config, Masking
from rayside.relay.fan_out import allow_many_files
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.head_relay import HeadRelay
from rayside.steps.preflight import Preflight
from rayside.steps.relay_process import LocalRelay
from rayside.steps.step import Condition
from rayside.system import marks
from rayside.system.processes import created
from rayside.system.shell import Shell
from tests.unit.rayside.test_state import JOB, TASK, WORKER, Recorded

WORKERS, TASKS, JOBS = "/api/v0/workers", "/api/v0/tasks", "/api/jobs/"


class Clock:
    """Holds the time, which a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def cluster(
    clock: Clock | None = None, *, user: str = "", **answers: Any
) -> tuple[Recorded, ClusterDebuggees]:
    dashboard = Recorded(**answers)
    return dashboard, ClusterDebuggees(dashboard, user=user, clock=clock or Clock())


# --- the process -----------------------------------------------------------------------------


def test_it_may_have_more_open_files_than_systems_start_programs_with() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
    try:
        allow_many_files()
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert allowed == (65_536 if most == resource.RLIM_INFINITY else min(65_536, most))


# --- what it asks of Ray -----------------------------------------------------------------


def test_a_worker_is_named_by_its_task_and_job_and_a_driver_without_a_task() -> None:
    _, debuggees = cluster(workers=[WORKER], tasks=[TASK], jobs=[JOB])
    (debuggee,) = asyncio.run(debuggees.debuggees())
    assert (debuggee.worker_id, debuggee.host) == ("w1", "127.0.0.2")
    assert (debuggee.port, debuggee.pid) == (52381, 3575)
    assert (debuggee.task, debuggee.job_id, debuggee.submission_id) == ("my_task", "02000000", "j1")
    assert debuggee.since == "2026-11-21T11:12:47Z"
    driver = {**WORKER, "worker_type": "DRIVER", "worker_id": "02000000" + 48 * "f"}
    (debuggee,) = cluster(workers=[driver], tasks=[], jobs=[JOB])[1].look()
    assert (debuggee.task, debuggee.job_id, debuggee.submission_id) == ("driver", "02000000", "j1")


def test_no_worker_costs_one_request_a_look() -> None:
    clock = Clock()
    dashboard, debuggees = cluster(clock, workers=[], jobs=[JOB])
    for _ in range(50):
        assert debuggees.look() == []
        clock.now += 0.2
    assert dashboard.paths.count(WORKERS) == 50
    assert dashboard.paths.count(JOBS) == len(dashboard.paths) - 50 <= 10, "more than one a second besides"


def test_a_new_worker_is_asked_for_at_once() -> None:
    dashboard, debuggees = cluster(workers=[WORKER], tasks=[TASK], jobs=[JOB])
    debuggees.look()
    dashboard.answers["workers"] = [WORKER, {**WORKER, "worker_id": "w2"}]
    dashboard.paths.clear()
    debuggees.look()
    assert sorted(dashboard.paths) == sorted([WORKERS, JOBS, TASKS])


def test_a_worker_that_ray_can_not_name_is_asked_for_ever_more_seldom() -> None:
    clock = Clock()
    dashboard, debuggees = cluster(clock, workers=[WORKER], tasks=[], jobs=[JOB])
    (debuggee,) = debuggees.look()
    assert (debuggee.task, debuggee.job_id, debuggee.submission_id) == ("", "", "")
    assert debuggee.since == "2026-11-21T11:12:47Z"
    seconds = []
    for _ in range(600):
        clock.now += 0.2
        dashboard.paths.clear()
        debuggees.look()
        seconds += [round(clock.now - 1000)] * (dashboard.paths[-2:] == [JOBS, TASKS])
    assert seconds == [1, 3, 7, 15, 31, 61, 91]


def test_where_files_lie_is_mapped_anew_only_where_jobs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, mapped = Clock(), list[int]()

    def of(jobs: Iterable[Job]) -> PathMap:
        mapped.append(len([*jobs]))
        return PathMap()

    monkeypatch.setattr("rayside.relay.cluster.PathMap.of", of)
    dashboard, debuggees = cluster(clock, workers=[], jobs=[JOB])
    for _ in range(10):
        clock.now += 1.1
        debuggees.look()
    assert dashboard.paths.count(JOBS) == 10
    dashboard.answers["jobs"] = [JOB, {**JOB, "submission_id": "j2"}]
    clock.now += 1.1
    debuggees.look()
    assert mapped == [1, 2]


def test_a_worker_bears_the_name_of_the_task_that_it_runs_now_as_far_as_ray_knows() -> None:
    clock = Clock()
    dashboard, debuggees = cluster(clock, workers=[WORKER], tasks=[], jobs=[JOB])
    debuggees.look()
    # The table of tasks has caught up.
    dashboard.answers["tasks"] = [TASK]
    clock.now += 1.0
    (debuggee,) = debuggees.look()
    assert (debuggee.task, debuggee.submission_id) == ("my_task", "j1")
    dashboard.answers["tasks"] = [{**TASK, "name": "the_next"}]
    names = []
    for _ in range(20):
        clock.now += 0.2
        (debuggee,) = debuggees.look()
        names.append(debuggee.task)
    assert (names[0], names[-1]) == ("my_task", "the_next")
    dashboard.answers["tasks"] = []
    clock.now += 3.1
    (idle,) = debuggees.look()
    assert (idle.task, idle.job_id) == ("", "02000000")
    # Ray's table lags, so that it knows nothing of the last moments.
    assert idle.as_of == clock.now - 3.0


class Slow(Recorded):
    """Takes a second for its table of tasks."""

    def __init__(self, clock: Clock, **answers: Any) -> None:
        super().__init__(**answers)
        self.clock = clock

    def running_tasks(self) -> dict[str, list[RunningTask]]:
        self.clock.now += 1.0
        return super().running_tasks()


def test_a_task_table_that_takes_long_is_asked_for_the_more_seldom() -> None:
    clock = Clock()
    dashboard = Slow(clock, workers=[WORKER], tasks=[TASK], jobs=[JOB])
    debuggees = ClusterDebuggees(dashboard, clock=clock)
    began = clock.now
    while clock.now < began + 100:
        clock.now += 0.2
        debuggees.look()
    assert dashboard.paths.count(TASKS) == 5


def test_a_job_stays_known_when_its_worker_is_idle_and_goes_with_it() -> None:
    clock = Clock()
    dashboard, debuggees = cluster(clock, workers=[WORKER], tasks=[TASK], jobs=[JOB])
    debuggees.look()
    dashboard.answers.update(workers=[WORKER, {**WORKER, "worker_id": "w2"}], tasks=[])
    idle = debuggees.look()[0]
    assert (idle.task, idle.job_id, idle.submission_id) == ("", "02000000", "j1")
    dashboard.answers["workers"] = []
    assert debuggees.look() == []
    dashboard.answers["workers"] = [WORKER]
    assert debuggees.look()[0].job_id == ""


def test_the_folders_of_the_jobs_are_known_with_the_first_worker() -> None:
    job = {**JOB, "metadata": {WORKING_DIR: "/home/x/code"}}
    _, debuggees = cluster(workers=[WORKER], tasks=[], jobs=[job])
    assert debuggees.local_roots() == {}
    debuggees.look()
    assert debuggees.local_roots() == {"_ray_pkg_9e9d6e2076c1b321": ["/home/x/code"]}


def test_who_asks_meanwhile_gets_the_same_look_at_what_waits() -> None:
    dashboard, debuggees = cluster(workers=[WORKER], tasks=[TASK])

    async def several() -> list[list[PausedTask]]:
        return await asyncio.gather(*(debuggees.waiting() for _ in range(5)))

    paused = PausedTask("w1", "127.0.0.2", 3575, "02000000", "my_task", "2026-11-21T11:12:47Z", held=False)
    assert asyncio.run(several()) == [[paused]] * 5
    assert sorted(dashboard.paths) == sorted([WORKERS, TASKS])


def test_a_table_that_takes_long_is_read_the_more_seldom_for_what_waits() -> None:
    clock = Clock()
    dashboard = Slow(clock, workers=[WORKER], tasks=[])
    debuggees = ClusterDebuggees(dashboard, clock=clock)
    (unnamed,) = asyncio.run(debuggees.waiting())
    assert unnamed.task == ""
    dashboard.answers["tasks"] = [TASK]
    for _ in range(9):
        clock.now += 2.0
        assert asyncio.run(debuggees.waiting()) == [unnamed]
    clock.now += 2.0
    (named,) = asyncio.run(debuggees.waiting())
    assert named.task == "my_task"
    assert (dashboard.paths.count(WORKERS), dashboard.paths.count(TASKS)) == (11, 2)


def test_a_dashboard_that_hangs_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(Recorded):
        def _get(self, path: str, parameters: Any = ()) -> Any:
            released.wait(5)
            return super()._get(path, parameters)

    released = threading.Event()
    monkeypatch.setattr("rayside.relay.cluster.LOOK", 0.01)

    async def story() -> None:
        try:
            with pytest.raises(NotRunning, match="did not answer within"):
                await ClusterDebuggees(Hangs(workers=[])).debuggees()
        finally:
            released.set()

    asyncio.run(story())


# --- its configuration -------------------------------------------------------------------


def test_the_configuration_is_read_back_as_it_was_and_no_other(tmp_path: Path) -> None:
    config = Config("127.0.0.1", 5678, "http://127.0.0.1:8265", Path("/x/token"), shared_files=False)
    file = tmp_path / "relay.json"
    for each in (config, replace(config, masking=Masking("*iban*", r"DE\d+", by_value=True))):
        file.write_text(each.document())
        assert Config.read(file, {}) == each
    for text in ("", "[]", "{}", '{"host": "127.0.0.1", "port": "x"}'):
        file.write_text(text)
        with pytest.raises((ValueError, KeyError, TypeError)):
            Config.read(file)


def test_no_token_is_in_what_is_written_of_a_relay(tmp_path: Path) -> None:
    masking = Masking("*iban*", r"DE\d+", by_value=True, token="a-token")
    config = Config("127.0.0.1", 5678, "http://127.0.0.1:8265", Path("/x/token"), False, masking)
    assert json.loads(config.document())["masking"] == {
        "names": "*iban*",
        "values": r"DE\d+",
        "by_value": True,
    }
    instance = replace(configured(Settings(), "local"), location=tmp_path)
    preflight: Any = Preflight
    head = ExistingRay(instance, preflight)
    make_own(instance.folder)
    head.token.write_text("a-token")
    relay = HeadRelay(instance, head, lambda: contextlib.nullcontext(""), masking)
    assert "a-token" not in json.dumps(relay._spec)


# --- the step of `local` -----------------------------------------------------------------


@pytest.fixture
def step(tmp_path: Path) -> LocalRelay:
    settings = Settings(relay_port=15678, dashboard_port=18265)
    instance = replace(configured(settings, "local"), location=tmp_path)
    head = RayHead(Shell(), settings, instance, Path("/venv/bin"))
    return LocalRelay(Shell(), instance, head, Masking("*iban*"))


def record(step: LocalRelay, pid: int, created: float) -> None:
    step.process.record.file.write_text(json.dumps({"pid": pid, "created": created, "spec": step.spec}))


def test_the_step_is_missing_without_a_process(step: LocalRelay) -> None:
    assert step.check().detail == "not running"
    record(step, 2**22 + 1, 1.0)
    step.log.write_text("first\nlast words\n")
    status = step.check()
    assert status.condition is Condition.MISSING
    assert status.detail == f"its process {2**22 + 1} has ended; its log ends: last words"


def test_a_relay_of_another_head_or_configuration_is_replaced(step: LocalRelay, tmp_path: Path) -> None:
    this_process = os.getpid(), created(os.getpid())
    record(step, *this_process)
    (tmp_path / "ray.json").write_text('{"pid": 1, "created": 2.0, "spec": {}}')
    assert step.check().condition is Condition.MISSING
    record(step, *this_process)
    ports = replace(step.instance.ports, relay=15679)
    other = replace(step, instance=replace(step.instance, ports=ports))
    assert other.check().condition is Condition.MISSING
    assert "other settings" in other.check().detail


def test_the_process_runs_on_rays_python_and_no_secret_is_in_its_arguments_or_environment(
    step: LocalRelay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert step.command() == [
        *("/venv/bin/python", "-m", "rayside.relay", "--config"),
        str(tmp_path / "relay.json"),
    ]
    environment = step.process.environment()
    assert (environment[marks.RELAY], environment["PYTHONPATH"]) == (str(tmp_path), str(ROOT))
    assert "secret" not in environment.values()
    assert json.loads(step._config.document()) == {
        "host": "127.0.0.1",
        "port": 15678,
        "dashboard": "http://127.0.0.1:18265",
        "token_file": str(tmp_path / "token"),
        "shared_files": True,
        "rays_token": True,
        "user": "",
        "masking": {"names": "*iban*", "values": "", "by_value": False},
    }


# --- the container -----------------------------------------------------------------------


def pods() -> dict[str, dict[str, Any]]:
    """Returns the head's pod in each manifest."""
    standing = yaml.safe_load((ROOT / "k8s" / "ray-cluster.yaml").read_text())["spec"]
    job = yaml.safe_load((ROOT / "example" / "ray-job.interactive-mode.yaml").read_text())["spec"]
    heads = {"standing": standing, "rayjob": job["rayClusterSpec"]}
    return {name: spec["headGroupSpec"]["template"]["spec"] for name, spec in heads.items()}


@pytest.mark.parametrize("name", ["standing", "rayjob"])
def test_the_container_has_the_token_and_no_right_that_it_does_not_need(name: str) -> None:
    pod = pods()[name]
    containers = {each["name"]: each for each in pod["containers"]}
    container, workspace = containers["relay"], containers["workspace"]
    assert container["image"] == workspace["image"]
    # The rest, which it has in common with every container: test_manifests.py.
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not {"ports", "env", "envFrom", "readinessProbe", "livenessProbe", "startupProbe"} & set(container)
    assert container["resources"]["limits"]["memory"] == "256Mi"

    # The token comes as a file where the relay looks.
    files, mount = container["volumeMounts"]
    # What the workspace's editor shares with the head, to map its paths.
    assert (files["mountPath"], files["readOnly"]) == ("/tmp/ray", True)
    config = Config.read(ROOT / "image" / "workspace" / "relay.json")
    assert config.token_file == Path(mount["mountPath"]) / "auth_token"
    assert mount["readOnly"] is True
    volume = next(each for each in pod["volumes"] if each["name"] == mount["name"])
    assert set(volume) & {"secret", "emptyDir"}
    # The workspace's editor, whose users may do what the token allows, has it in the same place.
    assert mount in workspace["volumeMounts"]
    assert config.shared_files is False, "editors are on other machines than workers, unless they say so"
    assert (config.host, config.port, config.dashboard) == ("127.0.0.1", 5678, "http://127.0.0.1:8265")


def test_the_relays_code_is_in_the_images_tag(tmp_path: Path) -> None:
    image = workspace_image("rayside/ray:x", tmp_path)
    assert set(image.extra) >= {f"rayside/{file}" for file in DEBUGGER}
    changed = tmp_path / "server.py"
    changed.write_text("# other code\n")
    other = replace(image, extra={**image.extra, "rayside/rayside/relay/server.py": changed})
    assert other.reference != image.reference
