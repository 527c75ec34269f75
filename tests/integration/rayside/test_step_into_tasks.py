"""Tests steps into Ray's `.remote()`, on a real Ray: to the first line of the task that the call starts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import FIRST_RAY_WITH_TOKENS, OLDEST_RAY
from rayside.dap.client import Client
from rayside.errors import RequestFailed
from rayside.relay.remote_calls import FIRST
from rayside.waiting import until
from tests.integration.conftest import Rayside
from tests.integration.relay_debuggees import Session
from tests.integration.their_ray import WORKER, their_ray
from tests.patience import PATIENCE


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


class Scene:
    """Plays an editor that debugs one job."""

    def __init__(self, editor: Session, program: Path) -> None:
        self.editor, self.program = editor, program
        self.others: list[dict[str, Any]] = []

    def line(self, marker: str) -> int:
        return line(self.program.read_text(), marker)

    async def stop(self, task: str, reason: str = "step") -> dict[str, Any]:
        """Returns the next stop of a task of that name, in whatever order these come."""
        for stop in self.others:
            if (stop["ray"]["task"], stop["reason"]) == (task, reason):
                self.others.remove(stop)
                return stop
        while True:
            stop = await self.editor.event("stopped")
            if (stop["ray"]["task"], stop["reason"]) == (task, reason):
                return stop
            self.others.append(stop)

    async def called(self) -> dict[str, Any]:
        """Returns the stop of the task that a step has gone into."""
        while "calledBy" not in (stop := await self.editor.event("stopped"))["ray"]:
            self.others.append(stop)
        return stop

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


def play(
    up: Rayside, folder: Path, code: str, markers: list[str], story: Callable[[Scene], Awaitable[None]]
) -> str:
    """Submits a program, and has an editor with breakpoints in it; returns the job."""
    program = folder / "program.py"
    program.write_text(code)
    words = ["--debug", "--working-dir", str(folder), "--entrypoint", "python program.py"]
    job = up.json("submit", *words)["submission_id"]
    cluster = json.loads((up.folder / "cluster.json").read_text())
    token = Path(cluster["token_file"]).read_text()

    async def debug() -> None:
        client = await Client.connect(cluster["relay"]["host"], cluster["relay"]["port"])
        breakpoints = {str(program): [{"line": line(code, marker)} for marker in markers]}
        await client.attach(options={"token": token, "job": job}, breakpoints=breakpoints, no_delay=False)
        scene = Scene(Session(client, patience=PATIENCE), program)
        await story(scene)
        await client.disconnect()
        assert not scene.others, "the story has all stops"

    asyncio.run(asyncio.wait_for(debug(), 2 * PATIENCE))
    return str(job)


def printed(up: Rayside, job: str) -> str:
    """Returns what a job has printed when it has ended."""
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
    print(f"ended {total} {ray.get(others)}")

main()  # program
"""


def test_a_step_goes_into_the_task_of_this_call_and_shows_its_callers_below(
    up: Rayside, tmp_path: Path
) -> None:
    async def story(scene: Scene) -> None:
        editor = scene.editor
        caller = await scene.stop("driver", "breakpoint")
        await scene.go(caller, "stepIn")
        task = await scene.stop("work")
        assert (task["ray"]["calledBy"], task["preserveFocusHint"]) == (caller["threadId"], False)
        assert await editor.evaluate(task, "n") == "6"
        below = ["called by: driver", ("main", "call"), ("<module>", "program")]
        assert await scene.stack(task) == [("work", "work"), *below]
        after = await scene.stop("driver")
        assert await scene.stack(after) == [("main", "get"), ("<module>", "program")]

        # What is below has no variables, and nothing is evaluated there.
        frames = await editor.frames(task)
        assert (await editor.request("scopes", frameId=frames[2]["id"]))["scopes"] == []
        with pytest.raises(RequestFailed, match="the caller"):
            await editor.request("evaluate", expression="n", frameId=frames[2]["id"], context="watch")
        page = await editor.request("stackTrace", threadId=task["threadId"], startFrame=1, levels=2)
        assert [frame["name"] for frame in page["stackFrames"]] == [frame["name"] for frame in frames[1:3]]
        assert page["totalFrames"] == len(frames) == 4

        # From there into another task; who called it waits in `ray.get` meanwhile.
        await scene.go(after)
        await scene.go(task, "next")
        assert (await scene.stack(await scene.stop("work")))[0] == ("work", "nested")
        await scene.go(task, "stepIn")
        inner = await scene.stop("inner")
        above = ["called by: work", ("work", "nested"), *below]
        assert await scene.stack(inner) == [("inner", "inner"), *above]
        await scene.go(inner)
        got = await scene.stop("work")
        assert await scene.stack(got) == [("work", "got"), *below]
        await scene.go(got)

    assert "ended 15.0 [25.0, 50.0, 75.0]" in printed(up, play(up, tmp_path, FUNCTIONS, ["call"], story))


