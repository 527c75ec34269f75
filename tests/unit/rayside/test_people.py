"""Tests several people on one Ray: their names, whose jobs each sees, and what the relay asks Ray for it."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bootstrap.given_settings import parse
from bootstrap.instance import configured, read
from bootstrap.settings import Settings
from bootstrap.targets import choice
from bootstrap.targets.existing_cluster import Cluster
from rayside.console import Console
from rayside.errors import InvalidSetting
from rayside.own_folder import make_own
from rayside.ray.jobs import Submission
from rayside.ray.metadata import USER, USER_VARIABLE
from rayside.ray.records import jobs_for, read_job
from rayside.ray.state import LAG
from rayside.relay.debuggee import MOST_TRIES, AttachTries, Debuggee
from rayside.system.shell import Shell
from rayside.users import OF_A_RUN, is_name, own_name, sees
from rayside.verbs import relay_requests as paused
from rayside.verbs.cluster_job import ClusterJob
from rayside.worker import driver, handshake
from tests.unit.rayside.test_paused import access_of
from tests.unit.rayside.test_relay_process import JOBS, WORKERS, Clock, cluster
from tests.unit.rayside.test_state import JOB, TASK, WORKER, Recorded

URL = "http://head.example:8265"
ANNAS = {**JOB, "metadata": {USER: "anna"}}
BOBS = {**JOB, "job_id": "03000000", "submission_id": "j2", "metadata": {USER: "bob"}, "start_time": 2e12}
NOBODYS = {**JOB, "job_id": "04000000", "submission_id": "j3", "metadata": {}, "start_time": 3e12}
BY_HAND = {
    **{**JOB, "job_id": "05000000", "submission_id": None, "type": "DRIVER", "metadata": {}},
    "runtime_env": {"env_vars": {USER_VARIABLE: "bob"}},
}
NOT_PAUSED = {**WORKER, "num_paused_threads": 0}


annas_cluster = partial(cluster, user="anna")

# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anna", "Anna Müller", "安娜", "a" * 64])
def test_these_are_names(name: str) -> None:
    assert is_name(name)
    assert parse({"user": name}).user == name


@pytest.mark.parametrize("name", [" anna", "anna\n", "an\x1bna", "\u202eanna", "a" * 65])
def test_what_is_no_name_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InvalidSetting, match="user is"):
        parse({"user": name})


def test_a_users_own_name_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")
    assert own_name() == "anna"

    def nobody() -> str:
        raise KeyError("uid not found")

    for unusable in (nobody, lambda: "\x1b[2J", lambda: ""):
        monkeypatch.setattr(getpass, "getuser", unusable)
        assert own_name() == f"uid-{os.getuid()}"


# --- whose a job is ----------------------------------------------------------------------------


def test_a_job_says_whose_it_is_in_its_metadata_or_its_environment() -> None:
    jobs = [read_job(row) for row in (ANNAS, BOBS, NOBODYS, BY_HAND)]
    assert [job.user for job in jobs] == ["anna", "bob", "", "bob"]
    assert [job.job_id for job in jobs_for("anna", jobs)] == ["02000000", "04000000"]
    assert jobs_for("", jobs) == jobs


@pytest.mark.parametrize("claim", [7, ["anna"], "an\nna", "\u202eanna", "a" * 65])
def test_what_can_be_nobodys_name_is_none(claim: Any) -> None:
    assert read_job({**JOB, "metadata": {USER: claim}}).user == ""
    assert read_job({**JOB, "metadata": {}, "runtime_env": {"env_vars": [claim]}}).user == ""


def test_submit_says_whose_the_job_is_on_a_ray_that_others_use() -> None:
    assert USER not in Submission("python x.py", "/code").all_metadata()
    target = choice.choose(Settings(address=URL, user="anna"), Shell())
    assert isinstance(target, Cluster)
    job = target.access.completed(Submission("python x.py", "/code"))
    assert job.all_metadata()[USER] == "anna"


def test_a_driver_by_hand_passes_on_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def hooked(env: dict[str, Any], *_: object) -> dict[str, Any]:
        return env

    monkeypatch.setattr(driver, "hooked", hooked)
    assert USER_VARIABLE not in driver.on_init_by_hand({})["env_vars"]
    monkeypatch.setenv(USER_VARIABLE, "anna")
    assert driver.on_init_by_hand({"env_vars": {"A": "1"}})["env_vars"] == {"A": "1", USER_VARIABLE: "anna"}


# --- whose an instance is ----------------------------------------------------------------------


def test_an_instance_on_a_ray_of_others_keeps_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    settings = Settings(address=URL, state_folder=tmp_path)
    assert [configured(settings, target).user for target in ("local", "kind")] == ["", ""]
    assert choice.choose(settings, Shell()).instance.user == "root"
    identity = choice.choose(replace(settings, user="anna"), Shell()).instance
    make_own(identity.folder)
    identity.record.write_text(identity.document())
    assert choice.choose(settings, Shell()).instance.user == "anna"
    with pytest.raises(
        InvalidSetting, match=r"user is bob, and the cluster rayside \(.*\) was made with anna"
    ):
        choice.choose(replace(settings, user="bob"), Shell())
    # An earlier version wrote none.
    earlier = {key: value for key, value in json.loads(identity.document()).items() if key != "user"}
    identity.record.write_text(json.dumps(earlier))
    recorded = read(identity.location)
    assert recorded is not None and recorded.user == ""
    assert choice.choose(settings, Shell()).instance.user == "root"


# --- what the relay asks of Ray ----------------------------------------------------------------


def test_a_job_that_rays_list_of_jobs_does_not_have_yet_is_nobodys_to_take() -> None:
    clock = Clock()
    dashboard, debuggees = annas_cluster(clock, workers=[NOT_PAUSED], tasks=[TASK], jobs=[BOBS])
    (unknown,) = debuggees.look()
    assert (unknown.job_id, unknown.user) == ("", "")
    dashboard.answers["jobs"] = [BOBS, ANNAS]
    clock.now += 1.0
    (known,) = debuggees.look()
    assert (known.job_id, known.user) == ("02000000", "anna")


def test_who_waits_in_a_breakpoint_is_left_until_it_is_known_whose_it_is() -> None:
    clock = Clock()
    dashboard, debuggees = annas_cluster(clock, workers=[WORKER], tasks=[], jobs=[ANNAS])
    assert debuggees.look() == []
    clock.now += 1.0
    dashboard.answers["tasks"] = [TASK]
    assert [each.user for each in debuggees.look()] == ["anna"]
    dashboard.answers |= {"tasks": [], "workers": [WORKER, {**WORKER, "worker_id": "w2"}]}
    assert [each.worker_id for each in debuggees.look()] == ["w1"]
    # Ray may never say it.
    clock.now += LAG
    assert [each.worker_id for each in debuggees.look()] == ["w1", "w2"]
    # On a Ray that is one's own nothing is waited for.
    assert len(cluster(workers=[WORKER], tasks=[], jobs=[])[1].look()) == 1


def test_the_workers_of_a_new_job_cost_one_request_however_many_ask() -> None:
    dashboard, debuggees = annas_cluster(jobs=[ANNAS, BY_HAND])

    async def ask(job_id: str) -> list[str]:
        return await asyncio.gather(*(debuggees.submission(job_id) for _ in range(200)))

    assert set(asyncio.run(ask("02000000"))) == {"j1"}
    assert debuggees.user("02000000") == "anna"
    # Nor does a job that nobody submitted.
    assert set(asyncio.run(ask("05000000"))) == {""}
    assert debuggees.user("05000000") == "bob"
    assert dashboard.paths == [JOBS]


def test_a_look_that_began_before_the_job_is_not_the_last_word_on_it() -> None:
    dashboard, debuggees = annas_cluster(jobs=[])

    async def ask() -> list[str]:
        first = asyncio.ensure_future(debuggees.submission("02000000"))
        await asyncio.sleep(0)
        second = await debuggees.submission("03000000")
        return [await first, second]

    looks = iter(([], [ANNAS, BOBS]))
    dashboard.all_jobs = lambda: [read_job(row) for row in next(looks)]  # type: ignore[method-assign]
    assert asyncio.run(ask()) == ["j1", "j2"]


@pytest.mark.parametrize("user", ["anna", ""])
def test_known_workers_of_many_people_cost_one_request_a_look(user: str) -> None:
    workers = [{**NOT_PAUSED, "worker_id": f"w{n}"} for n in range(100)]
    tasks = [{**TASK, "worker_id": f"w{n}", "job_id": f"0{n % 2 + 2}000000"} for n in range(100)]
    dashboard, debuggees = cluster(user=user, workers=workers, tasks=tasks, jobs=[ANNAS, BOBS])
    assert len(debuggees.look()) == 100
    dashboard.paths.clear()
    assert {each.user for each in debuggees.look()} == {"anna", "bob"}
    assert dashboard.paths == [WORKERS]


def test_a_waiting_task_of_a_new_job_is_not_shown_as_nobodys() -> None:
    task = {**TASK, "job_id": "03000000"}
    dashboard, debuggees = annas_cluster(workers=[WORKER], tasks=[task], jobs=[BOBS])
    for _ in range(2):
        (waiting,) = asyncio.run(debuggees.waiting())
        assert (waiting.user, dashboard.paths.count(JOBS)) == ("bob", 1)


SERVES = "09000000"  # Ray's list lacks this job.


def test_a_job_that_rays_list_of_jobs_lacks_is_looked_for_once() -> None:
    dashboard, debuggees = annas_cluster(jobs=[ANNAS])

    async def ask() -> list[str]:
        return await asyncio.gather(*(debuggees.submission(SERVES) for _ in range(200)))

    assert set(asyncio.run(ask())) == {""}
    # The first look may be older than the job.
    assert dashboard.paths == [JOBS] * 2
    asyncio.run(ask())
    assert dashboard.paths == [JOBS] * 2
    # It may come to be the last driver of its submission.
    dashboard.answers["jobs"] = [{**BOBS, "job_id": SERVES}]
    dashboard.answers |= {"workers": [], "tasks": []}
    debuggees.look()
    assert (asyncio.run(ask())[0], debuggees.user(SERVES)) == ("j2", "bob")


def test_neither_waiting_nor_running_tasks_of_such_a_job_cost_a_request_for_good() -> None:
    clock, task = Clock(), {**TASK, "job_id": SERVES}
    dashboard, debuggees = annas_cluster(clock, workers=[WORKER], tasks=[task], jobs=[ANNAS])
    for _ in range(2):
        asyncio.run(debuggees.waiting())
        assert dashboard.paths.count(JOBS) == 1
    debuggees.look()
    dashboard.paths.clear()
    debuggees.look()
    assert dashboard.paths == [WORKERS]


# --- what a process says of itself -------------------------------------------------------------


@pytest.fixture
def ray_that_knows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this process a Ray with that metadata of its job; `asked`: whether it was asked for it before."""

    def give(metadata: Any, *, asked: bool) -> None:
        asking = SimpleNamespace(get_job_config=lambda: SimpleNamespace(metadata=metadata))
        worker = SimpleNamespace(connected=True, core_worker=asking, current_job_id=None)
        for name in ("ray", "ray._private"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        for name, content in (
            ("ray._private.worker", {"global_worker": worker}),
            ("ray._raylet", {"job_config_initialized": asked}),
        ):
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)

    return give


