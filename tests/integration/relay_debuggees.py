"""Real Python processes as debuggees, like Ray's workers with the hook, and a real relay for them.

Each listens before its script runs, waits for a client, and has its files where Ray unpacks a job's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import Decoder, Message, encode
from rayside.dap.paused_task import PausedTask
from rayside.errors import NotRunning
from rayside.relay.config import digest_of
from rayside.relay.debuggee import Debuggee
from rayside.relay.server import Relay
from rayside.worker.attach import UNCHECKED
from rayside.worker.handshake import proof
from tests.patience import PATIENCE

TOKEN = "a-token"
PACKAGE = "_ray_pkg_0123456789abcdef"

_START = """
import os, sys, types
sys.modules["ray"] = ray = types.ModuleType("ray")
class Context:
    def get_task_name(self): return os.environ["TASK"]
    def get_job_id(self): return os.environ["JOB"]
ray.get_runtime_context = Context
import debugpy
in_process = os.environ["IN_PROCESS"] == "1"
print(debugpy.listen(("127.0.0.1", 0), in_process_debug_adapter=in_process)[1], flush=True)
if os.environ["WAIT"] == "1":
    debugpy.wait_for_client()
script = sys.argv[1]
sys.path.insert(0, os.path.dirname(script))
exec(compile(open(script).read(), script, "exec"), {"__name__": "__main__", "__file__": script})
"""

# A debuggee with the hook; Python starts as in the environments that Rayside makes.
LISTENS = f"""
import os, sys
from rayside.worker import attach
attach.rays_token = lambda: {TOKEN!r}.encode()
print(attach.listen("127.0.0.1"), flush=True)
"""
_HOOKED = f"""{LISTENS}
import debugpy
debugpy.wait_for_client()
script = sys.argv[1]
sys.path.insert(0, os.path.dirname(script))
exec(compile(open(script).read(), script, "exec"), {{"__name__": "__main__", "__file__": script}})
"""
_AT_START = f"import runpy; runpy.run_path({str(ROOT / 'rayside/worker/start.py')!r})\n"


def hooked(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment with the hook; Python processes in it run Rayside's start file."""
    at_start = folder / "at start"
    at_start.mkdir(exist_ok=True)
    (at_start / "sitecustomize.py").write_text(_AT_START)
    path = [str(ROOT), str(at_start), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


async def _port_of(process: asyncio.subprocess.Process) -> int:
    """Returns the port in a debuggee's first line; kills the process if there is none."""
    assert process.stdout is not None
    try:
        return int(await asyncio.wait_for(process.stdout.readline(), PATIENCE))
    except BaseException:
        process.kill()
        raise


class Process:
    """Debuggee that runs `script`; `lines` is its output."""

    def __init__(self, process: asyncio.subprocess.Process, debuggee: Debuggee, script: Path) -> None:
        self.process, self.debuggee, self.script = process, debuggee, script
        self.lines: list[str] = []
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(
        cls,
        script: Path,
        number: int,
        *,
        waits: bool = True,
        job: str = "01000000",
        in_process: bool = False,
        has_package: bool = True,
    ) -> Process:
        """Starts the debuggee; with `in_process` without debugpy's adapter, which is a separate process.

        `has_package`: whether it can import `rayside`.
        """
        task = f"task-{number}"
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", _START, str(script)],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            cwd=script.parent,
            start_new_session=True,
            env={
                **os.environ,
                "TASK": task,
                "JOB": job,
                "IN_PROCESS": str(int(in_process)),
                "WAIT": str(int(waits)),
                "PYTHONPATH": str(ROOT) if has_package else "",
                **UNCHECKED,
            },
        )
        port = await _port_of(process)
        # Discovery never reports a task here, so the task that a stop has reported stays.
        debuggee = Debuggee(f"w{number}", "127.0.0.1", port, process.pid, "127.0.0.1", job, as_of=0.0)
        return cls(process, debuggee, script)

    @classmethod
    async def start_hooked(
        cls, script: Path, number: int, *, python: str, environment: Mapping[str, str]
    ) -> Process:
        """Starts a debuggee with the hook; Python processes that it starts run Rayside's start file."""
        process = await asyncio.create_subprocess_exec(
            *[python, "-c", _HOOKED, str(script)],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            cwd=script.parent,
            start_new_session=True,
            env=hooked(script.parent, environment),
        )
        port = await _port_of(process)
        prove = partial(proof, TOKEN.encode())
        job = "01000000"
        where = "127.0.0.1", port, process.pid, "127.0.0.1"
        return cls(process, Debuggee(f"w{number}", *where, job, as_of=0.0, prove=prove), script)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    async def until_printed(self, count: int = 1) -> float:
        """Waits until the script has printed that many lines; returns the seconds."""
        began = time.monotonic()
        while len(self.lines) < count:
            assert time.monotonic() - began < PATIENCE, f"it printed only {self.lines}"
            assert not self._reading.done(), f"it ended, {self.process.returncode}, {self.lines}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def end(self) -> list[str]:
        """Waits for the process's own end; returns its output."""
        await asyncio.wait_for(self._reading, PATIENCE)
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        return self.lines

    async def close(self) -> None:
        # Also kills its adapter, which would keep the output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await asyncio.wait_for(self._reading, PATIENCE)
        await self.process.wait()


