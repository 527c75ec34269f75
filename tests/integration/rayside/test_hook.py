"""Tests the hook of `submit --debug` in a real Ray: a plain DAP client stops in unmodified code."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayside.dap.client import Client
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.ray.job_processes import announced
from rayside.ray.records import DebuggableWorker, Job
from rayside.steps.relay_process import LocalRelay
from rayside.waiting import until
from rayside.worker.handshake import proof
from tests.integration.conftest import Rayside
from tests.integration.stranger import evaluates

PATIENCE = 240.0  # seconds; only a broken test waits so long
STANDING = 20.0  # seconds within which a thread that has stopped has frames

KINDS = """\
import ray

@ray.remote
def plain(n):
    return n + 1  # plain

@ray.remote
def nested(n):
    return ray.get(plain.remote(n))  # nested

@ray.remote(num_returns="streaming")
def generator(n):
    for i in range(n):
        yield i  # generator

@ray.remote(num_cpus=0)
class Sync:
    def __init__(self):
        self.total = 0  # sync-init
    def add(self, n):
        self.total += n  # sync
        return self.total

@ray.remote(num_cpus=0)
class Async:
    async def add(self, n):
        return n + 1  # async

@ray.remote(num_cpus=0, max_concurrency=2)
class Threaded:
    def add(self, n):
        return n + 1  # threaded

ray.init()
assert ray.get(plain.remote(1)) == 2
assert ray.get(plain.remote(2)) == 3
assert ray.get(nested.remote(3)) == 4
assert [ray.get(ref) for ref in generator.remote(2)] == [0, 1]
for kind in (Sync, Async, Threaded):
    actor = kind.remote()
    assert ray.get([actor.add.remote(1), actor.add.remote(2)])
done = True  # driver
print(f"done {done}")
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    roomy = replace(rayside.settings, ray_cpus=4)
    four = Rayside(roomy)
    # The fixture's own teardown takes it down: the state folder is the same.
    done = four.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return four


