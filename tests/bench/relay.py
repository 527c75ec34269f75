"""Measures the debug relay: `./invokew bench --name relay`. Nothing need be up; it takes six minutes.

The relay is the process that `up` starts, over a scripted Ray; nothing is asserted.

- An `evaluate` through the relay, over one sent straight to debugpy as it comes, and with our client; and
  through a process that only copies bytes, which is what any process between costs.
- From a task's stop to `stopped` in the editor: attached before, and found only when it stops.
- All stacks of many scripted debuggees, which an editor has, or which are visited for it.
- One expression in all of many scripted debuggees, whose task is stopped.
- Many scripted debuggees that are attached to at once, and then all stop within a second: every stop is
  counted, what a request then takes, what the relay takes of memory and processor, and how often Ray is
  asked while nothing happens. The editor asks for all threads after each stop, without waiting for answers.
- What debugpy costs a hot loop (`tracing.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import requests

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.relay.config import Config
from tests.bench import tracing
from tests.integration.conftest import free_ports
from tests.integration.relay_debuggees import TOKEN, Process, Session
from tests.integration.scripted_debuggees import row

EVALUATIONS = 200
STOPS = 40
FOUND = 20
COUNTS = (1, 64, 128, 256, 512, 1000)
RUNS = 3  # of each of them
MOST = 120.0  # seconds for one of these runs, which takes about ten
SETTLING = 1.0  # seconds until all that belongs to attaching is done
IDLE = 4.0  # seconds that requests to Ray are counted in

TASK = """\
import time

def work():
    stamp = time.time()
    return stamp

while True:
    work()
    time.sleep(0.03)
"""
LINE = 5
# Copies bytes to and from a port, its argument; prints the port at which it does.
COPIES = """\
import asyncio, socket, sys

