"""Tests a coding agent's tools, by the official client of MCP, over scripted debuggees and on real Ray."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import TextContent

from bootstrap.settings import ROOT
from rayside.connection.access import RecordedAccess
from rayside.connection.instance import Instance, Ports
from rayside.console import PACKAGE, Console
from rayside.dap import client as dap
from rayside.dap.paused_task import PausedTask
from rayside.verbs.agent_tools import Tools
from rayside.verbs.mcp_server import server
from tests.integration.conftest import Rayside, stop_jobs
from tests.integration.rayside.test_relay_scripted import Setting, scripted, until
from tests.integration.relay_debuggees import TOKEN, Session
from tests.integration.scripted_debuggees import FILE
from tests.patience import PATIENCE

LOOKING = {"jobs", "stopped", "stacks", "variables", "compare"}
ACTING = {"evaluate", "set_breakpoint", "remove_breakpoint", "resume", "retry"}
# A task that fails, and one that gives a wrong result.
PROGRAM = """\
import ray

@ray.remote(max_retries=0)
def share(amount, heads):
    rest = amount
    return rest / heads

@ray.remote
def double(n):
    result = n + n + 1
    return result

try:
    print("share", ray.get(share.remote(6, 0)))
except ZeroDivisionError:
    pass
print("result", ray.get(double.remote(21)))
"""


class NoJobs:
    """Plays a Ray to which nobody has submitted anything."""

    def jobs(self) -> list[Any]:
        return []


class ToRelay(RecordedAccess):
    """Leads to a relay alone."""

    def require(self) -> Any:
        return NoJobs()


class Agent:
    """Calls tools, and reads their answers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert not answer.is_error, content.text
        return content.text

    async def json(self, tool: str, **arguments: Any) -> Any:
        return json.loads(await self.ask(tool, **arguments))

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert answer.is_error, content.text
        return content.text


@asynccontextmanager
async def agent_of(setting: Setting, folder: Path, *, acts: bool) -> AsyncIterator[Agent]:
    identity = Instance("rayside", "cluster", "", "", folder, Ports(0, 0, setting.port, 0))
    identity.token_file.write_text(TOKEN)
    tools = Tools(lambda: ToRelay(identity), job=None, acts=acts)
    try:
        async with Client(server(tools, Console(program=PACKAGE), acts=acts)) as client:
            yield Agent(client)
    finally:
        await tools.close()


async def have_stopped(setting: Setting, agent: Agent) -> None:
    """Has the agent attach, for a task is paused, and then all tasks stop."""
    setting.discovery.waits = [PausedTask("w1", "127.0.0.1", 1, "01000000", "task-1", "")]
    await agent.ask("stopped", wait=0)
    for debuggee in setting.debuggees:
        await until(debuggee.attached.is_set)
        debuggee.stop()


@pytest.mark.gate
async def test_an_agent_that_may_only_look_has_no_tool_that_acts(tmp_path: Path) -> None:
    async with scripted() as setting, agent_of(setting, tmp_path, acts=False) as agent:
        (debuggee,) = setting.debuggees
        assert {tool.name for tool in (await agent.client.list_tools()).tools} == LOOKING
        assert await agent.json("jobs") == []
        assert (await agent.json("stopped", wait=0))["stopped"] == []
        assert "no task is paused" in await agent.refused("variables", task=1)
        # What waits for somebody to set breakpoints does not go on for one who only looks.
        assert debuggee.connections == 0
        await have_stopped(setting, agent)
        (row,) = (await agent.json("stopped"))["stopped"]
        assert (row["name"], row["file"], row["line"]) == ("task-1 · 1@127.0.0.1", FILE, 2)
        seen = await agent.json("variables", task=row["task"])
        assert seen["variables"]["v0"] == "1"
        assert (len(seen["stack"]), seen["stack"][0]["function"]) == (8, "work")
        value = "\x1b]52;c;eHg=\x07" + "x" * 10_000
        many = [{"name": f"v{n}", "value": value, "variablesReference": 0} for n in range(50)]
        debuggee.says["variables"] = {"variables": many}
        text = await agent.ask("variables", task=row["task"])
        assert ("\x1b" in text, "\x07" in text, len(text) < 21_000) == (False, False, True)
        assert "more characters were cut off" in text
        before = len(debuggee.requests)
        for tool in ACTING:
            assert f"Unknown tool: {tool}" in await agent.refused(tool, task=row["task"])
        assert "without --act only a variable's name" in await agent.refused("compare", expression="f()")
        assert "is not stopped here" in await agent.refused("variables", task=4711)
        assert len(debuggee.requests) == before
    assert not debuggee.received("continue")


