"""Tests the relay over scripted debuggees: what it requests of them, when and how often, and refusals.

Nothing here depends on what debugpy makes of it: that is what the other tests of the relay are about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from rayside.dap.client import Client
from rayside.dap.framing import Message, as_json
from rayside.dap.paused_task import PausedTask
from rayside.errors import NotRunning, RequestFailed
from rayside.relay import connection, dispatch, lifecycle
from rayside.relay.config import digest_of
from rayside.relay.connection import call
from rayside.relay.debuggee import Debuggee, let_child_go
from rayside.relay.lifecycle import BESIDE, POLLS_MISSED, SETTLING
from rayside.relay.server import Relay
from rayside.relay.thread_rows import ThreadRows
from rayside.worker import tracing
from rayside.worker.children import EVENT as CHILD
from tests.at_once import AT_ONCE
from tests.integration.relay_debuggees import TOKEN, Finding, Session, Wire
from tests.integration.scripted_debuggees import FILE, ScriptedDebuggee
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate
SLEEP, WAKE = call(tracing.sleep), call(tracing.wake)


class Scripted(ScriptedDebuggee):
    """Plays a debuggee that keeps what it was asked.

    Attributes:
        requests: every request, in order.
        dialled: when somebody connected.
        left: when it was told that its client goes.
        refuses: commands that it says no to.
        deaf_to: commands that it never answers.
        says: the body of its answer, by command, where it is not the usual one.
        fileless: whether it has no file at all.
        rude: whether it closes every connection at once.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.requests: list[Message] = []
        self.dialled: list[float] = []
        self.left: list[float] = []
        self.refuses: set[str] = set()
        self.deaf_to: set[str] = set()
        self.says: dict[str, Message] = {}
        self.fileless = False
        self.rude = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled.append(time.monotonic())
        if self.rude:
            writer.close()
        else:
            await super()._serve(reader, writer)

    def _answer(self, request: Message) -> None:
        self.requests.append(request)
        command = request["command"]
        if command == "disconnect":
            self.left.append(time.monotonic())
        if command in self.refuses:
            self._respond(request, None)
        elif command not in self.deaf_to:
            super()._answer(request)

    def _body(self, command: str, arguments: Message) -> Message | None:
        return self.says.get(command) or super()._body(command, arguments)

    def _value(self, expression: str) -> str:
        return "null" if self.fileless and "line_table" in expression else super()._value(expression)

    def answers(self, command: str) -> None:
        """Answers the requests that it was deaf to."""
        self.deaf_to.discard(command)
        for request in [each for each in self.requests if each["command"] == command]:
            self._respond(request, self._body(command, request.get("arguments", {})) or {})
        if command == "configurationDone":
            self._respond(self._attach, {})

    def received(self, command: str) -> list[Message]:
        """Returns the arguments of each request of that name."""
        return [request.get("arguments", {}) for request in self.requests if request["command"] == command]

    def evaluated(self, expression: str) -> int:
        """Returns how often it evaluated that."""
        return sum(arguments["expression"] == expression for arguments in self.received("evaluate"))


class Listed(Finding):
    """A `Discovery` that finds what a test lists.

    Attributes:
        waits: the tasks that wait for a debugger.
        looks: when it was asked.
        blind: for how many looks more it finds nothing.
        takes: seconds for each.
        error: raised by each.
    """

    def __init__(self, debuggees: Sequence[Debuggee]) -> None:
        self.listed = list(debuggees)
        self.waits: list[PausedTask] = []
        self.looks: list[float] = []
        self.blind = 0
        self.takes = 0.0
        self.error: Exception | None = None
        self.submissions: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    async def debuggees(self) -> list[Debuggee]:
        self.looks.append(time.monotonic())
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        self.blind -= 1
        return [] if self.blind >= 0 else list(self.listed)

    async def waiting(self) -> list[PausedTask]:
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return list(self.waits)

    async def submission(self, job_id: str) -> str:
        return self.submissions.get(job_id, "")

    def user(self, job_id: str) -> str:
        return self.users.get(job_id, "")

    async def why_ended(self, debuggee: Debuggee) -> str:
        return self.reasons.get(debuggee.worker_id, "")


class Setting:
    """Holds a relay over scripted debuggees.

    Attributes:
        log: what it logged.
    """

    def __init__(self, debuggees: list[Scripted]) -> None:
        self.debuggees = debuggees
        self.discovery = Listed([debuggee.debuggee for debuggee in debuggees])
        self.log: list[str] = []
        self.relay = Relay(self.discovery, digest=digest_of(TOKEN), log=self.log.append)
        self.port = 0
        self._clients: list[Client] = []

    async def attach(self, lines: Sequence[int] = (), **options: Any) -> Session:
        """Attaches an editor; `lines` are breakpoints in FILE."""
        client = await Client.connect("127.0.0.1", self.port)
        self._clients.append(client)
        await client.attach(
            breakpoints={FILE: [{"line": line} for line in lines]} if lines else {},
            options={"token": TOKEN, "allThreads": True, **options},
            no_delay=False,
        )
        return Session(client)

    async def configured(self) -> Wire:
        """Returns a connection that has attached, and has sent its configuration."""
        wire = await Wire.open(self.port)
        await wire.ask("attach", token=TOKEN, allThreads=True)
        await wire.ask("configurationDone")
        return wire

    async def stopped(self, session: Session, number: int = 1) -> Message:
        """Returns the stop of the debuggee of that number, counted from 1."""
        debuggee = self.debuggees[number - 1]
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        debuggee.stop()
        while True:
            stop = await session.event("stopped")
            if stop["ray"]["workerId"] == debuggee.debuggee.worker_id or stop["ray"]["pid"] == number:
                return stop

    async def close(self) -> None:
        for debuggee in self.debuggees:
            debuggee.deaf_to = set()
        await asyncio.wait_for(self.relay.close(), PATIENCE)
        for client in self._clients:
            client.close()
            await asyncio.wait_for(client.closed.wait(), PATIENCE)
        for debuggee in self.debuggees:
            await debuggee.close()

    async def paused(self) -> set[str]:
        """Returns the workers that the relay says are stopped, to any client."""
        wire = await Wire.open(self.port)
        answer = await wire.ask("pausedTasks", token=TOKEN)
        await wire.close()
        return {row["worker_id"] for row in answer["body"]["tasks"]}

    async def looked(self, count: int) -> None:
        """Waits until Ray was asked that many times more."""
        until_then = len(self.discovery.looks) + count
        await until(lambda: len(self.discovery.looks) >= until_then)

    async def settled(self) -> None:
        """Waits until Ray was asked twice after the time in which the relay does not attach again."""
        then = time.monotonic() + SETTLING
        await until(lambda: sum(look > then for look in self.discovery.looks) >= 2)


