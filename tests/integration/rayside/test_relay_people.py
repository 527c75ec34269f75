"""Tests relays of several people over one real process: whose it is, who is told what, and who gets it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.paused_task import PausedTask
from rayside.relay.config import digest_of
from rayside.relay.debuggee import Debuggee
from rayside.relay.server import Relay
from rayside.worker.attach import UNCHECKED
from rayside.worker.handshake import proof
from tests.integration.relay_debuggees import TOKEN, Finding, Session
from tests.patience import PATIENCE

JOB = "01000000"
PROGRAM = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from rayside.worker import attach, handshake, listener
attach.rays_token = lambda: sys.argv[2].encode()
handshake.job = lambda: "01000000"
if sys.argv[4] == "old":
    receive = listener._receive
    def without_user(*how):
        request = receive(*how)
        request.get("arguments", {}).pop("user", None)
        return request
    listener._receive = without_user
had_by = []
takes = listener.Listener._takes
def noted(own, connection, user):
    had_by.append(user)
    return takes(own, connection, user)
listener.Listener._takes = noted
print(attach.listen("127.0.0.1", user=sys.argv[3], by_driver=json.loads(sys.argv[5])), flush=True)
import debugpy, pydevd
for step in (1, 2, 3):
    debugpy.wait_for_client()
    pydevd.settrace(stop_at_frame=sys._getframe())
    print(step, flush=True)
"""


class Worker(Finding):
    """A process that waits for a debugger before each of its steps, and stops there; a `Discovery` of it.

    Attributes:
        users: the users' names that Ray's tables have, by job.
        listed: whether Ray's list of jobs has the job.
        looks: is notified of each look.
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.users, self.looks = process, dict[str, str](), asyncio.Condition()
        self.listed = True
        self._debuggee = Debuggee(
            *("w1", "127.0.0.1", port, process.pid, "127.0.0.1"), prove=partial(proof, TOKEN.encode())
        )

    async def printed(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode().strip()

    async def seen(self, times: int) -> None:
        """Waits until it was looked at that often again."""
        async with self.looks:
            for _ in range(times):
                await asyncio.wait_for(self.looks.wait(), PATIENCE)

    async def debuggees(self) -> list[Debuggee]:
        async with self.looks:
            self.looks.notify_all()
        return [self._debuggee]

    async def submission(self, job_id: str) -> str:
        return f"submission-of-{job_id}" if self.listed else ""

    def user(self, job_id: str) -> str:
        return self.users.get(job_id, "")


@asynccontextmanager
async def worker(
    folder: Path,
    *,
    opened_for: str = "",
    hook: str = "new",
    by_driver: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Worker]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    arguments = (ROOT, TOKEN, opened_for, hook, json.dumps(by_driver or {}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, script, *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **UNCHECKED, **(variables or {})},
    )
    assert process.stdout is not None
    try:
        port = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE))
        yield Worker(process, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Editors:
    """Attaches editors to the relays of several people over one worker; `log` has what the relays logged."""

    def __init__(self, worker: Worker) -> None:
        self.log: list[str] = []
        self._worker, self._ports = worker, dict[str, int]()
        self._relays: list[Relay] = []
        self._clients: list[Client] = []

    async def of(self, user: str, **arguments: Any) -> Session:
        """Returns an editor of that user's, attached with these arguments."""
        if user not in self._ports:
            relay = Relay(self._worker, digest=digest_of(TOKEN), log=self.log.append, user=user)
            self._relays.append(relay)
            self._ports[user] = (await relay.serve("127.0.0.1", 0)).sockets[0].getsockname()[1]
        client = await Client.connect("127.0.0.1", self._ports[user])
        self._clients.append(client)
        rules = [{"module": "__main__", "include": True}]
        await client.attach(options={"token": TOKEN, "rules": rules, **arguments}, no_delay=False)
        return Session(client, patience=PATIENCE)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        for relay in self._relays:
            await relay.close()
        assert not [line for line in self.log if "defect" in line]


@asynccontextmanager
async def people(worker: Worker) -> AsyncIterator[Editors]:
    editors = Editors(worker)
    try:
        yield editors
    finally:
        await editors.close()


async def told(editor: Session, words: str) -> str:
    while True:
        text = str((await editor.event("output"))["output"])
        if words in text:
            return text


BY_RAY = "by Ray's tables"
BY_PROCESS: dict[str, dict[str, Any]] = {
    "by who opened it": {"opened_for": "bob"},
    "by its driver": {"by_driver": {"rayside.user": "bob"}, "variables": {"RAYSIDE_USER": "carol"}},
    "by its environment": {"variables": {"RAYSIDE_USER": "bob"}, "opened_for": "anna"},
    "by its submission": {
        "variables": {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"metadata": {"rayside.user": "bob"}})}
    },
}