def test_a_process_says_whose_it_is_as_far_as_it_knows(
    monkeypatch: pytest.MonkeyPatch, ray_that_knows: Callable[..., None]
) -> None:
    monkeypatch.delenv(USER_VARIABLE, raising=False)
    assert handshake.claims({}, "") == {"job": "", "submission": "", "user": ""}
    assert handshake.claims({}, "opener")["user"] == "opener"
    monkeypatch.setenv(USER_VARIABLE, "anna")
    assert handshake.claims({}, "opener")["user"] == "anna"
    of_bob = {USER: "bob", "job_submission_id": "j2"}
    assert handshake.claims(of_bob, "")["user"] == "bob"
    ray_that_knows({**of_bob, "more": "x"}, asked=True)
    assert handshake.claims({}, "opener") == {"job": "", "submission": "j2", "user": "bob"}
    ray_that_knows({USER: "b" * 1000, "job_submission_id": "j" * 1000}, asked=True)
    lengths = {name: len(claim) for name, claim in handshake.claims({}, "").items()}
    assert lengths == {"job": 0, "submission": 200, "user": 64}


@pytest.mark.parametrize(
    ("metadata", "asked"),
    [
        # Ray would keep the empty answer, and the worker would be without the job's namespace.
        ({USER: "bob"}, False),
        # Another Ray than those we know harms nobody.
        *((metadata, True) for metadata in (None, 7, ["x"], RuntimeError)),
    ],
)
def test_a_ray_that_nobody_has_asked_yet_is_not_asked_and_another_one_says_nothing(
    metadata: Any, asked: bool, ray_that_knows: Callable[..., None]
) -> None:
    ray_that_knows(metadata, asked=asked)
    assert handshake.metadata() == {}


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"metadata": null}', '{"metadata": 7}'])
def test_a_submission_with_an_unreadable_job_is_nobodys(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", config)
    assert handshake.metadata() == {}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"metadata": {USER: "bob"}}))
    assert handshake.metadata() == {USER: "bob"}


