"""Tests what becomes of an editor, and of what it has stopped, when the way to a real relay breaks.

The ways are real ones: OpenSSH to a real sshd, and a program that forwards as kubectl does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayside.client.commands import Place
from rayside.client.events import JobState, Notice, Stop
from rayside.client.session import AttachOptions
from rayside.client.session import Session as OurSession
from rayside.dap.client import Client
from rayside.errors import AttachFailed, RequestFailed
from rayside.reach.patience import Patience
from rayside.reach.programs import Ssh
from rayside.reach.supervisor import Forward, Port
from rayside.relay.config import digest_of
from rayside.relay.server import Relay
from tests.integration.rayside.test_relay_faults import AGAIN, LINE, ONCE, is_well, resume
from tests.integration.relay_debuggees import TOKEN, Session, Setting, relay_over
from tests.integration.scripted_kubectl import Pod, ScriptedKubectl, scripted_kubectl
from tests.integration.sshd import HOST, Sshd, sshd

# A machine under load takes long for what is quick otherwise.
LONG = 90.0
# Beats that come as seldom as they do for users, and ones for tests in which some are missed.
USUAL, QUICK = Patience(), Patience(every=0.5, away=4.0, absent=1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    with sshd() as running:
        yield running


@pytest.fixture
def path(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", server.environment["PATH"])


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[ScriptedKubectl]:
    with scripted_kubectl(tmp_path / "kubectl") as scripted:
        yield scripted


def relay_for(folder: Path, patience: Patience) -> contextlib.AbstractAsyncContextManager[Setting]:
    return relay_over(folder, every=patience.every, away=patience.away)


@asynccontextmanager
async def by_ssh(folder: Path, patience: Patience = USUAL) -> AsyncIterator[Setting]:
    """Provides a relay that its editors reach through ssh."""
    async with relay_for(folder, patience) as setting, ssh_to(setting, patience):
        yield setting


@asynccontextmanager
async def by_pod(
    folder: Path, kubectl: ScriptedKubectl, patience: Patience = USUAL
) -> AsyncIterator[Setting]:
    """Provides a relay that its editors reach through a forward to a pod."""
    async with relay_for(folder, patience) as setting, pod_to(setting, kubectl, patience):
        yield setting


@asynccontextmanager
async def ssh_to(setting: Setting, patience: Patience) -> AsyncIterator[None]:
    port = Port(Forward("relay", 0, setting.port, "dap", own_clients=True), Ssh(HOST), patience)
    setting.port = await port.start()
    await port.leads()
    try:
        yield
    finally:
        await port.stop()


@asynccontextmanager
async def pod_to(setting: Setting, kubectl: ScriptedKubectl, patience: Patience) -> AsyncIterator[None]:
    kubectl.pods["head-1"].ports[5678] = setting.port
    kubectl.tell()
    port = Port(Forward("relay", 0, 5678, speaks="dap"), kubectl.to(), patience)
    setting.port = await port.start()
    try:
        yield
    finally:
        await port.stop()


def ssh() -> psutil.Process:
    (child,) = (child for child in psutil.Process().children() if child.name() == "ssh")
    return child


async def stopped_once(setting: Setting, **options: Any) -> tuple[Any, Session]:
    """Returns a task that stands at a breakpoint, and its editor."""
    (process,) = await setting.cluster.start(ONCE)
    session = await setting.attach({"job.py": [LINE[ONCE]]}, **options)
    session.patience = LONG
    await session.event("stopped")
    return process, session


async def told(session: Session) -> None:
    """Waits until the editor is told that its way is lost, and that it is there again."""
    output = await session.event("output", ray={"reason": "waiting"})
    assert "The connection to the cluster is lost: " in output["output"]
    assert "for at most 10 min" in output["output"]
    await back(session, "way-back")


async def lost(setting: Setting, session: Session) -> None:
    """Waits until both sides have noticed."""
    await session.event("output", ray={"reason": "waiting"})
    while "the editor has lost its way; what is stopped waits for it" not in setting.log:
        await asyncio.sleep(0.01)


async def back(session: Session, reason: str) -> None:
    ended = await session.event("terminated")
    assert ended["ray"] == {"reason": reason}
    session.restart = ended["restart"]
    assert session.restart["ray"] == "again"


async def again(setting: Setting, session: Session, source: str = ONCE, **options: Any) -> Session:
    """Attaches again, as editors do that know DAP's `restart`."""
    session.client.close()
    new = await setting.attach({"job.py": [LINE[source]]}, __restart=session.restart, **options)
    new.patience = LONG
    return new


