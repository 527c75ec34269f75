"""Measures what a debugger costs a debuggee in memory on its own node: `./invokew bench --name memory`.

Needs nothing to be up; takes half a minute. Several workers at a time, as a node has them: Pythons that have
imported Ray, of the environment that the target `local` has, or else ones without Ray. Each is measured

- as it is,
- with the port of `--debug` open and nobody there,
- attached to, with nothing to stop at,
- stopped at a breakpoint that is compiled in, as the relay has it, with its stack and variables looked at,
- stopped so at one that debugpy traces.

Of each the process's own memory (private pages, USS) and its share of all (PSS), and the threads it has more.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bootstrap.dap.client import QUIETLY, Client
from bootstrap.hook.rayside_hook.handshake import proof
from bootstrap.relay import tracing
from bootstrap.settings import ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.step import Condition
from bootstrap.steps.ray_environment import RayEnvironment

WORKERS = 4  # side by side
RUNS = 5
PATIENCE = 120.0  # seconds for one run, which takes a few
TOKEN = "a token"
PROGRAM = f"""\
import sys, time
sys.path.insert(0, {str(ROOT / "bootstrap" / "hook")!r})
port = 0
try:
    import ray, ray._private.worker, ray.cloudpickle
except ImportError:
    pass
if sys.argv[1] == "debug":
    from rayside_hook import attach
    attach.rays_token = {TOKEN!r}.encode
    port = attach.listen("127.0.0.1")
print(port, "ray" in sys.modules, flush=True)

def work(data):
    total = sum(data)
    return total

while True:
    work(list(range(100)))
    time.sleep(0.05)
"""
LINE = PROGRAM[: PROGRAM.index("    return total")].count("\n") + 1
PLAIN, LISTENS, ATTACHED = "as it is", "listens", "attached to"
STOPPED, TRACED = "stopped and looked at", "stopped where debugpy traces, and looked at"


@dataclass(frozen=True)
class Memory:
    """Holds the memory of one worker, in MB, and its number of threads."""

    own: float
    share: float
    threads: int

    @classmethod
    def of(cls, process: asyncio.subprocess.Process) -> Memory:
        inspected = psutil.Process(process.pid)
        full = inspected.memory_full_info()
        return cls(full.uss / 2**20, full.pss / 2**20, inspected.num_threads())


class Worker:
    """Runs one worker, from its start on."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, has_ray: bool) -> None:
        self.process, self.port, self.has_ray = process, port, has_ray
        self.client: Client | None = None

    @classmethod
    async def start(cls, python: Path, program: Path, how: str) -> Worker:
        process = await asyncio.create_subprocess_exec(
            *[str(python), "-X", "frozen_modules=off", str(program), how], stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout
        port, has_ray = (await process.stdout.readline()).split()
        return cls(process, int(port), has_ray == b"True")

    async def attach(self) -> None:
        self.client = await Client.connect("127.0.0.1", self.port)
        await self.client.attach(
            prove=partial(proof, TOKEN.encode()), options={"rules": [{"module": "__main__", "include": True}]}
        )
        # As the relay does where there is nothing to stop at.
        await self._evaluate(tracing.SLEEP)

    async def stop(self, program: Path, notice_lines: str) -> None:
        """Stops at a breakpoint, then asks what an editor asks; `notice_lines` is evaluated before."""
        assert self.client
        request = self.client.request
        await self._evaluate(notice_lines)
        await self.client.set_breakpoints(str(program), [{"line": LINE}])
        while (event := await self.client.events.get()) and event["event"] != "stopped":
            pass
        assert event, "the connection has ended"
        stack = await request("stackTrace", {"threadId": event["body"]["threadId"]})
        for scope in (await request("scopes", {"frameId": stack["stackFrames"][0]["id"]}))["scopes"]:
            await request("variables", {"variablesReference": scope["variablesReference"]})

    async def _evaluate(self, expression: str) -> None:
        assert self.client
        await self.client.request("evaluate", {"expression": expression, "context": QUIETLY})

    async def end(self) -> None:
        if self.client is not None:
            await self.client.disconnect()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def measured(python: Path, folder: Path) -> tuple[dict[str, list[Memory]], bool]:
    """Returns what each worker had in each state, and whether the workers had Ray."""
    program = folder / "worker.py"
    program.write_text(PROGRAM)
    memories: dict[str, list[Memory]] = {}
    has_ray = True
    for how, states in (
        ("plain", [PLAIN]),
        ("debug", [LISTENS, ATTACHED, STOPPED]),
        ("debug", [ATTACHED, TRACED]),
    ):
        workers = await asyncio.gather(*(Worker.start(python, program, how) for _ in range(WORKERS)))
        has_ray = has_ray and all(worker.has_ray for worker in workers)
        try:
            for state in states:
                if state == ATTACHED:
                    await asyncio.gather(*(worker.attach() for worker in workers))
                elif state in (STOPPED, TRACED):
                    notice_lines = tracing.COMPILE if state == STOPPED else tracing.WAKE
                    await asyncio.gather(*(worker.stop(program, notice_lines) for worker in workers))
                await asyncio.sleep(0.5)
                memories[state] = [Memory.of(worker.process) for worker in workers]
        finally:
            await asyncio.gather(*(worker.end() for worker in workers))
    return memories, has_ray


def median(workers: list[Memory], name: str) -> float:
    return float(statistics.median(getattr(worker, name) for worker in workers))


async def main() -> None:
    environment = RayEnvironment(Shell(), Settings().cache_folder)
    has_environment = environment.check().condition is Condition.READY
    python = environment.programs / "python" if has_environment else Path(sys.executable)
    runs = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rs-") as name:
        for _ in range(RUNS):
            memories, has_ray = await asyncio.wait_for(measured(python, Path(name)), PATIENCE)
            runs.append(memories)
    what = "with Ray imported" if has_ray else "without Ray, for its environment is not made"
    print(f"{WORKERS} workers side by side, {what}; medians of {RUNS} runs, in MB")
    for state in runs[0]:
        print(f"{state}:")
        for name, title in (("own", "USS"), ("share", "PSS"), ("threads", "threads")):
            now = statistics.median(median(run[state], name) for run in runs)
            # Against the plain ones of the same run.
            more = [median(run[state], name) - median(run[PLAIN], name) for run in runs]
            spread = f"from {min(more):.1f} to {max(more):.1f}"
            print(f"  {title} {now:.1f}, {statistics.median(more):.1f} more ({spread})")


if __name__ == "__main__":
    asyncio.run(main())