# --- tries -------------------------------------------------------------------------------------


def test_what_somebody_else_debugs_is_tried_again_ever_more_seldom() -> None:
    clock, debuggee = Clock(), Debuggee("w1", "h", 1, 2, "h")
    tries, waits = AttachTries(clock), list[float]()
    for _ in range(8):
        began = clock.now
        tries.taken(debuggee)
        while not tries.may(debuggee):
            clock.now += 0.5
        waits.append(clock.now - began)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert tries.may(replace(debuggee, worker_id="w2"))


def test_what_fails_is_tried_so_often_and_no_more() -> None:
    tries, debuggee = AttachTries(Clock()), Debuggee("w1", "h", 1, 2, "h")
    for _ in range(MOST_TRIES):
        assert tries.may(debuggee)
        tries.failed(debuggee)
    assert not tries.may(debuggee)
    other = replace(debuggee, port=2)
    tries.give_up(other)
    assert not tries.may(other)


# --- what is shown -----------------------------------------------------------------------------


def test_the_newest_job_is_ones_own_unless_one_is_named_or_all_are_asked_for() -> None:
    dashboard = Recorded(jobs=[ANNAS, BOBS])
    asked = ((None, "anna"), (None, ""), ("j2", "anna"))
    watched = [ClusterJob(dashboard, *which).submitted() for which in asked]
    assert [job and job.submission_id for job in watched] == ["j1", "j2", "j2"]