# --- cut ---------------------------------------------------------------------------------


async def test_ssh_ends_and_the_editor_has_its_stopped_task_back(tmp_path: Path, path: None) -> None:
    async with by_ssh(tmp_path) as setting:
        process, session = await stopped_once(setting)
        asking = await session.begin({"threadId": 2}, "__import__('time').sleep(3)")
        ssh().kill()
        await told(session)
        # Nobody waits for what will not be answered.
        assert (await asking)["message"] == "the connection to the cluster was lost"
        assert process.lines == []
        session = await again(setting, session)
        stop = await session.event("stopped")
        await is_well(session, stop)
        await resume(session, stop, process)


async def test_kubectl_ends_and_the_api_comes_back_and_the_editor_has_its_stopped_task_back(
    tmp_path: Path, kubectl: ScriptedKubectl
) -> None:
    async with by_pod(tmp_path, kubectl) as setting:
        process, session = await stopped_once(setting)
        await asyncio.to_thread(kubectl.down)
        await session.event("output", ray={"reason": "waiting"})
        with pytest.raises(RequestFailed, match="the connection to the cluster is lost"):
            await session.request("threads")
        await asyncio.to_thread(kubectl.up)
        await back(session, "way-back")
        assert process.lines == []
        session = await again(setting, session)
        stop = await session.event("stopped")
        await resume(session, stop, process)


@pytest.mark.parametrize("take_over", ["ask", "watch"])
async def test_a_way_that_ends_on_this_side_alone_is_no_other_editors(
    tmp_path: Path, path: None, server: Sshd, take_over: str
) -> None:
    async with by_ssh(tmp_path) as setting:
        process, session = await stopped_once(setting, takeOver=take_over)
        # The host does not hear that ssh ends, as where a network between has dropped the connection.
        deaf = psutil.Process(server.pid).children(recursive=True)
        for connection in deaf:
            connection.suspend()
        try:
            ssh().kill()
            await told(session)
            tickets: list[object] = [None, "0" * 32, "\ud800", [session.restart["ticket"]]]
            for ticket in tickets:
                with pytest.raises(AttachFailed, match="Rayside has debugged this since"):
                    await setting.attach(__restart={"ray": "again", "ticket": ticket})
            session = await again(setting, session, takeOver=take_over)
            assert setting.log[-2:] == [
                "the editor is back, by another connection",
                "an editor has attached",
            ]
        finally:
            for connection in deaf:
                connection.resume()
        stop = await session.event("stopped")
        await resume(session, stop, process)


class NoJob:
    """Watches no job."""

    def job(self) -> JobState | None:
        return None


async def test_our_own_debugger_attaches_again_with_its_breakpoints(
    tmp_path: Path, kubectl: ScriptedKubectl
) -> None:
    async with by_pod(tmp_path, kubectl) as setting:
        (process,) = await setting.cluster.start(AGAIN)
        places = [Place(str(setting.cluster.here / "job.py"), LINE[AGAIN], None)]
        connect = partial(Client.connect, "127.0.0.1", setting.port)
        session = OurSession(AttachOptions(connect, TOKEN, breakpoints=places, take_over="ask"), NoJob())
        await session.start()
        await asyncio.wait_for(next_stop(session), LONG)
        await asyncio.to_thread(kubectl.down)
        while not session.waiting:
            await asyncio.sleep(0.01)
        with pytest.raises(RequestFailed, match="the connection to the cluster is lost"):
            await session.client.request("threads")
        await asyncio.to_thread(kubectl.up)
        # It stands where it stood, and stops there again when it comes by again.
        for lines in (0, 1):
            stop = await asyncio.wait_for(next_stop(session), LONG)
            assert len(process.lines) == lines
            await session.resume("continue", stop)
        await session.close()


async def next_stop(session: OurSession) -> Stop:
    while not isinstance(event := await session.events.get(), Stop):
        assert isinstance(event, Notice), event
    return event