@asynccontextmanager
async def scripted(count: int = 1, *, defects: bool = False) -> AsyncIterator[Setting]:
    """Plays debuggees, and a relay over them; `defects` says whether that is to log a defect."""
    debuggees = [Scripted(number) for number in range(1, count + 1)]
    for debuggee in debuggees:
        await debuggee.listen()
    setting = Setting(debuggees)
    server = await setting.relay.serve("127.0.0.1", 0)
    setting.port = server.sockets[0].getsockname()[1]
    try:
        yield setting
    finally:
        await setting.close()
    assert defects == any("defect" in line or "Error" in line for line in setting.log), setting.log


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        await asyncio.sleep(0.02)


# --- found, left, ended ------------------------------------------------------------------


async def test_children_that_a_debuggee_tells_of_are_attached_to_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "MOST_CHILDREN", 2)

    async with scripted(count=4) as setting:
        parent, *started = setting.debuggees
        setting.discovery.listed = [parent.debuggee]
        session = await setting.attach()
        await asyncio.wait_for(parent.attached.wait(), PATIENCE)
        for body in ({"pid": 7}, {"pid": 7, "port": 0}, {"pid": 7, "port": 70_000}, {"pid": "7", "port": 1}):
            parent.say({"event": CHILD, "body": body})
        for child in started:
            parent.say({"event": CHILD, "body": {"pid": child.number, "port": child.port}})
        said = await session.event("output", category="console")
        assert "has 2 children: further ones run on" in said["output"]
        for child in started[:2]:
            await asyncio.wait_for(child.attached.wait(), PATIENCE)
        assert started[2].connections == 0
        await until(lambda: parent.evaluated(let_child_go({"pid": started[2].number})) == 1)
        await setting.looked(POLLS_MISSED + 3)  # Ray does not list them, and they stay
        assert [name for name in (await session.threads()).values() if name.startswith("child ")] == [
            f"child process · {child.number}@127.0.0.1" for child in started[:2]
        ]
        stop = await setting.stopped(session, 2)
        assert stop["ray"]["workerId"] == "w1.2"


async def test_an_editor_that_wants_no_children_gets_none() -> None:
    async with scripted(count=2) as setting:
        parent, child = setting.debuggees
        setting.discovery.listed = [parent.debuggee]
        await setting.attach(children=False)
        await asyncio.wait_for(parent.attached.wait(), PATIENCE)
        parent.say({"event": CHILD, "body": {"pid": 2, "port": child.port}})
        # It was asked by an earlier editor, and must not wait for this one.
        await until(lambda: parent.evaluated(let_child_go({"pid": 2})) == 1)
        assert child.connections == 0


async def test_a_debuggee_that_was_left_is_not_dialled_again_at_once() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        for _ in range(2):
            session = await setting.attach()
            await until(lambda: debuggee.connected)
            await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
            await session.request("disconnect")
        assert debuggee.connections == 2
        # Half a second: debugpy's adapter may never answer whoever comes sooner.
        assert debuggee.dialled[1] - debuggee.left[0] >= 0.5


async def test_a_debuggee_that_ray_does_not_list_for_a_moment_stays() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        stop = await setting.stopped(session)
        for _ in range(2):
            setting.discovery.blind = 5
            await until(lambda: setting.discovery.blind < 0)
        await session.nothing("thread", 0, reason="exited")
        assert setting.debuggees[0].connected
        setting.discovery.listed = []
        # Ray has forgotten it, though its connection never ended: its node is gone, for example.
        await session.event("thread", reason="exited", threadId=stop["threadId"])
        assert list((await session.threads()).values()) == ["Ray cluster"]
        assert len(setting.debuggees[0].left) == 1


async def test_a_debuggee_that_ended_is_left_alone_while_ray_lists_it_and_tried_for_the_next_editor() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        frame = (await session.frames(await setting.stopped(session)))[0]["id"]
        debuggee.drop()
        await session.event("thread", reason="exited")
        await setting.settled()
        assert debuggee.connections == 1
        with pytest.raises(RequestFailed, match="is not known"):
            await session.request("scopes", frameId=frame)
        session = await setting.attach()
        await setting.stopped(session)
        assert debuggee.connections == 2


async def test_what_speaks_no_dap_is_tried_three_times_and_told_once() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.rude = True
        session = await setting.attach()
        await until(lambda: len(debuggee.dialled) == 3)
        await setting.settled()
        assert len(debuggee.dialled) == 3
        assert "can't be attached to, in 3 tries" in (await session.event("output"))["output"]
        await session.nothing("output", 0)


async def test_a_debuggee_that_refuses_is_told_and_not_tried_again() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.refuses = {"initialize"}
        session = await setting.attach()
        output = await session.event("output", category="console")
        assert "refused to attach" in output["output"]
        await setting.settled()
        assert len(debuggee.dialled) == 1
        assert list((await session.threads()).values()) == ["Ray cluster"]


async def test_a_debuggee_of_another_job_is_asked_for_it_once() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="")]
        await setting.attach(job="another")
        await until(lambda: len(debuggee.left) == 1)
        await setting.settled()
        assert len(debuggee.dialled) == 1
        assert not debuggee.received("configurationDone")  # it waits on


async def test_a_debuggee_that_took_long_is_left_alone_as_long_before_it_is_tried_again() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="")]
        debuggee.deaf_to = {"evaluate"}
        await setting.attach(job="another")
        await until(lambda: bool(debuggee.received("evaluate")))
        await asyncio.sleep(3 * SETTLING)
        debuggee.answers("evaluate")
        await until(lambda: len(debuggee.left) == 1)
        session = await setting.attach()
        await setting.stopped(session)
        assert debuggee.dialled[1] - debuggee.left[0] >= 3 * SETTLING


