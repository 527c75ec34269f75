"""Tests several editors at one relay: whose each debuggee is, who takes over, who only watches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.client import Client
from rayside.errors import AttachFailed, RequestFailed
from tests.integration.rayside.test_relay_scripted import Setting, scripted, until
from tests.integration.relay_debuggees import TOKEN, Session
from tests.integration.scripted_debuggees import FILE
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

ONE, TWO, THREE = "01000000", "02000000", "03000000"


def of_jobs(setting: Setting, *jobs: str) -> None:
    listed = [debuggee.debuggee for debuggee in setting.debuggees]
    setting.discovery.listed = [
        replace(debuggee, job_id=job) for debuggee, job in zip(listed, jobs, strict=True)
    ]


async def busy(setting: Setting, **options: Any) -> dict[str, Any]:
    with pytest.raises(AttachFailed) as refused:
        await setting.attach(takeOver="ask", **options)
    assert isinstance(refused.value.__cause__, RequestFailed)
    return dict(refused.value.__cause__.ray)


async def is_told(session: Session, number: int) -> None:
    """Asserts that the session is told that the debuggee of that number stopped."""
    stop = await session.event("stopped")
    assert stop["ray"]["workerId"] == f"w{number}"


async def test_each_of_three_editors_has_the_debuggees_of_its_job_and_one_without_a_job_the_rest() -> None:
    async with scripted(count=3) as setting:
        of_jobs(setting, ONE, TWO, THREE)
        everything = await setting.attach()
        first, second = await setting.attach(job=ONE), await setting.attach(job=TWO)
        for number, session in ((1, first), (2, second), (3, everything)):
            await setting.stopped(session, number)
            assert len(await session.threads()) == 2  # its own, and the cluster's row
        for session in (first, second, everything):
            await session.nothing("stopped", 0.05)
            await session.nothing("terminated", 0)
        assert [debuggee.connections for debuggee in setting.debuggees] == [1, 1, 1]


async def test_an_editor_for_one_job_takes_its_stopped_task_from_the_one_for_all_and_gives_it_back() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        of_jobs(setting, ONE)
        everything = await setting.attach()
        stop = await setting.stopped(everything)
        editor = await setting.attach(job=ONE)
        await is_told(editor, 1)
        output = await everything.event("output", category="console")
        assert output["output"].endswith("is stopped in Rayside now, which has asked for its job by name\n")
        await everything.event(
            "thread", reason="exited", threadId=stop["threadId"], ray={"reason": "taken-over"}
        )
        assert len(await everything.threads()) == 1
        assert debuggee.connections == 1  # it stands all the while
        assert not debuggee.received("continue")
        with pytest.raises(RequestFailed, match="not known"):
            await everything.resume(stop)
        await editor.client.disconnect()
        await setting.stopped(everything)
        assert debuggee.connections == 2


async def test_a_worker_that_knows_its_job_only_itself_comes_to_the_editor_of_that_job() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="")]
        everything = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        debuggee.drop()
        setting.discovery.listed = []
        await everything.event("thread", reason="exited")
        editor = await setting.attach([2], job=ONE)
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="", worker_id="w7")]
        await until(lambda: debuggee.attached.is_set() and debuggee.connections == 2)
        debuggee.stop()
        assert (await editor.event("stopped"))["ray"]["jobId"] == ONE
        assert len(debuggee.received("setBreakpoints")[-1]["breakpoints"]) == 1
        await everything.nothing("stopped", 0.05)


async def test_who_debugs_is_told_to_one_that_asks_and_is_not_disturbed() -> None:
    async with scripted() as setting:
        of_jobs(setting, ONE)
        setting.discovery.submissions = {ONE: "raysubmit_1"}
        first = await setting.attach(job=ONE, takeOver="ask")
        await setting.stopped(first)
        for job in (ONE, "raysubmit_1"):  # it has two names
            refusal = await busy(setting, job=job)
            assert (refusal["reason"], refusal["client"], refusal["job"]) == ("busy", "Rayside", ONE)
            assert refusal["since"].endswith("Z")
        await first.nothing("terminated", 0.05)
        other = await setting.attach(job=TWO, takeOver="ask")
        assert len(await other.threads()) == 1


async def test_one_for_a_job_asks_before_it_takes_what_is_stopped_in_the_one_for_all() -> None:
    async with scripted(count=2) as setting:
        of_jobs(setting, ONE, TWO)
        everything = await setting.attach()
        # Nothing is stopped of either job: there is nothing to ask for.
        other = await setting.attach(job=TWO, takeOver="ask")
        stop = await setting.stopped(everything)
        whose = await busy(setting, job=ONE)
        assert (whose["client"], whose["job"]) == ("Rayside", None)
        watcher = await setting.attach(job=ONE, takeOver="watch")
        await is_told(watcher, 1)
        with pytest.raises(RequestFailed, match="only watches"):
            await watcher.resume(stop)
        await everything.resume(stop)
        # The other way round nothing is taken, so nobody is asked.
        await setting.stopped(other, 2)
        await everything.client.disconnect()
        await setting.attach(takeOver="ask")
        await other.nothing("thread", 0.05, reason="exited")


@pytest.mark.parametrize("options", [{}, {"takeOver": "always"}])
async def test_who_is_taken_over_is_told_so_as_data(options: dict[str, Any]) -> None:
    async with scripted() as setting:
        first = await setting.attach()
        await setting.stopped(first)
        second = await setting.attach(**options)
        assert await first.event("terminated") == {"ray": {"reason": "taken-over"}}
        await is_told(second, 1)


async def test_the_relays_end_is_told_as_data() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        watcher = await setting.attach(takeOver="watch")
        await setting.relay.close()
        for each in (session, watcher):
            assert await each.event("terminated") == {"ray": {"reason": "relay-ending"}}


async def test_who_watches_sees_what_stops_and_has_no_hand_in_it() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach([2])
        await setting.stopped(session)
        watcher = await setting.attach([1], takeOver="watch")
        stop = await watcher.event("stopped")
        assert len(await watcher.frames(stop)) > 1
        frame = (await watcher.frames(stop))[0]["id"]
        scope = (await watcher.request("scopes", frameId=frame))["scopes"][0]
        await watcher.request("variables", variablesReference=scope["variablesReference"])
        before = len(debuggee.requests)
        thread = {"threadId": stop["threadId"]}
        for command, arguments in (
            ("continue", thread),
            ("next", thread),
            ("pause", thread),
            ("evaluate", {"expression": "x", "frameId": frame}),
            ("setVariable", {"variablesReference": 1, "name": "x", "value": "2"}),
            ("focusTask", {"workerId": "w1"}),
            ("somethingNew", {}),
        ):
            with pytest.raises(RequestFailed, match="only watches"):
                await watcher.client.request(command, arguments)
        set_ = await watcher.client.set_breakpoints(FILE, [{"line": 1}])
        assert [each["verified"] for each in set_["breakpoints"]] == [False]
        assert len(debuggee.requests) == before
        await session.resume(stop)
        await watcher.event("continued", threadId=stop["threadId"])
        await session.client.disconnect()
        assert await watcher.event("terminated") == {"ray": {"reason": "debugger-left"}}


async def test_one_that_would_only_watch_debugs_where_nobody_does() -> None:
    async with scripted() as setting:
        session = await setting.attach(takeOver="watch")
        stop = await setting.stopped(session)
        await session.resume(stop)


async def test_nonsense_in_take_over_is_refused() -> None:
    async with scripted() as setting:
        values: list[Any] = ["never", 1, None, ["ask"], {}]
        for nonsense in values:
            with pytest.raises(AttachFailed, match="`takeOver` has to be"):
                await setting.attach(takeOver=nonsense)


class VSCode:
    """Plays a window of VS Code, as far as the relay can tell that it is there."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    async def attach(cls, setting: Setting) -> VSCode:
        client = await Client.connect("127.0.0.1", setting.port)
        await client.attach(options={"token": TOKEN}, no_delay=False)
        await client.request("initialize", {"clientID": "vscode", "clientName": "a\x1b[2J" + 90 * "b"})
        return cls(client)

    async def shows(self) -> None:
        """Asks for the threads when an event tells of one."""
        while (event := await self.client.events.get()) is not None:
            if event["event"] == "thread":
                await self.client.request("threads")