class Debugger:
    """Attaches to every process of a job as it opens its debugger, as the relay does."""

    def __init__(
        self, up: Rayside, name: str, before: set[str], breakpoints: Iterable[int], **how: Any
    ) -> None:
        self._dashboard, self._name, self._before, self._how = up.target.access.require(), name, before, how
        latest = up.folder / "ray" / "session_latest"
        # Each driver of Ray's makes the link anew: for a moment there is none.
        self._session = until(latest.resolve, lambda folder: folder != latest, PATIENCE)
        self._prove = partial(proof, (up.folder / "token").read_bytes())
        self.lines = sorted(breakpoints)
        self.stops: list[tuple[int, str, int]] = []  # pid, function, line
        self.clients: dict[int, Client] = {}  # by pid

    @property
    def job(self) -> Job:
        return self._dashboard.job(self._name)

    @property
    def output(self) -> str:
        return self._dashboard.output(self._name)

    @property
    def program(self) -> str:
        package = self.job.runtime_env["working_dir"].rsplit("/", 1)[1].removesuffix(".zip")
        folder = self._session / "runtime_resources" / "working_dir_files" / package
        return str(folder / "program.py")

    async def until(self, reached: Callable[[], bool]) -> None:
        """Attaches and resumes every stop until `reached` says so; fails if the job ends before."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, f"{self.stops[-5:]} {self.output}"
            assert not self.job.ended, self.output
            await self._look()
            await asyncio.sleep(0.05)

    async def to_the_end(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.job.ended:
            assert time.monotonic() < deadline, f"{self.stops[-5:]} {self.output}"
            await self._look()
            await asyncio.sleep(0.05)

    async def set_lines(self, lines: Iterable[int]) -> None:
        self.lines = sorted(lines)
        for client in self.clients.values():
            await client.set_breakpoints(self.program, [{"line": line} for line in self.lines])

    async def debuggees(self, count: int) -> set[tuple[str, int]]:
        """Returns where the debuggers of that many processes listen, once they do; it attaches to none."""
        deadline = time.monotonic() + PATIENCE
        while len(addresses := {(worker.node_ip, worker.port) for worker in self._new()}) < count:
            assert time.monotonic() < deadline, f"{addresses} {self.output}"
            await asyncio.sleep(0.1)
        return addresses

    def _new(self) -> list[DebuggableWorker]:
        workers = [worker for worker in self._dashboard.debuggable() if worker.worker_id not in self._before]
        addresses = {(worker.node_ip, worker.port) for worker in workers}
        before_ray_init = announced([self.job], self._dashboard.node_addresses())
        return [
            *workers,
            *(
                DebuggableWorker(worker.key, worker.host, worker.port, worker.pid, True, "", worker.since)
                for worker in before_ray_init
                if worker.address not in addresses
            ),
        ]

    async def _look(self) -> None:
        for worker in self._new():
            if worker.pid in self.clients:
                continue
            client = self.clients[worker.pid] = await Client.connect(worker.node_ip, worker.port)
            breakpoints = {self.program: [{"line": line} for line in self.lines]}
            await client.attach(breakpoints=breakpoints, prove=self._prove, **self._how)
        for pid, client in self.clients.items():
            while not client.events.empty():
                event = client.events.get_nowait()
                if event and event["event"] == "stopped":
                    await self._stopped(pid, client, event["body"])

    async def _stopped(self, pid: int, client: Client, body: dict[str, Any]) -> None:
        trace: dict[str, Any] = {}
        deadline = time.monotonic() + STANDING
        # pydevd gives a thread half a second to stand still, and answers then.
        while not trace.get("stackFrames"):
            assert time.monotonic() < deadline, (
                f"{pid} {body} has no frames; {self.stops} before, {client.events} after, of"
                f" {(await client.request('threads'))['threads']}: {self.output}"
            )
            trace = await client.request("stackTrace", {"threadId": body["threadId"]})
        frame = trace["stackFrames"][0]
        assert frame["source"]["path"] == self.program, trace
        self.stops.append((pid, frame["name"].split(".")[-1], frame["line"]))
        # By itself: without that, DAP lets all threads go on, and one that has just stopped would too.
        await client.request("continue", {"threadId": body["threadId"], "singleThread": True})


def listening(up: Rayside) -> set[tuple[str, int]]:
    """Returns each port that a process of the cluster listens on, with an address where it can be reached."""
    addresses: set[tuple[str, int]] = set()
    relay = up.target.relay
    assert isinstance(relay, LocalRelay)
    for process in [*up.target.head.leftovers(), *relay.leftovers()]:
        with suppress(psutil.Error):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    host, port = connection.laddr
                    addresses.add(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port))
    return addresses


def line(program: str, marker: str) -> int:
    return next(n for n, text in enumerate(program.splitlines(), 1) if text.endswith(f"# {marker}"))


@asynccontextmanager
async def submitted(
    up: Rayside,
    folder: Path,
    program: str,
    *,
    debug: Debug | None,
    markers: Iterable[str] = (),
    entrypoint: str = "python program.py",
    runtime_env: dict[str, Any] | None = None,
    **how: Any,
) -> AsyncIterator[Debugger]:
    (folder / "program.py").write_text(program)
    job = jobs.prepare(working_dir=str(folder), py_modules=[], entrypoint=entrypoint, debug=debug)
    name = jobs.new_submission_id(entrypoint)
    before = up.target.access.require().workers_with_debugger()
    up.target.access.submit(replace(job, runtime_env=runtime_env or {}), name)
    debugger = Debugger(up, name, before, [line(program, marker) for marker in markers], **how)
    try:
        yield debugger
    finally:
        for client in debugger.clients.values():
            await client.disconnect()


def ended(debugger: Debugger, status: str = "SUCCEEDED") -> str:
    assert debugger.job.status == status, debugger.output
    return debugger.output


async def debugged(
    up: Rayside, folder: Path, program: str, *, debug: Debug | None = None, **how: Any
) -> Debugger:
    """Debugs a program to its end."""
    async with submitted(
        up, folder, program, debug=debug or Debug(attach_timeout=PATIENCE), **how
    ) as debugger:
        await debugger.to_the_end()
    return debugger


@pytest.mark.gate
async def test_every_kind_of_task_and_the_driver_stop_at_a_plain_line(up: Rayside, tmp_path: Path) -> None:
    markers = ["plain", "nested", "generator", "sync-init", "sync", "async", "threaded", "driver"]

    debugger = await debugged(up, tmp_path, KINDS, markers=markers)
    ended(debugger)
    stops = [(name, number) for _, name, number in debugger.stops]
    assert sorted(stops) == sorted(
        [("plain", line(KINDS, "plain"))] * 3
        + [("nested", line(KINDS, "nested"))]
        + [("generator", line(KINDS, "generator"))] * 2
        + [("__init__", line(KINDS, "sync-init"))]
        + [("add", line(KINDS, "sync"))] * 2
        + [("add", line(KINDS, "async"))] * 2
        + [("add", line(KINDS, "threaded"))] * 2
        + [("<module>", line(KINDS, "driver"))]
    )
    # Ray ran the first two tasks in one process: its breakpoints were kept, over one connection.
    (first, *_), (second, *_) = debugger.stops[:2]
    assert first == second


LATER = """\
import threading, time
import ray