@pytest.mark.parametrize("whose", [BY_RAY, *BY_PROCESS])
async def test_a_worker_whose_job_nobody_knows_yet_comes_to_its_own_users_editor(
    tmp_path: Path, whose: str
) -> None:
    async with worker(tmp_path, **BY_PROCESS.get(whose, {})) as process, people(process) as editors:
        process.users = {JOB: "bob"} if whose == BY_RAY else {}
        process.listed = whose == BY_RAY
        annas = await editors.of("anna")
        await told(annas, "Jobs of bob are left out here")
        bobs = await editors.of("bob")
        stop = await bobs.event("stopped")
        assert await bobs.evaluate(stop, "step") == "1"
        await process.seen(5)
        await annas.nothing("stopped")
        # Nobody's way was barred meanwhile.
        assert await bobs.evaluate(stop, "had_by") == "['bob']"
        await bobs.resume(stop)
        assert await process.printed() == "1"


@pytest.mark.parametrize("asks", [{"everyone": True}, {"job": f"submission-of-{JOB}"}])
async def test_who_asks_for_anothers_is_told_who_debugs_it_and_gets_it_when_it_is_left(
    tmp_path: Path, asks: dict[str, Any]
) -> None:
    async with worker(tmp_path) as process, people(process) as editors:
        process.users = {JOB: "bob"}
        bobs = await editors.of("bob")
        stop = await bobs.event("stopped")
        annas = await editors.of("anna", **asks)
        assert "idle · " in await told(annas, "bob debugs it.")
        await process.seen(10)
        await annas.nothing("stopped")
        assert not [event for event in annas.unmatched if "debugs it" in str(event)], "it is told once"
        assert await bobs.evaluate(stop, "step") == "1"
        await bobs.client.disconnect()
        assert await process.printed() == "1"
        stop = await annas.event("stopped")
        assert await annas.evaluate(stop, "step") == "2"
        # A stop of the one is no stop of the other's editor that comes back.
        bobs = await editors.of("bob")
        assert "anna debugs it." in await told(bobs, "debugs it.")
        await bobs.nothing("stopped")


async def test_a_task_of_a_driver_that_rays_list_of_jobs_lacks_is_found_by_its_submission(
    tmp_path: Path,
) -> None:
    by_driver = {"job_submission_id": "submission-1", "rayside.user": "bob"}
    async with worker(tmp_path, by_driver=by_driver) as process, people(process) as editors:
        process.listed = False

        async def waiting() -> list[PausedTask]:
            return [PausedTask("w1", "n", 1, JOB, "", "")]

        process.waiting = waiting  # type: ignore[method-assign]
        annas = await editors.of("anna", job="submission-2")
        while not (answer := await annas.request("pausedTasks"))["hidden"]:
            await process.seen(1)
        assert answer["tasks"] == []
        await annas.nothing("stopped")
        annas = await editors.of("anna", job="submission-1")
        stop = await annas.event("stopped")
        assert await annas.evaluate(stop, "had_by") == "['anna']"


async def test_a_hook_of_before_that_says_nothing_of_itself_is_attached_to_all_the_same(
    tmp_path: Path,
) -> None:
    async with worker(tmp_path, hook="old") as process, people(process) as editors:
        bobs = await editors.of("bob")
        stop = await bobs.event("stopped")
        annas = await editors.of("anna")
        await told(annas, "another debugger is attached to this process")
        await bobs.resume(stop)
        assert await process.printed() == "1"


async def test_the_paused_tasks_of_others_are_counted_and_shown_to_who_asks(tmp_path: Path) -> None:
    async with worker(tmp_path) as process, people(process) as editors:

        async def waiting() -> list[PausedTask]:
            users = ("anna", "bob", "")
            return [PausedTask(f"w{user}", "n", 1, JOB, f"of {user}", "", user=user) for user in users]

        process.waiting = waiting  # type: ignore[method-assign]
        process.users = {JOB: "bob"}
        annas = await editors.of("anna")
        answers = [await annas.request("pausedTasks", everyone=everyone) for everyone in (False, True)]
        listed = [(sorted(row["user"] for row in answer["tasks"]), answer["hidden"]) for answer in answers]
        assert listed == [(["", "anna"], 1), (["", "anna", "bob"], 0)]
        refused = await annas.client.answer("pausedTasks", {"everyone": "yes"})
        assert (refused["success"], refused["message"]) == (False, "`everyone` has to be true or false")