async def test_a_closed_tab_whose_connection_stays_open_is_nobody_to_ask() -> None:
    async with scripted() as setting:
        window = await VSCode.attach(setting)
        showing = asyncio.ensure_future(window.shows())
        refusal = await busy(setting)
        assert refusal["client"] == "a\\x1b[2J" + 52 * "b" + "..."  # bounded, and no terminal's command
        showing.cancel()  # the tab is closed
        session = await setting.attach(takeOver="ask")
        await setting.stopped(session)
        window.client.close()


async def test_an_editors_connection_is_one_that_the_system_watches() -> None:
    async with scripted() as setting:
        await setting.attach()
        port = f"{setting.port:04X}"
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        # The timer of a connection: 02 is keepalive's. https://docs.kernel.org/networking/proc_net_tcp.html
        timers = [row[5][:2] for row in rows if row[1].endswith(f":{port}") and row[3] == "01"]
        assert timers == ["02"]


# --- coding agents -----------------------------------------------------------------------


def watches(session: Session) -> bool:
    return bool(session.client.attached["ray"]["watching"])


@pytest.mark.parametrize(
    ("persons", "agents"),
    [({}, {}), ({}, {"job": ONE}), ({"job": ONE}, {"job": ONE}), ({}, {"takeOver": "always"})],
    ids=str,
)
async def test_an_agent_watches_where_a_person_debugs_also_before_anything_has_stopped(
    persons: dict[str, Any], agents: dict[str, Any]
) -> None:
    async with scripted() as setting:
        of_jobs(setting, ONE)
        person = await setting.attach(**persons)
        agent = await setting.attach(agent=True, **agents)
        assert watches(agent)
        stop = await setting.stopped(person)
        await is_told(agent, 1)
        with pytest.raises(RequestFailed, match="only watches"):
            await agent.resume(stop)
        await person.nothing("terminated", 0.05)
        await person.resume(stop)