@pytest.mark.gate
async def test_an_agent_acts_where_nobody_debugs_and_leaves_what_is_stopped_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "job.py"
    source.write_text("x = 1\ny = 2\n")
    async with scripted(count=2) as setting:
        first, second = setting.debuggees
        async with agent_of(setting, tmp_path, acts=True) as agent:
            assert {tool.name for tool in (await agent.client.list_tools()).tools} == LOOKING | ACTING
            await have_stopped(setting, agent)
            rows = (await agent.json("stopped"))["stopped"]
            tasks = {row["name"].partition(" ")[0]: row["task"] for row in rows}
            assert f"{source}:2" in await agent.ask("set_breakpoint", file=str(source), line=2)
            assert await agent.ask("remove_breakpoint", file=str(source), line=2) == "1 breakpoint removed"
            assert "there is no file" in await agent.refused("set_breakpoint", file="/nowhere.py", line=2)
            wrong = await agent.refused("set_breakpoint", file=str(source), line=2, condition="x =")
            assert "is no Python expression" in wrong
            assert "in 2 stopped tasks" in await agent.ask("compare", expression="f(x)")
            assert await agent.ask("evaluate", task=tasks["task-1"], expression="get_job_id") == "'01000000'"
            assert "it goes on" in await agent.ask("resume", task=tasks["task-1"])
        await until(lambda: not first.connected)
        assert (len(first.received("continue")), second.connected) == (1, True)
        assert not second.received("continue")


@pytest.mark.gate
async def test_an_agent_only_looks_where_a_person_debugs(tmp_path: Path) -> None:
    async with scripted() as setting, agent_of(setting, tmp_path, acts=True) as agent:
        (debuggee,) = setting.debuggees
        person = await setting.attach()
        stop = await setting.stopped(person)
        seen = await agent.json("stopped")
        assert (seen["only_looking"], seen["stopped"][0]["line"]) == (True, 2)
        for tool, arguments in (
            ("resume", {"task": stop["threadId"]}),
            ("evaluate", {"task": stop["threadId"], "expression": "x"}),
            ("compare", {"expression": "f(x)"}),
            ("remove_breakpoint", {"file": __file__, "line": 2}),
        ):
            assert "a person (or another agent)" in await agent.refused(tool, **arguments)
        assert not [each for each in debuggee.requests if each["command"] in ("continue", "setBreakpoints")]
        await person.request("disconnect", suspendDebuggee=True)
        assert "the debugger that was watched has left" in await agent.refused("resume", task=1)


@pytest.mark.gate
async def test_a_person_takes_over_and_the_agent_is_told(tmp_path: Path) -> None:
    async with scripted() as setting, agent_of(setting, tmp_path, acts=True) as agent:
        (debuggee,) = setting.debuggees
        await have_stopped(setting, agent)
        (row,) = (await agent.json("stopped"))["stopped"]
        person = await setting.attach()
        stop = await person.event("stopped")
        assert "a person (or another agent) has taken over" in await agent.refused("resume", task=row["task"])
        assert not debuggee.received("continue")
        assert (await agent.json("stopped"))["only_looking"] is True
        await person.resume(stop)


@pytest.mark.gate
def test_a_server_ends_at_a_signal_while_its_input_is_open(tmp_path: Path) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client["clientInfo"] = {"name": "a test", "version": "0"}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    command = [sys.executable, "-m", "rayside.cli", "mcp"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as started:  # type: ignore[call-overload]
        started.stdin.write(json.dumps(request) + "\n")
        started.stdin.flush()
        assert json.loads(started.stdout.readline())["result"]["serverInfo"]["name"] == "rayside"
        started.terminate()
        assert started.wait(PATIENCE) == -signal.SIGTERM


# --- real Ray, over standard input and output --------------------------------------------


@asynccontextmanager
async def agent_over_stdio(up: Rayside, folder: Path, *options: str) -> AsyncIterator[Agent]:
    words = ["-m", "rayside.cli", "mcp", *options]
    environment = {**up.environment, "PYTHONPATH": str(ROOT)}
    started = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=folder)
    async with Client(stdio_client(started)) as client:
        yield Agent(client)


async def stop_in(agent: Agent, name: str) -> dict[str, Any]:
    """Waits until a task of that name is stopped; returns its row."""
    for _ in range(int(PATIENCE)):
        rows = (await agent.json("stopped", wait=1))["stopped"]
        for row in rows:
            if row["name"].startswith(f"{name} "):
                return dict(row)
    raise AssertionError(f"{name} did not stop")