@pytest.mark.parametrize("takes_over", [True, False])
async def test_what_was_attached_to_for_an_earlier_editor_is_tried_for_the_next(takes_over: bool) -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="")]
        debuggee.deaf_to = {"evaluate"}
        session = await setting.attach(job="another")
        await until(lambda: bool(debuggee.received("evaluate")))  # for its job
        if not takes_over:
            await session.request("disconnect")
        session = await setting.attach()
        # Only now is it known that the one before did not want it.
        debuggee.answers("evaluate")
        await setting.stopped(session)


async def test_a_debuggee_that_is_known_to_be_of_another_job_is_not_dialled() -> None:
    async with scripted(count=2) as setting:
        ours, other = setting.debuggees
        setting.discovery.listed = [
            replace(ours.debuggee, submission_id="ours"),
            replace(other.debuggee, submission_id="theirs"),
        ]
        await setting.attach(job="ours")
        await asyncio.wait_for(ours.attached.wait(), PATIENCE)
        await setting.looked(2)
        assert (ours.connections, other.connections) == (1, 0)


async def test_a_row_has_the_task_that_ray_names_until_a_stop_tells_it() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        setting.discovery.listed = [replace(debuggee.debuggee, task="by_ray")]
        await setting.looked(2)
        assert "by_ray · 1@127.0.0.1" in (await session.threads()).values()
        for debuggee.task in ("task-1", "the next one"):
            stop = await setting.stopped(session)
            assert stop["ray"]["task"] == debuggee.task
            await setting.looked(2)
            assert f"{debuggee.task} · 1@127.0.0.1" in (await session.threads()).values()
            await session.resume(stop)


async def test_an_error_that_nobody_thought_of_does_not_end_the_looking() -> None:
    async with scripted(defects=True) as setting:
        setting.discovery.error = ValueError("not thought of")
        session = await setting.attach()
        await setting.looked(2)
        setting.discovery.error = None
        await setting.stopped(session)
        assert any("not thought of" in line for line in setting.log)


async def test_looking_takes_a_tenth_of_a_slow_ray_at_most() -> None:
    async with scripted() as setting:
        setting.discovery.takes = 0.1
        await setting.attach()
        await setting.looked(3)
        first, second, third = setting.discovery.looks[:3]
        assert min(second - first, third - second) >= 1.0


async def test_a_ray_that_was_slow_once_keeps_new_tasks_from_nobody_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "LONGEST_PAUSE", 0.5)

    async with scripted() as setting:
        setting.discovery.takes = 0.3
        await setting.attach()
        await setting.looked(2)
        first, second = setting.discovery.looks[:2]
        assert second - first < 0.3 * 9


async def test_an_editor_that_comes_in_the_pause_after_a_slow_look_has_ray_asked_at_once() -> None:
    async with scripted() as setting:
        setting.discovery.takes = 0.5
        await setting.attach()
        await until(lambda: len(setting.discovery.looks) == 1)
        setting.discovery.takes = 0.0
        await asyncio.sleep(0.6)  # the look ends, and the pause of 4.5 s begins
        began = time.monotonic()
        await setting.attach()
        await setting.looked(1)
        assert setting.discovery.looks[1] - began < AT_ONCE


async def test_what_is_found_waits_until_an_editor_has_said_what_it_wants() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        listed, setting.discovery.listed = setting.discovery.listed, []
        await setting.attach()
        wire = await Wire.open(setting.port)
        await wire.ask("attach", token=TOKEN)
        setting.discovery.listed = listed
        await setting.looked(3)
        assert debuggee.connections == 0  # else it would run past the breakpoints that are still to come
        await wire.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 2}])
        await wire.ask("configurationDone")
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        commands = [request["command"] for request in debuggee.requests]
        assert commands.index("setBreakpoints") < commands.index("configurationDone")
        await wire.close()


async def test_an_editor_that_goes_while_a_debuggee_is_attached_to_leaves_nothing_behind() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        before = len(asyncio.all_tasks())
        debuggee.deaf_to = {"configurationDone"}
        first = await setting.attach()
        await until(lambda: bool(debuggee.received("configurationDone")))
        debuggee.stop()  # before the answer, as debugpy may
        await first.request("disconnect")
        second = await setting.attach()
        cluster = await second.event("thread", reason="started")
        # Only what is in flight keeps it; and nothing of that concerns the second editor.
        debuggee.answers("configurationDone")
        row = await second.event("thread", reason="started")
        assert debuggee.connections == 2
        assert set(await second.threads()) == {cluster["threadId"], row["threadId"]}
        await second.nothing("thread", 0)
        await second.request("disconnect")
        await until(lambda: len(asyncio.all_tasks()) == before)


async def test_a_debuggee_that_is_left_while_it_is_dialled_is_detached_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        is_reached = asyncio.Event()

        async def connect(*how: Any, **more: Any) -> Client:
            client = await Client.connect(*how, **more)
            await is_reached.wait()
            return client

        monkeypatch.setattr(connection, "Client", SimpleNamespace(connect=connect))
        first = await setting.attach()
        await until(lambda: bool(debuggee.dialled))
        await first.request("disconnect")
        is_reached.set()
        await until(lambda: bool(debuggee.left) and not debuggee.connected)


async def test_a_debuggee_is_not_dialled_again_before_what_is_in_flight_is_answered() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        first = await setting.attach()
        stop = await setting.stopped(first)
        debuggee.deaf_to = {"scopes"}
        frame = (await first.frames(stop))[0]["id"]
        asking = asyncio.ensure_future(first.request("scopes", frameId=frame))
        await until(lambda: bool(debuggee.received("scopes")))
        second = await setting.attach()
        await second.request("disconnect")
        await setting.attach()
        await setting.settled()
        assert (debuggee.connections, debuggee.left) == (1, [])
        debuggee.answers("scopes")
        await until(lambda: debuggee.connections == 2)
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("continues", [False, True])
async def test_what_is_to_stay_paused_is_kept_and_nothing_else(continues: bool) -> None:
    async with scripted(count=3) as setting:
        stopped, runs, late = setting.debuggees
        late.deaf_to = {"configurationDone"}
        session = await setting.attach(keepPaused=True)
        await setting.stopped(session, 1)
        await asyncio.wait_for(runs.attached.wait(), PATIENCE)
        await until(lambda: bool(late.received("configurationDone")))
        late.stop()
        await setting.looked(1)
        await session.request("disconnect")
        await until(lambda: not runs.connected)
        if continues:
            late.say({"event": "continued", "body": {"threadId": 1}})
        late.answers("configurationDone")
        if continues:
            await until(lambda: not late.connected)
        expected = {stopped.debuggee.worker_id} | ({late.debuggee.worker_id} if not continues else set())
        while await setting.paused() != expected:
            await asyncio.sleep(0.02)
        # The relay has read by then what the late one said, and does nothing about it.
        assert [await setting.paused() for _ in range(3)] == [expected] * 3
        assert (stopped.connected, runs.connected, late.connected) == (True, False, not continues)
        await setting.relay.close()
        assert [len(debuggee.left) for debuggee in setting.debuggees] == [1, 1, 1]