@ray.remote(max_concurrency=2, num_cpus=0)
class Threaded:
    def run(self):
        while not self.over:
            time.sleep(0.01)
            self.turn()
    def turn(self):
        self.turns += 1  # threaded
    def start(self):
        self.over, self.turns = False, 0
    def end(self):
        self.over = True

@ray.remote(num_cpus=0)
class Async:
    async def run(self):
        import asyncio
        self.over = False
        while not self.over:
            await asyncio.sleep(0.01)
            self.turn()
    def turn(self):
        self.done = True  # async
    async def end(self):
        self.over = True

@ray.remote(num_cpus=0)
class Python:
    def start(self):
        self.over = False
        threading.Thread(target=self.run).start()
    def run(self):
        while not self.over:
            time.sleep(0.01)
            self.turn()
    def turn(self):
        self.done = True  # python
    def end(self):
        self.over = True

ray.init()
threaded, loop, python = Threaded.remote(), Async.remote(), Python.remote()
ray.get([threaded.start.remote(), python.start.remote()])
runs = [threaded.run.remote(), loop.run.remote()]
def wait():
    time.sleep(0.01)  # driver
print("running", flush=True)
import pathlib
while not pathlib.Path(GO).exists():
    wait()
ray.get([actor.end.remote() for actor in (threaded, loop, python)] + runs)
"""


async def test_breakpoints_set_later_reach_every_thread_that_runs_already(
    up: Rayside, tmp_path: Path
) -> None:
    """The threads are those of Ray's C++ part, of asyncio and of Python, and sleep until then."""
    markers = ["threaded", "async", "python", "driver"]
    go = tmp_path / "go"
    program = LATER.replace("GO", repr(str(go)))
    lines_set = {line(program, marker) for marker in markers}
    code = tmp_path / "code"
    code.mkdir()

    async with submitted(up, code, program, debug=Debug(attach_timeout=PATIENCE)) as debugger:
        await debugger.until(lambda: "running\n" in debugger.output and len(debugger.clients) >= 4)
        await debugger.set_lines(lines_set)
        await debugger.until(lambda: {number for *_, number in debugger.stops} == lines_set)
        await debugger.set_lines([])
        go.touch()
        await debugger.to_the_end()
    ended(debugger)


TIMED = """\
import time
import ray
import psutil
began = time.time()
waited = began - psutil.Process().create_time()
ray.init()
print(f"init took {time.time() - began} after {waited}")

@ray.remote
def work():
    return time.time()

print(f"task took {ray.get(work.remote()) - time.time()}")
ray.get([work.remote() for _ in range(3)])
"""


@pytest.mark.parametrize("timeout", [0.0, 15.0])
async def test_with_nobody_there_only_the_first_process_waits(
    up: Rayside, tmp_path: Path, timeout: float
) -> None:
    async with submitted(up, tmp_path, TIMED, debug=Debug(attach_timeout=timeout)) as debugger:
        while not debugger.job.ended:
            await asyncio.sleep(0.2)
    output = ended(debugger)
    assert output.count("waiting for a debugger") == (1 if timeout else 0)
    took, before = map(float, re.findall(r"init took (\S+) after (\S+)", output)[0])
    assert not timeout or took < timeout, "nobody waits twice"
    assert before >= timeout


FIRST = """\
prepared = 1  # first
print("prepared")
"""


@pytest.mark.parametrize("is_debugged", [True, False])
async def test_each_program_of_an_entrypoint_is_a_driver_and_nobody_waits_for_each(
    up: Rayside, tmp_path: Path, is_debugged: bool
) -> None:
    (tmp_path / "first.py").write_text(FIRST)

    debug = Debug(attach_timeout=PATIENCE if is_debugged else 3.0)
    entrypoint = "python first.py && python program.py"
    async with submitted(up, tmp_path, CHAINED, debug=debug, entrypoint=entrypoint) as debugger:
        if is_debugged:
            debugger.lines = [line(CHAINED, "import"), line(CHAINED, "work")]
            await debugger.to_the_end()
        while not debugger.job.ended:
            await asyncio.sleep(0.2)
    output = ended(debugger)
    assert "prepared\n" in output and "result ('ran', False)" in output
    names = ["<module>", "work"] if is_debugged else []
    assert [name for _, name, _ in debugger.stops] == names, output
    # Two programs and a worker.
    assert output.count("waiting for a debugger") in ((2, 3) if is_debugged else (1,)), output