async def test_the_head_is_replaced_and_the_editor_gets_the_new_relay(
    tmp_path: Path, kubectl: ScriptedKubectl
) -> None:
    async with by_pod(tmp_path, kubectl) as setting:
        process, session = await stopped_once(setting)
        kubectl.pods["head-1"].deleted = "2026-01-01T00:00:00Z"
        kubectl.tell()
        await setting.relay.close()
        output = await session.event("output", ray={"reason": "waiting"})
        assert "lost: the debug relay has ended" in output["output"]
        await process.until_printed()
        next_relay = Relay(setting.cluster, digest=digest_of(TOKEN), log=setting.log.append)
        server = await next_relay.serve("127.0.0.1", 0)
        kubectl.pods["head-2"] = Pod(ports={5678: server.sockets[0].getsockname()[1]})
        kubectl.tell()
        await back(session, "way-back")
        (another,) = await setting.cluster.start(AGAIN, name="again.py")
        session.client.close()
        session = await setting.attach({"again.py": [LINE[AGAIN]]}, __restart=session.restart)
        await session.event("stopped")
        await session.request("disconnect")
        await another.until_printed()
        await next_relay.close()


async def test_a_relay_that_does_not_come_back_ends_the_session_with_that_reason(
    tmp_path: Path, path: None
) -> None:
    async with by_ssh(tmp_path, QUICK) as setting:
        process, session = await stopped_once(setting)
        await setting.relay.close()
        assert await session.event("terminated") == {"ray": {"reason": "relay-gone"}}
        said = [event["body"]["output"] for event in session.unmatched if event["event"] == "output"]
        assert "`connect`, in a clone `up`, begins a relay; then attach again.\n" in said[-1]
        await process.until_printed()
        # Whoever takes no leave is closed.
        await asyncio.wait_for(session.client.closed.wait(), LONG)


@pytest.mark.parametrize("kind", ["ssh", "pod"])
async def test_when_a_forward_ends_its_editor_is_told_and_the_task_goes_on(
    tmp_path: Path, path: None, kubectl: ScriptedKubectl, kind: str
) -> None:
    async with relay_for(tmp_path, USUAL) as setting:
        async with ssh_to(setting, USUAL) if kind == "ssh" else pod_to(setting, kubectl, USUAL):
            process, session = await stopped_once(setting)
        assert await session.event("terminated") == {"ray": {"reason": "forward-ended"}}
        # For an editor that may come back it would wait twice as long as this does.
        await process.until_printed()


# --- who is there meanwhile ----------------------------------------------------------------


async def test_an_editor_that_is_killed_leaves_nothing_paused_behind_a_forward(
    tmp_path: Path, path: None
) -> None:
    async with by_ssh(tmp_path) as setting:
        process, session = await stopped_once(setting)
        began = time.monotonic()
        session.abort()
        await asyncio.wait_for(process.end(), LONG)
        assert time.monotonic() - began < USUAL.away / 2


async def test_whoever_comes_while_the_way_is_lost_keeps_the_task(
    tmp_path: Path, kubectl: ScriptedKubectl
) -> None:
    async with by_pod(tmp_path, kubectl) as setting:
        forwarded, direct = setting.port, kubectl.pods["head-1"].ports[5678]
        process, session = await stopped_once(setting)
        await asyncio.to_thread(kubectl.down)
        await lost(setting, session)
        setting.port = direct
        # Nobody has to ask for leave to take over from one that has lost its way.
        colleague = await setting.attach({"job.py": [LINE[ONCE]]}, takeOver="ask")
        stop = await colleague.event("stopped")
        await asyncio.to_thread(kubectl.up)
        await back(session, "way-back")
        setting.port = forwarded
        with pytest.raises(AttachFailed, match="Rayside has debugged this since"):
            await again(setting, session)
        await resume(colleague, stop, process)


# --- frozen ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [False, True])
async def test_of_a_machine_that_sleeps_a_task_goes_on_after_a_while_unless_it_is_to_be_kept(
    tmp_path: Path, path: None, keep: bool
) -> None:
    async with by_ssh(tmp_path, QUICK) as setting:
        process, session = await stopped_once(setting, keepPaused=keep)
        connection = ssh()
        connection.suspend()
        began = time.monotonic()
        try:
            # The editor's side is not frozen here, so it is told.
            await session.event("output", ray={"reason": "waiting"})
            while "the editor has gone" not in "\n".join(setting.log):
                await asyncio.sleep(0.05)
                assert time.monotonic() - began < LONG
            if not keep:
                await process.until_printed()
        finally:
            connection.resume()
        await back(session, "way-back")
        session = await again(setting, session)
        if keep:
            assert process.lines == []
            stop = await session.event("stopped")
            await resume(session, stop, process)