class Finding:
    """Base class of fake `Discovery` implementations: all methods but the search, without any data."""

    async def waiting(self) -> list[PausedTask]:
        return []

    def user(self, job_id: str) -> str:
        return ""

    async def why_ended(self, debuggee: Debuggee) -> str:
        return ""

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        return {}


class Cluster(Finding):
    """Fake `Discovery` that finds the started processes.

    Attributes:
        looks: number of requests for debuggees.
        away: whether Ray does not answer.
    """

    def __init__(self, folder: Path) -> None:
        self.processes: list[Process] = []
        self.looks = 0
        self.away = False
        self.roots: dict[str, Sequence[str]] = {}
        self._folder = folder

    async def start(self, script: str, *, count: int = 1, name: str = "job.py", **how: Any) -> list[Process]:
        """Starts processes that run one script in an unpacked working_dir; its local folder is `here`."""
        unpacked = self._folder / "session" / "runtime_resources" / "working_dir_files" / PACKAGE
        for root in (unpacked, self.here):
            root.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(script)
        self.roots[PACKAGE] = [str(self.here)]
        first = len(self.processes) + 1
        start = Process.start_hooked if "python" in how else Process.start
        started = await asyncio.gather(
            *(start(unpacked / name, n, **how) for n in range(first, first + count))
        )
        self.processes += started
        return list(started)

    @property
    def here(self) -> Path:
        return self._folder / "here"

    async def debuggees(self) -> list[Debuggee]:
        self.looks += 1
        if self.away:
            raise NotRunning("no Ray dashboard answers", hint="")
        return [process.debuggee for process in self.processes if not process.ended]

    async def submission(self, job_id: str) -> str:
        return f"submission-of-{job_id}"

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        return self.roots


class Session:
    """Plays an editor: Rayside's own client, attached to the relay; attaches again with `restart`."""

    def __init__(self, client: Client, *, patience: float = PATIENCE) -> None:
        self.client, self.patience = client, patience
        self.restart: Message = {}
        self.unmatched: list[Message] = []

    async def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """Returns the body of the next event with that name and these values; keeps all other events."""
        for index, event in enumerate(self.unmatched):
            if _fits(event, name, fields):
                del self.unmatched[index]
                return event.get("body") or {}
        while True:
            next_: Message | None = await asyncio.wait_for(self.client.events.get(), self.patience)
            assert next_ is not None, f"the relay closed; {name} {fields} did not come"
            if _fits(next_, name, fields):
                return next_.get("body") or {}
            self.unmatched.append(next_)

    async def nothing(self, name: str, seconds: float = 0.5, **fields: Any) -> None:
        """Fails if such an event arrives within that time, or was already sent by then."""
        await asyncio.sleep(seconds)
        # The relay would send it before this answer.
        await self.client.answer("threads", {})
        while not self.client.events.empty():
            self.unmatched.append(self.client.events.get_nowait() or {})
        assert not [event for event in self.unmatched if _fits(event, name, fields)]

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        return await self.client.request(command, arguments)

    async def stops(self, count: int, **fields: Any) -> list[dict[str, Any]]:
        return [await self.event("stopped", **fields) for _ in range(count)]

    async def resume(self, stop: Mapping[str, Any]) -> None:
        await self.request("continue", threadId=stop["threadId"])

    async def frames(self, stop: Mapping[str, Any]) -> list[dict[str, Any]]:
        return list((await self.request("stackTrace", threadId=stop["threadId"]))["stackFrames"])

    async def evaluate(self, stop: Mapping[str, Any], expression: str) -> str:
        frame = (await self.frames(stop))[0]["id"]
        return str((await self.request("evaluate", expression=expression, frameId=frame))["result"])

    async def begin(self, stop: Mapping[str, Any], expression: str) -> asyncio.Future[Message]:
        """Starts an evaluation in a stopped task; returns the future of its response."""
        frame = (await self.frames(stop))[0]["id"]
        with tempfile.TemporaryDirectory() as folder:
            begun = Path(folder, "begun")
            telling = f"(open({str(begun)!r}, 'w').close(), {expression})[1]"
            arguments = {"expression": telling, "frameId": frame}
            answer = asyncio.ensure_future(self.client.answer("evaluate", arguments))
            began = time.monotonic()
            while not begun.exists():
                assert not answer.done(), answer.result()
                assert time.monotonic() - began < self.patience, "it did not begin"
                await asyncio.sleep(0.01)
        return answer

    def abort(self) -> None:
        """Ends as a killed editor does, without `disconnect` and unsent data."""
        self.client._transport.abort()

    async def threads(self) -> dict[int, str]:
        return {row["id"]: row["name"] for row in (await self.request("threads"))["threads"]}