CHAINED = """\
import os  # import
import ray

def mine():
    os.environ["MINE"] = "ran"

@ray.remote
def work():
    return os.environ.get("MINE"), "timeout" in os.environ.get("RAYSIDE_DEBUG", "")  # work

ray.init(runtime_env={"worker_process_setup_hook": mine})
print(f"result {ray.get(work.remote())}")
"""


MODULES = """\
import ray

@ray.remote
def work():
    import extra
    return extra.VALUE  # work

ray.init(runtime_env={"py_modules": [EXTRA], "env_vars": {"OTHER": "1"}})
modules = ray.get_runtime_context().runtime_env["py_modules"]
assert len(modules) == 2, modules  # the last is Rayside's package
own = work.options(runtime_env={"py_modules": modules[:1]})
print(f"result {ray.get(work.remote())} {ray.get(own.remote())}")
"""


async def test_py_modules_of_the_driver_and_of_a_task_do_not_lose_the_hook(
    up: Rayside, tmp_path: Path
) -> None:
    extra, code = tmp_path / "extra", tmp_path / "code"
    extra.mkdir()
    code.mkdir()
    (extra / "__init__.py").write_text("VALUE = 7\n")
    program = MODULES.replace("EXTRA", repr(str(extra)))

    debugger = await debugged(up, code, program, markers=["work"])
    assert "result 7 7" in ended(debugger)
    assert [name for _, name, _ in debugger.stops] == ["work", "work"]


@pytest.mark.parametrize(
    ("debugpy", "expected"),
    [
        ("raise ImportError", "it has no debugpy"),
        ("nothing = None", "No module named 'debugpy.server'"),
    ],
)
async def test_a_job_goes_on_where_no_debugger_can_be_opened(
    up: Rayside, tmp_path: Path, debugpy: str, expected: str
) -> None:
    (tmp_path / "debugpy.py").write_text(debugpy)  # what the driver and the workers import

    output = ended(await debugged(up, tmp_path, CHAINED))
    assert expected in output
    assert "result ('ran', False)" in output
    assert "Traceback" not in output


async def test_a_job_that_waits_for_a_debugger_can_be_stopped(up: Rayside, tmp_path: Path) -> None:
    debug = Debug(attach_timeout=PATIENCE)
    async with submitted(up, tmp_path, TIMED, debug=debug) as debugger:
        while "waiting for a debugger" not in debugger.output:
            await asyncio.sleep(0.1)
        dashboard = up.target.access.require()
        dashboard._session.post(
            f"{dashboard.url}/api/jobs/{debugger.job.submission_id}/stop"
        ).raise_for_status()
        began = time.monotonic()
        while not debugger.job.ended:
            assert time.monotonic() - began < 20
            await asyncio.sleep(0.1)
        ended(debugger, "STOPPED")


GUARDED = """\
import ray

@ray.remote
def pauses():
    secret = "never told"
    breakpoint()
    return secret

@ray.remote
def waits():
    return 1

print(ray.get([pauses.remote(), waits.remote()]))
"""


@pytest.mark.gate
@pytest.mark.parametrize("how", ["plain breakpoint()", "submit --debug"])
async def test_no_listener_of_the_cluster_lets_a_stranger_evaluate(
    up: Rayside, tmp_path: Path, how: str
) -> None:
    debug = Debug(attach_timeout=0) if how == "submit --debug" else None
    async with submitted(up, tmp_path, GUARDED, debug=debug) as debugger:
        ports = await debugger.debuggees(3 if debug else 1)
        listeners = listening(up)
        assert ports <= listeners
        answers = [await asyncio.to_thread(evaluates, listener) for listener in sorted(listeners)]
        # Nor is anybody kept out who may come in, or anything spoiled by so many strangers.
        await debugger.to_the_end()
        assert [name for _, name, _ in debugger.stops] == ["pauses"], debugger.output
    sys.stdout.write(f"{how}: {len(listeners)} listeners, {sum(answers)} let a stranger evaluate\n")
    assert sum(answers) == 0