# --- what they stop at -------------------------------------------------------------------


async def test_how_debuggees_are_debugged_is_the_editors_and_nothing_else_of_what_it_attached_with() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        # Prints are told in a way of ours (evaluated/prints.py).
        rule = {"path": "/lib/**", "include": False}
        session = await setting.attach(
            justMyCode=False,
            showReturnValue=True,
            subProcess=True,
            job="01000000",
            rules=[rule],
            redirectOutput=True,
        )
        await setting.stopped(session)
        (attached,) = debuggee.received("attach")
        assert (attached["justMyCode"], attached["showReturnValue"]) == (False, True)
        # Ours stay: without them a `breakpoint()` would not stop in the user's frame.
        assert attached["rules"] == [{"module": "ray.util.debugpy", "include": True}, rule]
        assert not {"token", "job", "redirectOutput"} & set(attached)
        assert attached.get("subProcess") is not True


async def test_one_that_comes_later_gets_all_that_was_asked_before_it_moves() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        listed, setting.discovery.listed = setting.discovery.listed, []
        session = await setting.attach([2])
        await session.request("setFunctionBreakpoints", breakpoints=[{"name": "work"}])
        await session.request("setExceptionBreakpoints", filters=["raised"])
        setting.discovery.listed = listed
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        assert [request["breakpoints"] for request in debuggee.received("setBreakpoints")] == [[{"line": 2}]]
        (function,) = debuggee.received("setFunctionBreakpoints")[-1]["breakpoints"]
        assert function["name"] == "work"
        assert debuggee.received("setExceptionBreakpoints")[-1] == {"filters": ["raised"]}
        last = max(n for n, request in enumerate(debuggee.requests) if request["command"].startswith("set"))
        assert [request["command"] for request in debuggee.requests].index("configurationDone") > last


async def test_what_an_earlier_editor_asked_for_is_taken_back() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach([2])
        await session.request("setFunctionBreakpoints", breakpoints=[{"name": "work"}])
        await session.request("setExceptionBreakpoints", filters=["raised"])
        await setting.stopped(session)
        session = await setting.attach()
        await session.event("stopped")
        await until(lambda: debuggee.received("setFunctionBreakpoints")[-1] == {"breakpoints": []})
        assert debuggee.received("setBreakpoints")[-1]["breakpoints"] == []
        assert debuggee.received("setExceptionBreakpoints")[-1] == {"filters": []}
        assert debuggee.connections == 1


async def test_a_breakpoint_is_not_verified_by_a_debuggee_that_has_ended() -> None:
    async with scripted(count=2) as setting:
        has, has_not = setting.debuggees
        has_not.fileless = True
        setting.discovery.listed = [has.debuggee]
        session = await setting.attach()
        await setting.stopped(session)
        set_ = {"source": {"path": "/elsewhere/job.py"}, "breakpoints": [{"line": 2}]}
        assert (await session.request("setBreakpoints", **set_))["breakpoints"][0]["verified"] is True
        has.drop()
        await session.event("thread", reason="exited")
        setting.discovery.listed = [replace(has_not.debuggee, node_ip="127.0.0.2")]  # its files are others
        changed = (await session.event("breakpoint", reason="changed"))["breakpoint"]
        while "No task that is here now has this file" not in changed["message"]:  # but that none has it
            assert changed["verified"] is False
            changed = (await session.event("breakpoint", reason="changed"))["breakpoint"]
        assert changed["verified"] is False


async def test_a_debuggee_watches_its_code_run_only_while_there_is_something_to_stop_at() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees

        def traced() -> list[str]:
            expressions = [arguments["expression"] for arguments in debuggee.received("evaluate")]
            return ["wake" if e == WAKE else "sleep" for e in expressions if e in (WAKE, SLEEP)]

        session = await setting.attach()
        await until(lambda: debuggee.attached.is_set())
        assert traced() == ["sleep"]
        path = {"path": FILE}
        stop = await setting.stopped(session)
        await session.request("setBreakpoints", source=path, breakpoints=[{"line": 2}])
        assert traced() == ["sleep", "wake"]
        # Never one that stands still: it would not step any more.
        await session.request("setBreakpoints", source=path, breakpoints=[])
        await session.frames(stop)  # which it is asked for after whatever that led to
        assert traced() == ["sleep", "wake"]
        await session.resume(stop)
        await session.request("setBreakpoints", source=path, breakpoints=[])
        await until(lambda: traced() == ["sleep", "wake", "sleep"])
        # Stopped, it watches by itself, so that it has to be put to sleep again.
        stop = await setting.stopped(session)
        await session.resume(stop)
        await session.request("setExceptionBreakpoints", filters=[])
        await until(lambda: traced() == ["sleep", "wake", "sleep", "sleep"])
        await session.request("setExceptionBreakpoints", filters=["raised"])
        assert traced()[-1] == "wake"
        await session.request("disconnect")
        await until(lambda: not debuggee.connected)
        assert traced()[-2:] == ["wake", "sleep"]  # nobody is there to stop for