def _fits(event: Message, name: str, fields: Mapping[str, Any]) -> bool:
    body = event.get("body") or {}
    return event.get("event") == name and all(body.get(key) == value for key, value in fields.items())


class Wire:
    """Raw connection to the relay that sends a test's exact bytes, and keeps received messages.

    Attributes:
        unmatched: messages that no test has waited for yet.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.unmatched: list[Message] = []
        self._reader, self._writer = reader, writer
        self._decoder = Decoder()
        self._seq = itertools.count(1)

    @classmethod
    async def open(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def say(self, command: str, **arguments: Any) -> int:
        """Sends a request; returns its seq."""
        seq = next(self._seq)
        self.send(encode({"seq": seq, "type": "request", "command": command, "arguments": arguments}))
        return seq

    async def ask(self, command: str, **arguments: Any) -> Message:
        """Returns the response to a request, successful or not."""
        return await self.hear(type="response", request_seq=self.say(command, **arguments))

    async def hear(self, **fields: Any) -> Message:
        """Returns the next message with these fields; keeps all other messages."""
        while True:
            for index, message in enumerate(self.unmatched):
                if all(message.get(name) == value for name, value in fields.items()):
                    return self.unmatched.pop(index)
            data = await asyncio.wait_for(self._reader.read(65536), PATIENCE)
            assert data, f"the relay closed; {fields} did not come, but {self.unmatched}"
            self.unmatched += self._decoder.feed(data)

    async def closed(self) -> None:
        """Waits until the relay closes the connection."""
        while data := await asyncio.wait_for(self._reader.read(65536), PATIENCE):
            self.unmatched += self._decoder.feed(data)
        await self.close()

    def abort(self) -> None:
        """Ends the connection as a killed editor does."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Setting:
    """Relay over a cluster; `attach` attaches an editor to it."""

    def __init__(self, relay: Relay, cluster: Cluster, port: int) -> None:
        self.relay, self.cluster, self.port = relay, cluster, port
        self.log: list[str] = []

    async def attach(
        self,
        breakpoints: Mapping[str, Sequence[int | Message]] | None = None,
        requests: Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Session:
        """Returns an attached editor.

        It requests the rows of idle workers too, as discovery reports no task here.

        Args:
            breakpoints: lines, or SourceBreakpoints, by the name of a file in the local folder.
            requests: more requests before `configurationDone`: arguments by command.
        """
        client = await Client.connect("127.0.0.1", self.port)
        filters = options.pop("filters", ())
        specs = {
            str(self.cluster.here / name): [
                breakpoint_ if isinstance(breakpoint_, dict) else {"line": breakpoint_}
                for breakpoint_ in lines
            ]
            for name, lines in (breakpoints or {}).items()
        }

        async def configure() -> None:
            for command, arguments in (requests or {}).items():
                await client.request(command, arguments)

        exceptions = "setExceptionBreakpoints" in (requests or {})
        try:
            await client.attach(
                breakpoints=specs,
                configure=configure,
                exception_filters=None if exceptions else filters,
                options={"token": TOKEN, "allThreads": True, **options},
                no_delay=False,
            )
        except BaseException:
            client.close()
            raise
        return Session(client)


@asynccontextmanager
async def relay_over(folder: Path, **options: Any) -> AsyncIterator[Setting]:
    cluster = Cluster(folder)
    log: list[str] = []

    def note(line: str) -> None:
        log.append(line)
        sys.stdout.write(f"{line}\n")  # pytest shows it with a test that fails

    relay = Relay(cluster, digest=digest_of(TOKEN), log=note, **options)
    server = await relay.serve("127.0.0.1", 0)
    setting = Setting(relay, cluster, server.sockets[0].getsockname()[1])
    setting.log = log
    try:
        yield setting
        defects = [line for line in log if "defect" in line]
        assert not defects, json.dumps(defects)
    finally:
        await asyncio.wait_for(relay.close(), PATIENCE)
        await asyncio.gather(*(process.close() for process in cluster.processes))