async def test_an_agent_debugs_where_nobody_does_and_a_person_is_told_and_takes_over() -> None:
    async with scripted() as setting:
        of_jobs(setting, ONE)
        agent = await setting.attach(agent=True)
        assert not watches(agent)
        stop = await setting.stopped(agent)
        assert (await busy(setting))["client"] == "A coding agent"
        assert watches(await setting.attach(agent=True))  # nor does one agent take over from another
        person = await setting.attach()
        await is_told(person, 1)
        assert await agent.event("terminated") == {"ray": {"reason": "taken-over"}}
        await person.resume(stop)


async def test_a_persons_session_for_all_jobs_comes_before_an_agents_for_one() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        of_jobs(setting, ONE)
        agent = await setting.attach(agent=True, job=ONE)
        stop = await setting.stopped(agent)
        person = await setting.attach()
        await is_told(person, 1)
        await agent.event("thread", reason="exited", threadId=stop["threadId"], ray={"reason": "taken-over"})
        with pytest.raises(RequestFailed, match="not known"):
            await agent.resume(stop)
        assert not debuggee.received("continue")


async def test_nonsense_for_an_agent_is_refused() -> None:
    async with scripted() as setting:
        with pytest.raises(AttachFailed, match="`agent` has to be true or false"):
            await setting.attach(agent="yes")