async def copy(reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()

async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
BREAKPOINT = """\
import time
stamp = time.time()
breakpoint()
stamp
"""


@dataclass(frozen=True)
class Rig:
    """Holds a relay's process, and the process of the Ray that it looks at."""

    ray: str
    port: int
    process: psutil.Process

    def lists(self, *processes: Process) -> None:
        """Makes Ray list these from now on."""
        rows = [row(process.debuggee) for process in processes]
        requests.post(f"{self.ray}/workers", json=rows, timeout=5).raise_for_status()

    def counts(self) -> dict[str, Any]:
        return dict(requests.get(f"{self.ray}/requests", timeout=5).json())

    def stop_all(self) -> None:
        requests.post(f"{self.ray}/stop", timeout=5).raise_for_status()


@asynccontextmanager
async def rig(folder: Path, count: int = 0) -> AsyncIterator[Rig]:
    ray = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.scripted_debuggees", str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ray.stdin and ray.stdout
    port = free_ports()[0]
    address = f"http://127.0.0.1:{json.loads(ray.stdout.readline())['port']}"
    (folder / "token").write_text(TOKEN)
    config = folder / "relay.json"
    config.write_text(Config("127.0.0.1", port, address, folder / "token", False).document())
    words = [sys.executable, "-m", "rayside.relay", "--config", str(config)]
    ours = subprocess.Popen(words, cwd=ROOT, stderr=(folder / "log").open("ab"), text=True)
    try:
        await until_listening(port)
        yield Rig(address, port, psutil.Process(ours.pid))
    except BaseException:
        print((folder / "log").read_text()[-3000:])
        raise
    finally:
        ours.terminate()
        ray.stdin.close()
        for process in (ours, ray):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        ray.stdout.close()


async def until_listening(port: int) -> None:
    for _ in range(400):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise TimeoutError("the relay does not listen")


class Editor(Session):
    """An editor at the relay, or directly at a debuggee."""

    @classmethod
    async def attach(
        cls, port: int, *, breakpoints: dict[str, list[int]] | None = None, no_delay: bool = False
    ) -> Editor:
        client = await Client.connect("127.0.0.1", port)
        await client.attach(
            breakpoints={p: [{"line": line} for line in lines] for p, lines in (breakpoints or {}).items()},
            options={"token": TOKEN, "allThreads": True},
            no_delay=no_delay,
        )
        return cls(client, patience=30)

    async def top(self, thread: int) -> int:
        return int((await self.request("stackTrace", threadId=thread, levels=1))["stackFrames"][0]["id"])

    async def result(self, frame: int, expression: str = "1 + 1") -> str:
        return str((await self.request("evaluate", expression=expression, frameId=frame))["result"])


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def milliseconds(values: Sequence[float]) -> str:
    return (
        f"median {statistics.median(values) * 1e3:.2f}, p95 {percentile(values, 95) * 1e3:.2f}, "
        f"p99 {percentile(values, 99) * 1e3:.2f} ms ({len(values)} runs)"
    )


async def evaluations(folder: Path) -> None:
    script = folder / "task.py"
    script.write_text(TASK)
    processes = await asyncio.gather(*(Process.start(script, number) for number in (1, 2, 3, 4)))
    words = [sys.executable, "-c", COPIES, str(processes[3].debuggee.port)]
    copying = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert copying.stdout
    between = int(copying.stdout.readline())
    async with rig(folder) as started:
        started.lists(processes[0])
        breakpoints = {str(script): [LINE]}
        editors = [
            await Editor.attach(started.port, breakpoints=breakpoints),
            await Editor.attach(processes[1].debuggee.port, breakpoints=breakpoints),
            await Editor.attach(processes[2].debuggee.port, breakpoints=breakpoints, no_delay=True),
            await Editor.attach(between, breakpoints=breakpoints, no_delay=True),
        ]
        frames = [await editor.top((await editor.event("stopped"))["threadId"]) for editor in editors]
        for editor, frame in zip(editors, frames, strict=True):
            await editor.result(frame)  # warms up
        # In turn, so that a machine that slows down slows all of them.
        columns: list[list[float]] = [[], [], [], []]
        for _ in range(EVALUATIONS):
            for column, editor, frame in zip(columns, editors, frames, strict=True):
                column.append(await timed(lambda e=editor, f=frame: e.result(f)))  # type: ignore[misc]
        names = ("through the relay", "debugpy as it comes", "straight, no delay", "copied, no delay")
        for name, column in zip(names, columns, strict=True):
            print(f"evaluate, {name}: {milliseconds(column)}")
        through_relay, plain, cured, copied = (statistics.median(column) for column in columns)
        print(
            f"evaluate: ratio {through_relay / cured:.2f} over a straight one with the same cure, no delay; "
            f"{copied / cured:.2f} where bytes are only copied; "
            f"{through_relay / plain:.3f} over debugpy as it comes"
        )
        for editor in editors:
            await editor.client.disconnect()
    copying.kill()
    copying.communicate()
    await asyncio.gather(*(process.close() for process in processes))


async def stops(folder: Path) -> None:
    for kind, in_process in {"Rayside's port": True, "debugpy's adapter": False}.items():
        seconds = await _stops(folder, in_process)
        print(f"from a task's stop to `stopped`, attached before, {kind}: {milliseconds(seconds)}")
    await _found(folder)


async def _stops(folder: Path, in_process: bool) -> list[float]:
    script = folder / "task.py"
    script.write_text(TASK)
    process = await Process.start(script, 1, in_process=in_process)
    seconds = []
    async with rig(folder) as started:
        started.lists(process)
        editor = await Editor.attach(started.port, breakpoints={str(script): [LINE]})
        for _ in range(STOPS + 1):
            stop = await editor.event("stopped")
            now = time.time()
            seconds.append(now - float(await editor.result(await editor.top(stop["threadId"]), "stamp")))
            await editor.client.request("continue", {"threadId": stop["threadId"]})
        await editor.client.disconnect()
    await process.close()
    return seconds[1:]


async def _found(folder: Path) -> None:
    script = folder / "task.py"
    script.write_text(BREAKPOINT)
    seconds = []
    async with rig(folder) as started:
        editor = await Editor.attach(started.port)
        for number in range(1, FOUND + 1):
            process = await Process.start(script, number)
            started.lists(process)
            listed = time.time()
            stop = await editor.event("stopped")
            seconds.append(time.time() - listed)
            await editor.client.request("continue", {"threadId": stop["threadId"]})
            await process.end()
        await editor.client.disconnect()
    print(f"from a task that waits in `breakpoint()`, as Ray lists it, to `stopped`: {milliseconds(seconds)}")


@dataclass
class Crowd:
    """Holds the figures of so many debuggees.

    These are memory in MB; the processor's seconds until they were attached to and while they stopped, and
    its share while nothing happened; and the requests a second to Ray.
    """

    count: int
    resident: float
    attaching: float
    stopping: float
    idle: float
    requests: float


async def crowd(folder: Path, count: int) -> Crowd:
    return await asyncio.wait_for(_crowd(folder, count), MOST)


async def _crowd(folder: Path, count: int) -> Crowd:
    async with rig(folder, count) as started:

        def spent() -> float:
            return sum(started.process.cpu_times()[:2])

        empty, at_first = started.process.memory_info().rss / 2**20, spent()
        editor = await Editor.attach(started.port, breakpoints={"/here/job.py": [2]})
        began = time.perf_counter()
        for _ in range(count + 1):  # the cluster's own row is one more
            await editor.event("thread", reason="started")
        attached = time.perf_counter() - began
        await asyncio.sleep(SETTLING)
        attaching = spent() - at_first

        before, idle = started.counts(), spent()
        await asyncio.sleep(IDLE)
        after, idle = started.counts(), (spent() - idle) / IDLE
        requests_a_second = (
            sum(after.get(name, 0) - before.get(name, 0) for name in ("workers", "tasks", "jobs")) / IDLE
        )

        stopping = spent()
        started.stop_all()
        began = time.perf_counter()
        took: dict[str, list[float]] = {"stackTrace": [], "evaluate": [], "threads": []}

        async def look(thread: int) -> None:
            """Asks what an editor asks at each stop."""
            request = editor.client.request
            body: Message = {}

            async def stack() -> None:
                body.update(await request("stackTrace", {"threadId": thread}))

            took["stackTrace"].append(await timed(stack))
            took["evaluate"].append(await timed(lambda: editor.result(body["stackFrames"][0]["id"])))
            took["threads"].append(await timed(lambda: request("threads")))

        looking, stopped = [], set[int]()
        while len(stopped) < count:
            stop = await editor.event("stopped")
            stopped.add(stop["threadId"])
            looking.append(asyncio.ensure_future(look(stop["threadId"])))
        all_stopped = time.perf_counter() - began
        await asyncio.gather(*looking)
        resident, stopping = started.process.memory_info().rss / 2**20, spent() - stopping
        surprises = started.counts()["surprises"]
        await editor.client.disconnect()
    figures = Crowd(count, resident, attaching, stopping, idle, requests_a_second)
    print(
        f"{count} debuggees: attached to within {attached:.2f} s; {len(stopped)} of {count} stops told "
        f"within {all_stopped:.2f} s, that had come within 1 s; of processor {attaching:.2f} s to attach, "
        f"{stopping:.2f} s for the stops, {idle:.1%} while nothing happens; "
        f"resident {empty:.0f} MB before, {resident:.1f} MB after; "
        f"{requests_a_second:.2f} requests a second to Ray",
        flush=True,
    )
    if count > 1:
        for name, values in took.items():
            print(f"  {name}: {milliseconds(values)}")
    if surprises:
        print(f"  what the scripted debuggees do not know: {surprises[:3]}")
    return figures


async def stacks(folder: Path) -> None:
    """Prints what all stacks take, of debuggees that an editor has, and of those that are visited."""
    for count in COUNTS[1:]:
        visited, held = [], []
        for _ in range(RUNS):
            async with rig(folder, count) as started:
                client = await Client.connect("127.0.0.1", started.port)

                async def read(client: Client = client, count: int = count) -> None:
                    answer = await client.request("stacks", {"token": TOKEN}, timeout=MOST)
                    assert answer["processes"] == count, answer["unanswered"][:3]

                visited.append(await timed(read))
                editor = await Editor.attach(started.port)
                for _ in range(count + 1):
                    await editor.event("thread", reason="started")
                held.append(await timed(read))
                await editor.client.disconnect()
                await client.disconnect()
        print(f"all stacks of {count} debuggees, visited: {milliseconds(visited)}")
        print(f"all stacks of {count} debuggees that an editor has: {milliseconds(held)}", flush=True)


async def comparisons(folder: Path) -> None:
    """Prints what one expression in all stopped tasks takes."""
    for count in COUNTS[1:]:
        taken = []
        for _ in range(RUNS):
            async with rig(folder, count) as started:
                editor = await Editor.attach(started.port)
                for _ in range(count + 1):
                    await editor.event("thread", reason="started")
                started.stop_all()
                for _ in range(count):
                    await editor.event("stopped")

                async def compare(client: Client = editor.client, count: int = count) -> None:
                    answer = await client.request("compare", {"expression": "x"}, timeout=MOST)
                    assert answer["tasks"] == count, answer["failed"][:3]

                taken.append(await timed(compare))
                await editor.client.disconnect()
        print(f"one expression in {count} stopped tasks: {milliseconds(taken)}", flush=True)


def growth(crowds: Sequence[Sequence[Crowd]]) -> None:
    """Prints medians of the runs of each count, and how they grow with each doubling of the debuggees."""
    medians = []
    for runs in crowds:
        columns = ([getattr(run, field.name) for run in runs] for field in fields(Crowd))
        medians.append(Crowd(*map(statistics.median, columns)))
    for crowd in medians:
        print(
            f"{crowd.count:.0f} debuggees, medians of {RUNS} runs: processor {crowd.attaching:.2f} s to "
            f"attach, {crowd.stopping:.2f} s for the stops, {crowd.idle:.1%} while nothing happens; "
            f"resident {crowd.resident:.1f} MB"
        )
    for smaller, larger in itertools.pairwise(medians[1:]):
        doublings = math.log2(larger.count / smaller.count)
        attaching, stopping, resident = (
            (getattr(larger, name) / getattr(smaller, name)) ** (1 / doublings)
            for name in ("attaching", "stopping", "resident")
        )
        print(
            f"{smaller.count:.0f} to {larger.count:.0f} debuggees, for each doubling: processor "
            f"x {attaching:.2f} to attach, x {stopping:.2f} for the stops; memory x {resident:.2f}"
        )


async def measure() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rs-") as name:
        folder = Path(name)
        await evaluations(folder)
        await stops(folder)
        await stacks(folder)
        await comparisons(folder)
        growth([[await crowd(folder, count) for _ in range(RUNS)] for count in COUNTS])


if __name__ == "__main__":
    asyncio.run(measure())
    tracing.main()