def test_breakpoints_lists_ones_own_and_says_whose_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(port: int, command: str, arguments: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        users = ["anna", "bob"] if arguments.get("everyone") else ["anna"]
        times = {"since": "2026-01-01T00:00:41Z", "held": False}
        tasks = [
            {"worker_id": user, "node_ip": "n", "pid": 1, "job_id": "1", "task": f"of {user}", "user": user}
            for user in users
        ]
        return {"tasks": [{**task, **times} for task in tasks], "problem": "", "hidden": 2 - len(users)}

    monkeypatch.setattr(paused, "ask", ask)
    access = access_of(tmp_path, user="anna")
    paused.breakpoints(access, Console())
    shown = capsys.readouterr().out
    assert "Paused in jobs of others: 1 (--everyone lists them)" in shown
    assert ("of anna" in shown, "of bob" in shown) == (True, False)
    paused.breakpoints(access, Console(), everyone=True)
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert rows[:3] == ["task", "of anna", "of bob"]
    paused.breakpoints(access, Console(True), everyone=True)
    assert [row["user"] for row in json.loads(capsys.readouterr().out)] == ["anna", "bob"]


def test_a_program_sees_its_own_alone_and_not_what_is_nobodys() -> None:
    mine, other = f"{OF_A_RUN}1", f"{OF_A_RUN}2"
    assert [sees(mine, of) for of in (mine, other, "", "ann")] == [True, False, False, False]
    assert [sees("ann", of) for of in ("ann", "", mine)] == [True, True, False]