async def test_every_editor_is_told_once_that_its_file_is_another() -> None:
    async with scripted(count=2) as setting:
        source = {"path": FILE, "checksums": [{"algorithm": "MD5"}, {"algorithm": "SHA256", "checksum": "0"}]}
        for _ in range(2):
            session = await setting.attach()
            await setting.stopped(session, 1)
            await setting.stopped(session, 2)
            for _ in range(2):
                await session.request("setBreakpoints", source=source, breakpoints=[{"line": 2}])
            assert "was changed" in (await session.event("output", category="console"))["output"]
            await session.nothing("output", 0.2, category="console")
        # One of them was asked for what is in it, for all of one editor's.
        evaluated = [
            arguments for debuggee in setting.debuggees for arguments in debuggee.received("evaluate")
        ]
        assert sum("line_table" in arguments["expression"] for arguments in evaluated) == 2


# --- how they stop and go on -------------------------------------------------------------


async def test_a_stop_that_comes_before_it_is_attached_is_told_after() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.deaf_to = {"configurationDone"}
        session = await setting.attach()
        await until(lambda: bool(debuggee.received("configurationDone")))
        debuggee.stop()
        await session.nothing("stopped", 0.2)
        assert not debuggee.received("stackTrace")
        debuggee.answers("configurationDone")
        await session.event("stopped")


async def test_frames_that_come_after_their_task_went_on_are_not_known() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        debuggee.deaf_to = {"stackTrace"}
        asking = asyncio.ensure_future(session.frames(stop))
        await until(lambda: len(debuggee.received("stackTrace")) == 2)  # the first was for the task's name
        debuggee.say({"event": "continued", "body": {"threadId": 1}})
        await session.event("continued")
        debuggee.answers("stackTrace")
        with pytest.raises(RequestFailed, match="is not known"):
            await session.request("scopes", frameId=(await asking)[0]["id"])


async def test_what_names_no_task_goes_to_the_one_that_was_dealt_with_last() -> None:
    async with scripted(count=2) as setting:
        session = await setting.attach()
        stops = [await setting.stopped(session, number) for number in (1, 2)]
        for number in (1, 0, 1):
            await session.frames(stops[number])
            await session.request("evaluate", expression="x")
        assert [debuggee.evaluated("x") for debuggee in setting.debuggees] == [1, 2]


async def test_a_move_that_is_refused_leaves_the_task_stopped() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        frame = (await session.frames(stop))[0]["id"]
        debuggee.refuses = {"next", "continue"}
        for command in ("next", "continue"):
            with pytest.raises(RequestFailed):
                await session.request(command, threadId=stop["threadId"])
        await session.nothing("continued", 0.1)
        assert (await session.request("scopes", frameId=frame))["scopes"]
        debuggee.refuses = set()
        body = await session.request("continue", threadId=stop["threadId"])
        assert body == {"allThreadsContinued": False}
        with pytest.raises(RequestFailed, match="is not known"):  # nor are its variables
            await session.request("scopes", frameId=frame)
        with pytest.raises(RequestFailed, match="is not stopped"):
            await session.request("next", threadId=stop["threadId"])
        # As debugpy's own clients do after one `continue` has let all threads of a process go.
        body = await session.request("continue", threadId=stop["threadId"])
        assert body == {"allThreadsContinued": False}
        assert len(debuggee.received("continue")) == 2