# There is no breakpoint for the workers.
ACTORS = """\
import ray

@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self, total):
        self.total = total  # init

    def add(self, n):
        self.total += n  # add
        return self.total

@ray.remote(num_cpus=0.1)
class Service:
    async def answer(self, n):
        m = n + 1  # answer
        return m

def main():
    service = Service.remote()
    other = Counter.remote(5)
    breakpoint()
    counter = Counter.remote(40)  # make
    others = [other.add.remote(1), counter.add.remote(1)]
    total = ray.get(counter.add.remote(2))  # count
    answer = ray.get(service.answer.remote(6))  # ask
    print(f"ended {total} {answer} {ray.get(others)}")  # asked

ray.init()
main()  # program
"""


def test_a_step_goes_into_an_actors_method(up: Rayside, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        caller = await scene.stop("driver", "breakpoint")

        async def into(task: str, function: str, marker: str, at: str) -> None:
            await scene.go(caller, "stepIn")
            stop = await scene.stop(task)
            below = ["called by: driver", ("main", at), ("<module>", "program")]
            assert await scene.stack(stop) == [(function, marker), *below]
            await scene.go(stop)
            await scene.stop("driver")

        await into("Counter.__init__", "__init__", "init", "make")
        await scene.go(caller, "next")
        await scene.stop("driver")
        await into("Counter.add", "add", "add", "count")
        await into("Service.answer", "answer", "answer", "ask")
        assert (await scene.stack(caller))[0] == ("main", "asked")
        await scene.go(caller)

    assert "ended 43 7 [6, 41]" in printed(up, play(up, tmp_path, ACTORS, [], story))


LATE = """\
import ray

@ray.remote
class Holder:
    def is_there(self):
        return True

@ray.remote
def work(n):
    m = n + 1  # work
    return m

def plain(n):
    m = n + 1  # plain
    return m

def main():
    number = plain(1)  # local
    cpus = ray.cluster_resources()["CPU"]
    holder = Holder.options(num_cpus=cpus).remote()
    ray.get(holder.is_there.remote())
    ref = work.options(num_cpus=cpus).remote(number)  # call
    number = None  # after
    ray.kill(holder)
    print(f"ended {ray.get(ref)}")

ray.init()
main()  # program
"""


def test_a_task_that_cant_begin_stops_once_it_can_and_its_caller_does_not_wait(
    up: Rayside, tmp_path: Path
) -> None:
    async def story(scene: Scene) -> None:
        caller = await scene.stop("driver", "breakpoint")
        await scene.go(caller, "stepIn")
        assert (await scene.stack(await scene.stop("driver")))[0] == ("plain", "plain")
        await scene.go(caller)
        await scene.stop("driver", "breakpoint")
        began = time.monotonic()
        await scene.go(caller, "stepIn")
        assert (await scene.stack(await scene.stop("driver")))[0] == ("main", "after")
        assert time.monotonic() - began < FIRST + 10
        await scene.editor.nothing("stopped", 2.0)
        await scene.go(caller)
        late = await scene.stop("work")
        below = ["called by: driver", ("main", "call"), ("<module>", "program")]
        assert await scene.stack(late) == [("work", "work"), *below]
        told = [event["body"]["output"] for event in scene.editor.unmatched if event["event"] == "output"]
        assert "work has not begun yet" in "".join(told)
        await scene.go(late)

    assert "ended 3" in printed(up, play(up, tmp_path, LATE, ["local", "call"], story))


# Each runs on the other node.
FAR = f"""\
import ray

@ray.remote(num_cpus=0.1, resources={{"node:{WORKER}": 0.01}})
def work(n):
    m = n + 1  # work
    return m

@ray.remote(num_cpus=0.1, resources={{"node:{WORKER}": 0.01}})
class Counter:
    def __init__(self):
        self.total = 0  # init

    async def add(self, n):
        self.total += n  # add
        return self.total

def main():
    one = ray.get(work.remote(1))  # call
    counter = Counter.remote()  # make
    two = ray.get(counter.add.remote(one))  # count
    assert (one, two) == (2, 2)  # end

ray.init()
main()  # program
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [OLDEST_RAY, FIRST_RAY_WITH_TOKENS])
def test_a_step_goes_to_another_node_with_an_older_ray_too(
    version: str, user: Rayside, tmp_path: Path
) -> None:
    async def story(scene: Scene) -> None:
        caller = await scene.stop("driver", "breakpoint")
        for function, marker, at in (
            ("work", "work", "call"),
            ("__init__", "init", "make"),
            ("add", "add", "count"),
        ):
            await scene.go(caller, "stepIn")
            # An older Ray does not tell a task its name.
            stop = await scene.called()
            assert stop["ray"]["nodeIp"] == WORKER != caller["ray"]["nodeIp"]
            below = ["called by: driver", ("main", at), ("<module>", "program")]
            assert await scene.stack(stop) == [(function, marker), *below]
            await scene.go(stop)
            await scene.stop("driver")
        assert (await scene.stack(caller))[0] == ("main", "end")
        await scene.go(caller)

    with their_ray(version=version) as theirs:
        done = user.run("up", "--address", theirs.url, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        job = play(user, tmp_path, FAR, ["call"], story)
        assert user.json("debug", "--job", job)["job"]["status"] == "SUCCEEDED"
        assert user.run("down").returncode == 0