async def test_from_a_failing_job_to_its_right_result(rayside: Rayside, tmp_path: Path) -> None:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    source = tmp_path / "program.py"
    source.write_text(PROGRAM)
    submitting = ["submit", "--debug", "--post-mortem", "--entrypoint", "python program.py"]
    try:
        job = rayside.json(*submitting, cwd=tmp_path)["submission_id"]
        async with agent_over_stdio(rayside, tmp_path, "--act") as agent:
            assert job in await agent.ask("jobs")
            # The driver waits for a debugger, and does not run past its first breakpoint.
            assert f"{source}:14" in await agent.ask("set_breakpoint", file="program.py", line=14)
            assert f"{source}:10" in await agent.ask("set_breakpoint", file="program.py", line=10)
            await agent.ask("resume", task=(await stop_in(agent, "driver"))["task"])
            failing = await stop_in(agent, "share")
            assert (failing["file"], failing["line"]) == (str(source), 6)
            assert failing["why"].startswith("exception: ZeroDivisionError")
            seen = await agent.json("variables", task=failing["task"])
            assert (seen["variables"]["rest"], seen["variables"]["heads"]) == ("6", "0")
            assert await agent.ask("evaluate", task=failing["task"], expression="rest / 2") == "3.0"
            assert str(source) in await agent.ask("stacks")
            source.write_text(PROGRAM.replace("rest / heads", "rest / (heads or 2)"))
            assert (await agent.ask("retry")).splitlines()[0] == "1 returned"
            wrong = await stop_in(agent, "double")
            assert "in 1 stopped task" in await agent.ask("compare", expression="n")
            stepped = await agent.json("resume", task=wrong["task"], how="next")
            assert (stepped["task"], stepped["line"]) == (wrong["task"], 11)
            await agent.ask("evaluate", task=wrong["task"], expression="result = 42")
            await agent.ask("resume", task=wrong["task"])
            for _ in range(int(PATIENCE)):
                (row,) = await agent.json("jobs")
                if row["status"] == "SUCCEEDED":
                    break
                await asyncio.sleep(1)
            assert (await agent.json("stopped", wait=0))["failed"] == []
        output = rayside.run("logs", "--job", job).stdout
        assert "share 3.0" in output and "result 42" in output
        source.write_text(PROGRAM)
        await people_come_first(rayside, tmp_path, submitting)
    finally:
        stop_jobs(rayside.target.access.require())


async def people_come_first(rayside: Rayside, folder: Path, submitting: list[str]) -> None:
    """Has a person attach before an agent, and after one that has let go of nothing."""
    identity = rayside.target.access.identity
    token = identity.token_file.read_text().strip()

    async def person() -> Session:
        client = await dap.Client.connect("127.0.0.1", identity.ports.relay)
        await client.attach(exception_filters=["uncaught"], options={"token": token}, no_delay=False)
        return Session(client)

    first = await person()
    await asyncio.to_thread(rayside.json, *submitting, cwd=folder)
    stop = await first.event("stopped", reason="exception")
    async with agent_over_stdio(rayside, folder, "--act") as agent:
        row = await stop_in(agent, "share")
        assert "a person (or another agent)" in await agent.refused("resume", task=row["task"])
        assert (await first.evaluate(stop, "rest")) == "6"
        await first.request("disconnect", suspendDebuggee=True)
        async with agent_over_stdio(rayside, folder) as looking:
            seen = await looking.json("variables", task=(await stop_in(looking, "share"))["task"])
            assert (seen["stack"][0]["function"], seen["stack"][0]["line"]) == ("share", 6)
            assert "Unknown tool: resume" in await looking.refused("resume", task=1)
        row = await stop_in(agent, "share")
        assert await agent.ask("evaluate", task=row["task"], expression="rest") == "6"
        second = await person()
        stop = await second.event("stopped", reason="exception")
        refusal = await agent.refused("resume", task=row["task"])
        assert "a person (or another agent) has taken over" in refusal
        assert (await second.evaluate(stop, "rest")) == "6"
        await second.resume(stop)
        await second.client.disconnect()
        for _ in range(int(PATIENCE)):
            if failed := (await agent.json("stopped", wait=0))["failed"]:
                break
            await asyncio.sleep(1)
        assert (failed[0]["name"], "ZeroDivisionError" in failed[0]["exception"]) == ("share", True)