async def test_a_task_goes_on_when_the_breakpoints_that_were_asked_for_before_are_set() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        editor = await setting.attach()
        stop = await setting.stopped(editor)
        debuggee.deaf_to = {"setBreakpoints"}
        await editor.request("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 2}])
        assert debuggee.received("setBreakpoints")
        resuming = asyncio.ensure_future(editor.request("continue", threadId=stop["threadId"]))
        await asyncio.sleep(0.3)
        assert not debuggee.received("continue")
        debuggee.answers("setBreakpoints")
        await resuming
        # One that does not answer at all keeps nobody for long.
        stop = await setting.stopped(editor)
        debuggee.deaf_to = {"setBreakpoints"}
        await editor.request("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 3}])
        await asyncio.wait_for(editor.request("continue", threadId=stop["threadId"]), AT_ONCE)
        debuggee.answers("setBreakpoints")


async def test_a_task_goes_on_when_what_was_there_with_it_is_attached_to() -> None:
    async with scripted(count=2) as setting:
        first, second = setting.debuggees
        second.deaf_to = {"configurationDone"}
        editor = await setting.attach()
        stop = await setting.stopped(editor)
        resuming = asyncio.ensure_future(editor.request("continue", threadId=stop["threadId"]))
        await asyncio.sleep(0.3)
        assert not first.received("continue")
        second.answers("configurationDone")
        await resuming
        # What comes later is not waited for, and one that does not answer at all keeps nobody for long.
        stop = await setting.stopped(editor)
        late = Scripted(3)
        await late.listen()
        setting.debuggees.append(late)
        late.deaf_to = {"configurationDone"}
        setting.discovery.listed.append(late.debuggee)
        await until(lambda: bool(late.received("configurationDone")))
        await asyncio.wait_for(editor.request("continue", threadId=stop["threadId"]), AT_ONCE)
        editor = await setting.attach()
        stop = await setting.stopped(editor)
        await asyncio.wait_for(editor.request("continue", threadId=stop["threadId"]), BESIDE + AT_ONCE)
        late.answers("configurationDone")


async def test_a_stop_that_is_over_is_not_told_to_the_next_editor() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        stop = await setting.stopped(session)
        await session.resume(stop)
        session = await setting.attach()
        await session.nothing("stopped", 0.2)
        assert (await setting.stopped(session))["preserveFocusHint"] is False


async def test_the_next_stop_is_told_after_the_answer_to_what_moved_it() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        debuggee.deaf_to = {"next"}
        moving = asyncio.ensure_future(session.request("next", threadId=stop["threadId"]))
        await until(lambda: bool(debuggee.received("next")))
        debuggee.stop()
        await session.nothing("stopped", 0.2)  # an editor would take the answer for its going on
        assert not moving.done()
        debuggee.answers("next")
        await moving
        await session.event("stopped")


async def test_each_thread_of_a_process_goes_on_by_itself_and_those_that_go_with_it_are_told() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        first = await setting.stopped(session)
        frame = (await session.frames(first))[0]["id"]
        debuggee.say({"event": "stopped", "body": {"reason": "breakpoint", "threadId": 7}})
        second = await session.event("stopped")
        other = (await session.frames(second))[0]["id"]
        assert second["threadId"] != first["threadId"]
        await session.resume(second)
        assert debuggee.received("continue")[-1] == {"threadId": 7, "singleThread": True}
        await session.nothing("continued", 0.1)
        assert (await session.request("scopes", frameId=frame))["scopes"]  # it stands still
        with pytest.raises(RequestFailed, match="is not known"):
            await session.request("scopes", frameId=other)
        # debugpy's adapter lets all of them go, and pydevd says so of each.
        for thread in (7, 1):
            body = {"threadId": thread, "allThreadsContinued": False}
            debuggee.say({"event": "continued", "body": body})
        continued = await session.event("continued")
        assert continued == {"threadId": first["threadId"], "allThreadsContinued": False}
        await session.nothing("continued", 0.1)
        with pytest.raises(RequestFailed, match="is not known"):
            await session.request("scopes", frameId=frame)
        # VS Code asks so by itself, late, for a task that another command than its own has moved.
        for command in ("scopes", "evaluate", "continue"):
            arguments = {"frameId": frame, "threadId": 99_999, "expression": "1"}
            refusal = await session.client.answer(command, arguments)
            assert refusal["body"]["error"]["showUser"] is (command == "continue")


async def test_what_an_editor_asks_by_itself_while_a_task_ends_is_no_error_for_people() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        frame = (await session.frames(await setting.stopped(session)))[0]["id"]
        # It has no time to answer any more.
        debuggee.changed = lambda _: b""
        asking = asyncio.create_task(session.client.answer("scopes", {"frameId": frame}))
        await until(lambda: bool(debuggee.received("scopes")))
        debuggee.drop()
        refusal = await asking
        assert "went away" in refusal["message"]
        assert refusal["body"]["error"]["showUser"] is False


async def test_an_answer_for_a_thread_that_stands_is_known_though_another_went_on_meanwhile() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        first = await setting.stopped(session)
        debuggee.say({"event": "stopped", "body": {"reason": "breakpoint", "threadId": 7}})
        second = await session.event("stopped")
        debuggee.deaf_to = {"stackTrace"}
        asking = asyncio.ensure_future(session.frames(first))
        requests = len(debuggee.received("stackTrace"))
        await until(lambda: len(debuggee.received("stackTrace")) > requests)
        await session.resume(second)
        debuggee.answers("stackTrace")
        assert (await session.request("scopes", frameId=(await asking)[0]["id"]))["scopes"]


async def test_a_thread_that_ends_while_it_is_stopped_goes_on_before_it_exits() -> None:
    async with scripted() as setting:
        for process_too in (False, True):
            (debuggee,) = setting.debuggees
            session = await setting.attach()
            stop = await setting.stopped(session)
            if process_too:
                debuggee.drop()
            else:
                debuggee.say({"event": "thread", "body": {"reason": "exited", "threadId": 1}})
            await session.event("thread", reason="exited", threadId=stop["threadId"])
            # nvim-dap would show it as stopped for ever.
            assert [e for e in session.unmatched if e["event"] == "continued"][-1]["body"] == {
                "threadId": stop["threadId"],
                "allThreadsContinued": False,
                "ray": {"reason": "exited"},
            }
            await session.nothing("continued", 0.1, threadId=-1)


async def test_a_debuggee_that_is_killed_by_its_own_continue_does_not_go_on_after_it_exited() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        debuggee.deaf_to = {"continue"}
        going = asyncio.ensure_future(session.request("continue", threadId=stop["threadId"]))
        await until(lambda: bool(debuggee.received("continue")))
        session.unmatched.clear()
        debuggee.drop()
        await session.event("thread", reason="exited", threadId=stop["threadId"])
        assert await going == {"allThreadsContinued": False}
        await session.nothing("continued", 0.1)


async def test_what_ends_while_it_is_stopped_is_told_with_its_reason() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.reasons = {"w1": "SYSTEM_ERROR: killed by \x1b[31m the OOM killer" + 2000 * "!"}
        session = await setting.attach()
        await setting.stopped(session)
        debuggee.drop()
        while "OOM" not in (text := (await session.event("output"))["output"]):
            pass
        assert text.startswith("task-1 · 1@127.0.0.1 has ended while it was stopped: SYSTEM_ERROR: killed by")
        assert len(text) < 1000
        assert "\x1b" not in text


async def test_what_ends_while_it_runs_is_not_explained() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        await session.resume(stop)
        debuggee.drop()
        await session.event("thread", reason="exited")
        await session.nothing("output", 0.1)


async def test_a_stop_takes_three_requests_to_its_process() -> None:
    """A thousand tasks may stop within a second."""

    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        before = len(debuggee.requests)
        assert (await setting.stopped(session))["ray"]["task"] == "task-1"
        commands = sorted(request["command"] for request in debuggee.requests[before:])
        assert commands == ["evaluate", "stackTrace", "threads"]


async def test_an_expression_and_a_set_variable_take_one_request_each() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.says["setVariable"] = {"value": "2"}
        session = await setting.attach()
        frame = (await session.frames(await setting.stopped(session)))[0]["id"]
        scope = (await session.request("scopes", frameId=frame))["scopes"][0]["variablesReference"]
        before = len(debuggee.requests)
        await session.request("evaluate", expression="password", frameId=frame, context="repl")
        await session.request("setVariable", variablesReference=scope, name="v1", value="2")
        commands = [request["command"] for request in debuggee.requests[before:]]
        assert commands == ["evaluate", "setVariable"]


async def test_a_row_is_named_after_the_last_stop_until_ray_knows_what_runs_since() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        setting.discovery.listed = [replace(debuggee.debuggee, task="earlier", as_of=time.monotonic())]
        await session.resume(stop)
        await setting.looked(2)
        assert "task-1 · 1@127.0.0.1" in (await session.threads()).values()
        setting.discovery.listed = [replace(debuggee.debuggee, task="", as_of=time.monotonic())]
        await setting.looked(2)
        assert "idle · 1@127.0.0.1" in (await session.threads()).values()


async def test_a_driver_is_not_asked_for_the_task_that_it_does_not_run() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.listed = [replace(debuggee.debuggee, task="driver", driver=True)]
        session = await setting.attach()
        assert (await setting.stopped(session))["ray"]["task"] == "driver"
        assert not any("].task(" in arguments["expression"] for arguments in debuggee.received("evaluate"))


async def test_a_thread_that_ends_has_no_row_and_is_not_stopped() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        main = (await session.event("thread", reason="started"))["threadId"]  # the cluster's
        main = (await session.event("thread", reason="started"))["threadId"]
        debuggee.say({"event": "stopped", "body": {"reason": "breakpoint", "threadId": 7}})
        stop = await session.event("stopped")
        # What runs tasks is shown as the task, and the thread that waits for it as one of the others.
        await session.event("thread", reason="exited", threadId=main)
        names = [name.partition(" · ")[0] for name in (await session.threads()).values()]
        assert names == ["task-1", "MainThread", "Ray cluster"]
        debuggee.say({"event": "thread", "body": {"reason": "exited", "threadId": 7}})
        await session.event("thread", reason="exited", threadId=stop["threadId"])
        assert list((await session.threads()).values()) == ["Ray cluster"]
        wire = await Wire.open(setting.port)
        assert (await wire.ask("pausedTasks", token=TOKEN))["body"]["tasks"] == []
        await wire.close()


async def test_a_stop_that_is_over_before_its_task_is_known_is_not_told() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        await session.request("threads")
        debuggee.deaf_to = {"stackTrace"}
        debuggee.stop()
        await until(lambda: bool(debuggee.received("stackTrace")))
        debuggee.say({"event": "continued", "body": {"threadId": 1}})
        debuggee.answers("stackTrace")
        await session.nothing("stopped", 0.3)


async def test_the_clusters_row_pauses_what_runs_and_continues_what_is_stopped() -> None:
    async with scripted(count=2) as setting:
        session = await setting.attach()
        cluster = (await session.event("thread", reason="started"))["threadId"]
        await setting.stopped(session, 1)
        await asyncio.wait_for(setting.debuggees[1].attached.wait(), PATIENCE)
        await until(lambda: sum("attached to" in line for line in setting.log) == 2)
        await session.request("pause", threadId=cluster)
        assert [len(debuggee.received("pause")) for debuggee in setting.debuggees] == [0, 1]
        assert setting.debuggees[1].evaluated(WAKE) == 1  # else it would not notice
        await session.request("continue", threadId=cluster)
        assert [len(debuggee.received("continue")) for debuggee in setting.debuggees] == [1, 0]
        (frame,) = (await session.request("stackTrace", threadId=cluster, levels=1))["stackFrames"]
        assert frame["name"] == "all stopped tasks"
        for command in ("next", "stepIn", "stepOut", "exceptionInfo"):
            with pytest.raises(RequestFailed, match="choose a task"):
                await session.request(command, threadId=cluster)


async def test_a_request_that_names_two_tasks_or_none_is_refused() -> None:
    async with scripted(count=2) as setting:
        session = await setting.attach()
        await until(lambda: sum("attached to" in line for line in setting.log) == 2)
        with pytest.raises(RequestFailed, match="no task is stopped"):
            await session.request("evaluate", expression="1")
        first, second = [await setting.stopped(session, number) for number in (1, 2)]
        setting.debuggees[0].says["stepInTargets"] = {"targets": [{"id": 1, "label": "f()"}]}
        frame = (await session.frames(first))[0]["id"]
        (target,) = (await session.request("stepInTargets", frameId=frame))["targets"]
        with pytest.raises(RequestFailed, match="of two tasks"):
            await session.request("stepIn", threadId=second["threadId"], targetId=target["id"])
        assert not any(debuggee.received("stepIn") for debuggee in setting.debuggees)


async def test_a_file_that_the_editor_has_is_opened_there_and_another_one_is_served() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach(pathMappings=[{"localRoot": "/here", "remoteRoot": "."}])
        stop = await setting.stopped(session)
        sources = [{"path": FILE, "sourceReference": 4}, {"path": "/usr/lib.py", "sourceReference": 5}]
        frames = [{"id": number, "source": source} for number, source in enumerate(sources, 1)]
        debuggee.says["stackTrace"] = {"stackFrames": frames}
        own, other = (frame["source"] for frame in await session.frames(stop))
        assert own == {"path": "/here/job.py", "sourceReference": 0}
        assert other["path"] == "/usr/lib.py"
        debuggee.says["source"] = {"content": "x = 1"}
        await session.request("source", source=other, sourceReference=other["sourceReference"])
        assert debuggee.received("source") == [{"source": sources[1], "sourceReference": 5}]
        debuggee.says["gotoTargets"] = {"targets": []}
        await session.request("gotoTargets", source={"path": "/here/job.py"}, line=2)
        assert debuggee.received("gotoTargets") == [{"source": {"path": FILE}, "line": 2}]


@pytest.mark.parametrize("shares", [False, True])
async def test_an_editor_that_sees_the_clusters_files_has_them_under_their_own_paths(shares: bool) -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach(sharedFiles=shares)
        stop = await setting.stopped(session)
        debuggee.says["stackTrace"] = {
            "stackFrames": [{"id": 1, "source": {"path": __file__, "sourceReference": 4}}]
        }
        source = (await session.frames(stop))[0]["source"]
        assert (source["path"], source["sourceReference"] == 0) == (__file__, shares)


# --- editors -----------------------------------------------------------------------------


async def test_an_editor_is_read_no_further_while_too_much_is_unanswered() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        wire = await setting.configured()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        await wire.hear(event="thread", body={"reason": "started", "threadId": 2})
        debuggee.deaf_to = {"stackTrace"}
        for _ in range(300):
            wire.say("stackTrace", threadId=2)
        threads = wire.say("threads")
        await until(lambda: len(debuggee.received("stackTrace")) == 256)
        # What the relay had of this one it would have read before it answers another, twice.
        for _ in range(2):
            await setting.paused()
        assert len(debuggee.received("stackTrace")) == 256
        # The first answer makes room for one, and so on.
        debuggee.says["stackTrace"] = {"stackFrames": []}
        debuggee.answers("stackTrace")
        assert (await wire.hear(request_seq=threads))["success"] is True
        await wire.close()


async def test_an_editor_that_asks_for_all_threads_faster_than_it_reads_is_not_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [{"id": number, "name": "x" * 300} for number in range(1, 1001)]  # more in all than may be unread

    async def listed(_: ThreadRows) -> bytes:
        return as_json({"threads": many})

    monkeypatch.setattr(ThreadRows, "listed", listed)

    async with scripted(count=0) as setting:
        wire = await setting.configured()
        numbers = [wire.say("threads") for _ in range(100)]
        await asyncio.sleep(0.5)
        for seq in numbers:
            answer = await wire.hear(type="response", request_seq=seq)
            assert len(answer["body"]["threads"]) == len(many)
        await wire.close()


async def test_attaching_and_configuring_twice_changes_nothing() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        wire = await setting.configured()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        second = await wire.ask("attach", token=TOKEN)
        assert (second["success"], "already" in second["message"]) == (False, True)
        assert (await wire.ask("configurationDone"))["success"] is True
        assert (await wire.ask("threads"))["success"] is True
        named = [message.get("event") for message in wire.unmatched]
        assert (named.count("initialized"), named.count("terminated")) == (1, 0)
        rows = [m["body"]["threadId"] for m in wire.unmatched if m.get("event") == "thread"]
        assert len(rows) == len(set(rows))
        await wire.close()


@pytest.mark.parametrize(
    "how", [{"pathFormat": "uri"}, {"linesStartAt1": False}, {"columnsStartAt1": False}], ids=str
)
async def test_an_editor_that_counts_otherwise_is_refused(how: dict[str, Any]) -> None:
    async with scripted(count=0) as setting:
        wire = await Wire.open(setting.port)
        assert (await wire.ask("initialize", adapterID="python", **how))["success"] is False
        usual = {"pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True}
        assert (await wire.ask("initialize", adapterID="python", **usual))["success"] is True
        await wire.close()


async def test_an_editor_that_goes_before_its_turn_to_attach_gets_no_session() -> None:
    async with scripted() as setting:
        relay = setting.relay
        async with relay._attaching:
            wire = await Wire.open(setting.port)
            wire.say("attach", token=TOKEN)
            await until(lambda: bool(relay._attaching._waiters))
            await wire.close()
            await until(lambda: not relay._editors)
        async with relay._attaching:  # it comes after that editor
            assert relay.sessions == []


async def test_a_strangers_disconnect_concerns_nobody_else() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        stop = await setting.stopped(session)
        wire = await Wire.open(setting.port)
        assert (await wire.ask("disconnect", suspendDebuggee=True))["success"] is True
        await wire.closed()
        assert setting.debuggees[0].connected
        assert await session.frames(stop)
        await session.request("disconnect")
        await until(lambda: not setting.debuggees[0].connected)  # and nothing is kept paused by it


async def test_paused_tasks_are_those_that_are_stopped_the_longest_first() -> None:
    async with scripted(count=4) as setting:
        # When their tasks began, which is not when they stopped.
        since = ("2026-01-03", "2026-01-01", "2026-01-02", "2026-01-01")
        pairs = list(zip(setting.debuggees, since, strict=True))
        setting.discovery.listed = [replace(debuggee.debuggee, since=at) for debuggee, at in pairs]
        session = await setting.attach()
        before = datetime.now(timezone.utc)
        for number in (2, 3, 1):
            await setting.stopped(session, number)
        wire = await Wire.open(setting.port)
        tasks = (await wire.ask("pausedTasks", token=TOKEN))["body"]["tasks"]
        assert [task["worker_id"] for task in tasks] == ["w2", "w3", "w1"]
        for task in tasks:
            assert abs((datetime.fromisoformat(task["since"].replace("Z", "+00:00")) - before).seconds) < 60
        await wire.close()


async def test_paused_tasks_are_those_that_wait_and_those_that_are_held_each_once() -> None:
    async with scripted() as setting:
        debuggee = setting.debuggees[0]
        await setting.stopped(await setting.attach(), 1)
        # While a debugger attaches, Ray says of a worker that the relay has already that it waits.
        same = replace(debuggee.debuggee.paused(), held=False)
        setting.discovery.waits = [
            replace(same, worker_id="w8", since="2999-01-01T00:00:00Z"),
            same,
            replace(same, worker_id="w9", since="2026-01-01T00:00:00Z"),
        ]
        wire = await Wire.open(setting.port)
        body = (await wire.ask("pausedTasks", token=TOKEN))["body"]
        listed = [(task["worker_id"], task["held"]) for task in body["tasks"]]
        assert listed == [("w9", False), (debuggee.debuggee.worker_id, True), ("w8", False)]
        assert body["problem"] == ""
        await wire.close()


@pytest.mark.parametrize("hangs", [False, True])
async def test_where_ray_does_not_answer_paused_tasks_says_so_beside_what_is_held(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_LOOK", 0.2)

    async with scripted() as setting:
        await setting.stopped(await setting.attach(), 1)
        setting.discovery.takes = 60.0 if hangs else 0.0
        setting.discovery.error = NotRunning("no Ray dashboard answers", hint="")
        wire = await Wire.open(setting.port)
        began = time.monotonic()
        body = (await wire.ask("pausedTasks", token=TOKEN))["body"]
        assert time.monotonic() - began < AT_ONCE
        assert [task["held"] for task in body["tasks"]] == [True]
        assert body["problem"] == ("Ray did not answer within 0.2 s" if hangs else "no Ray dashboard answers")
        await wire.close()


async def test_what_a_debuggee_says_of_itself_is_kept_from_the_editor_and_so_is_what_nobody_knows() -> None:
    withheld = "capabilities debugpySockets exited initialized loadedSource module process debugpyAttach"
    withheld += " startDebugging memory invalidated progressStart openExternal "

    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await setting.stopped(session)
        await session.nothing("terminated", 0.1)
        session.unmatched.clear()
        for name in withheld.split(" "):
            debuggee.say({"event": name, "body": {"of": "a debuggee"}})
        debuggee.say({"event": "output", "body": {"category": "telemetry", "output": "ptvsd"}})
        debuggee.say({"event": "output", "body": {"category": "stdout", "output": "x", "command": "x"}})
        assert await session.event("output") == {"category": "stdout", "output": "x"}
        assert session.unmatched == []
        # It waits for us to leave, and answers nothing more.
        debuggee.requests.clear()
        debuggee.say({"event": "terminated"})
        await session.event("thread", reason="exited")
        await until(lambda: not debuggee.connected)
        assert debuggee.requests == []
        await session.nothing("terminated", 0.1)
