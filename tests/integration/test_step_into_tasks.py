"""Tests steps into Ray's `.remote()`, on a real Ray: to the first line of the task that the call starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.dap.client import Client
from bootstrap.errors import RequestFailed
from bootstrap.relay.remote_calls import FIRST
from bootstrap.step import until
from tests.integration.conftest import Rayside
from tests.integration.relay_debuggees import Session

PATIENCE = 120.0  # seconds; a worker may have to be started


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


class Scene:
    """Plays an editor that debugs one job."""

    def __init__(self, editor: Session, program: Path) -> None:
        self.editor, self.program = editor, program

    def line(self, marker: str) -> int:
        return line(self.program.read_text(), marker)

    async def stop(self, **fields: Any) -> dict[str, Any]:
        return await self.editor.event("stopped", **fields)

    async def go(self, stop: dict[str, Any], command: str = "continue") -> None:
        await self.editor.request(command, threadId=stop["threadId"])

    async def stack(self, stop: dict[str, Any]) -> list[Any]:
        """Returns of each frame the function and the line's marker; of a label what it says."""
        lines = self.program.read_text().splitlines()
        shown: list[Any] = []
        for frame in await self.editor.frames(stop):
            if frame.get("presentationHint") == "label":
                shown.append(frame["name"].partition(" · ")[0])
                continue
            assert frame["source"]["path"] == str(self.program), frame
            assert not frame["source"].get("sourceReference"), frame
            shown.append((frame["name"], lines[frame["line"] - 1].rpartition("# ")[2]))
        return shown


def line(program: str, marker: str) -> int:
    return program[: program.index(f"# {marker}\n")].count("\n") + 1


def play(up: Rayside, folder: Path, code: str, marker: str, story: Callable[[Scene], Awaitable[None]]) -> str:
    """Submits a program, and has an editor with a breakpoint at one of its lines; returns what it printed."""
    program = folder / "program.py"
    program.write_text(code)
    words = ["--debug", "--working-dir", str(folder), "--entrypoint", "python program.py"]
    job = up.json("submit", *words)["submission_id"]
    token = up.target.instance.token_file.read_text()

    async def debug() -> None:
        client = await Client.connect("127.0.0.1", up.settings.relay_port)
        breakpoints = {str(program): [{"line": line(code, marker)}]}
        await client.attach(options={"token": token, "job": job}, breakpoints=breakpoints, no_delay=False)
        await story(Scene(Session(client, patience=PATIENCE), program))
        await client.disconnect()

    asyncio.run(asyncio.wait_for(debug(), 2 * PATIENCE))
    return until(lambda: up.run("logs", "--job", job).stdout, lambda text: "ended" in text, patience=60)


# Other tasks of the same function come at the same time.
FUNCTIONS = """\
import ray

@ray.remote(num_cpus=0.1)
def inner(n):
    doubled = 2 * n  # inner
    return doubled

@ray.remote(num_cpus=0.1)
def work(n):
    half = n / 2  # work
    rest = ray.get(inner.remote(n))  # nested
    return half + rest  # got

def main():
    others = [work.remote(n) for n in (10, 20)]
    ref = work.remote(6); others.append(work.remote(30))  # call
    total = ray.get(ref)  # get
    print("ended", total, ray.get(others))

main()  # program
"""


def test_a_step_goes_into_the_task_of_this_call_and_shows_its_callers_below(
    up: Rayside, tmp_path: Path
) -> None:
    async def story(scene: Scene) -> None:
        editor = scene.editor
        caller = await scene.stop()
        await scene.go(caller, "stepIn")
        task = await scene.stop()
        assert (task["reason"], task["ray"]["task"], task["preserveFocusHint"]) == ("step", "work", False)
        assert task["ray"]["calledBy"] == caller["threadId"]
        assert await editor.evaluate(task, "n") == "6"
        below = ["called by: driver", ("main", "call"), ("<module>", "program")]
        assert await scene.stack(task) == [("work", "work"), *below]
        after = await scene.stop(threadId=caller["threadId"])
        assert (after["reason"], after["preserveFocusHint"]) == ("step", True)
        assert await scene.stack(after) == [("main", "get"), ("<module>", "program")]

        # What is below has no variables, and nothing is evaluated there.
        frames = await editor.frames(task)
        assert (await editor.request("scopes", frameId=frames[2]["id"]))["scopes"] == []
        with pytest.raises(RequestFailed, match="the caller"):
            await editor.request("evaluate", expression="n", frameId=frames[2]["id"], context="watch")
        page = await editor.request("stackTrace", threadId=task["threadId"], startFrame=1, levels=2)
        assert [frame["name"] for frame in page["stackFrames"]] == [frame["name"] for frame in frames[1:3]]
        assert page["totalFrames"] == len(frames) == 4

        # From there into another task; its caller waits in `ray.get` meanwhile.
        await scene.go(caller)
        await scene.go(task, "next")
        await scene.stop(threadId=task["threadId"])
        await scene.go(task, "stepIn")
        inner = await scene.stop()
        assert inner["ray"]["task"] == "inner"
        above = ["called by: work", ("work", "nested"), *below]
        assert await scene.stack(inner) == [("inner", "inner"), *above]
        await scene.go(inner)
        got = await scene.stop(threadId=task["threadId"])
        assert await scene.stack(got) == [("work", "got"), *below]
        await scene.go(got)

    assert "ended 15.0 [25.0, 50.0, 75.0]" in play(up, tmp_path, FUNCTIONS, "call", story)
