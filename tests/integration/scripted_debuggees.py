"""Fake debuggees with debugpy's protocol, without a debugged Python, and a fake Ray dashboard.

As a program, `python -m tests.integration.scripted_debuggees COUNT`, it prints the dashboard's port and
runs until its standard input ends. Over HTTP it also accepts `POST /stop`, which stops every task within
one second, `POST /workers` with the rows that the State API lists from then on, and `GET /requests`, which
returns the number of requests to Ray.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

from rayside.dap.framing import Decoder, Message, encode
from rayside.relay.debuggee import Debuggee
from rayside.relay.fan_out import allow_many_files
from rayside.worker.evaluated import PROTOCOL

JOB = "01000000"
FILE = "/tmp/ray/session/runtime_resources/working_dir_files/_ray_pkg_0123456789abcdef/job.py"
SOURCE = b"def work(x):\n    y = x + 1\n    return y\n"
# Line table of SOURCE, as from `line_table` of rayside/worker/evaluated/sources.py.
TABLE = json.dumps(
    {
        "sha256": hashlib.sha256(SOURCE).hexdigest(),
        "lines": {"code": [1, 2, 3], "statements": [], "functions": [1, 3], "indents": [0, 4, 4, 0]},
    }
)
FRAMES = 8
# Five threads of twenty frames each, as from rayside/worker/evaluated/thread_stacks.py.
STACKS = json.dumps(
    {
        "threads": [
            {
                "name": f"thread {thread}",
                "stopped": False,
                "frames": [
                    [FILE, 10 * thread + depth, f"function_{thread}_{depth}", True] for depth in range(20)
                ],
            }
            for thread in range(5)
        ],
        "more": 0,
    }
)


# An array, as from `rayside.worker.evaluated.summary`.
ARRAY = {
    **{"kind": "array", "type": "numpy.ndarray", "shown": "", "size": 6, "shape": [2, 3], "dtype": "float32"},
    **{"nan": 0, "inf": 0, "min": 0.0, "max": 1.0, "mean": 0.5},
}


class ScriptedDebuggee:
    """Fake debuggee.

    Attributes:
        changed: transforms the bytes of each message before they are sent.
        connected: whether it has a client now.
        attached: whether a client has finished attaching.
        refusal: message of a refused request.
        summary: result of a compared expression.
        process: result of `of_process` in evaluated/scope.py.
        surprises: unknown requests, the first hundred.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # Each debuggee has a different array.
        self.summary = json.dumps({"thread": "MainThread", "value": {**ARRAY, "digest": str(number)}})
        identity = {"actor": "", "actor_id": "", "actor_name": "", "node_id": "n1"}
        self.process = json.dumps({**identity, "rank": number - 1})
        self.refusal = "not known here"
        self.task = f"task-{number}"
        self.port = 0
        self.attached = asyncio.Event()
        self.connections = 0
        self.surprises: list[str] = []
        self.changed: Callable[[bytes], bytes] = bytes
        self._writer: asyncio.StreamWriter | None = None
        self._attach: Message = {}
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop()
        await asyncio.gather(*self._serving)

    def drop(self) -> None:
        """Closes the client's connection, as when the process ends."""
        if self._writer is not None:
            self._writer.close()

    @property
    def connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    @property
    def debuggee(self) -> Debuggee:
        return Debuggee(f"w{self.number}", "127.0.0.1", self.port, self.number, "127.0.0.1", JOB)

    def row(self) -> dict[str, Any]:
        """Returns its row in the State API's table of workers."""
        return row(self.debuggee)

    def stop(self) -> None:
        """Makes its task reach a breakpoint."""
        self.say({"event": "stopped", "body": {"reason": "breakpoint", "threadId": 1}})

    def say(self, message: Message) -> None:
        kind = "event" if "event" in message else "response"
        self.send(encode({"seq": 0, "type": kind, **message}))

    def send(self, data: bytes) -> None:
        if self._writer is not None and self.connected:
            self._writer.write(self.changed(data))

    async def drain(self) -> None:
        """Waits until the client has read most of the sent data."""
        if self._writer is not None and self.connected:
            with suppress(OSError):
                await self._writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.connections += 1
        self._writer = writer
        self.attached.clear()
        decoder = Decoder()
        with suppress(OSError):
            while data := await reader.read(65536):
                for request in decoder.feed(data):
                    self._answer(request)
        writer.close()
        if self._writer is writer:  # and not that of the next client
            self.attached.clear()

    def _answer(self, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments", {})
        if command == "attach":
            self._attach = request
            self.say({"event": "initialized"})
            return
        try:
            body = self._body(command, arguments)
        except (AttributeError, KeyError, TypeError):  # a missing or wrong argument
            body = None
        if body is None:
            self.surprises = [*self.surprises, f"{command} {arguments}"][:100]
        self._respond(request, body)
        if command == "configurationDone":
            self._respond(self._attach, {})
            self.attached.set()
        elif command == "disconnect":
            self.drop()

    def _respond(self, request: Message, body: Message | None) -> None:
        head = {"request_seq": request["seq"], "command": request["command"], "success": body is not None}
        self.say({**head, **({"message": self.refusal} if body is None else {"body": body})})

    def _body(self, command: str, arguments: Message) -> Message | None:
        if command == "evaluate":
            return {"result": self._value(arguments["expression"]), "variablesReference": 0}
        if command == "setBreakpoints":
            requested = arguments["breakpoints"]
            return {"breakpoints": [{"id": n, "verified": True, **b} for n, b in enumerate(requested)]}
        if command == "stackTrace":
            frames = [
                {"id": n, "name": "work", "line": 2, "column": 1, "source": {"path": FILE}}
                for n in range(1, FRAMES + 1)
            ][: arguments.get("levels") or FRAMES]
            return {"stackFrames": frames, "totalFrames": FRAMES}
        if command == "scopes":
            return {"scopes": [{"name": "Locals", "variablesReference": 5, "expensive": False}]}
        if command == "variables":
            names = [f"v{n}" for n in range(20)]
            return {"variables": [{"name": n, "value": "1", "variablesReference": 0} for n in names]}
        known: dict[str, Message] = {
            "initialize": {},
            "setExceptionBreakpoints": {},
            "setFunctionBreakpoints": {"breakpoints": []},
            "configurationDone": {},
            "threads": {"threads": [{"id": 1, "name": "MainThread"}]},
            "continue": {"allThreadsContinued": True},
            **{step: {} for step in ("next", "stepIn", "stepOut")},
            "pause": {},
            "disconnect": {},
        }
        return known.get(command)

    def _value(self, expression: str) -> str:
        if "line_table" in expression:
            return TABLE
        if "'rayside.worker.evaluated').begin(" in expression:
            return repr([PROTOCOL])
        if ".stacks(" in expression:
            return repr([STACKS])
        if ".of_process(" in expression:
            return repr([self.process])
        if ".summary(" in expression:
            return repr([self.summary])
        if ".task(" in expression:
            return repr([self.task])
        known = {
            "listdir": {FILE.rpartition("/")[0]: []},
            "get_job_id": JOB,
        }
        value = next((value for part, value in known.items() if part in expression), None)
        return repr([value] if expression.startswith("[") else value)


def row(debuggee: Debuggee) -> dict[str, Any]:
    return {
        "worker_id": debuggee.worker_id,
        "worker_type": "WORKER",
        "ip": debuggee.host,
        "debugger_port": debuggee.port,
        "num_paused_threads": 0,
        "pid": debuggee.pid,
        "start_time_ms": 1_700_000_000_000,
        "is_alive": True,
    }


class ScriptedDashboard:
    """Fake Ray dashboard with these rows for the relay's requests."""

    def __init__(self, debuggees: list[ScriptedDebuggee]) -> None:
        self.debuggees = debuggees
        self.rows = [debuggee.row() for debuggee in debuggees]
        self.requests: Counter[str] = Counter()
        app = web.Application()
        self._runner = web.AppRunner(app)
        app.router.add_get("/api/v0/workers", self._workers)
        app.router.add_get("/api/v0/tasks", self._tasks)
        app.router.add_get("/api/jobs/", self._jobs)
        app.router.add_post("/stop", self._stop)
        app.router.add_post("/workers", self._list)
        app.router.add_get("/requests", self._requests)

    async def serve(self) -> int:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _workers(self, request: web.Request) -> web.Response:
        return self._result("workers", self.rows)

    async def _tasks(self, request: web.Request) -> web.Response:
        return self._result("tasks", [])

    async def _jobs(self, request: web.Request) -> web.Response:
        self.requests["jobs"] += 1
        return web.json_response([])

    def _result(self, name: str, rows: list[dict[str, Any]]) -> web.Response:
        self.requests[name] += 1
        return web.json_response({"data": {"result": {"result": rows}}})

    async def _requests(self, request: web.Request) -> web.Response:
        surprises = [surprise for debuggee in self.debuggees for surprise in debuggee.surprises]
        return web.json_response({**self.requests, "surprises": surprises})

    async def _list(self, request: web.Request) -> web.Response:
        self.rows = await request.json()
        return web.json_response({})

    async def _stop(self, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        for debuggee in self.debuggees:
            loop.call_later(random.random(), debuggee.stop)
        return web.json_response({})


async def main(count: int) -> None:
    allow_many_files()
    debuggees = [ScriptedDebuggee(number) for number in range(1, count + 1)]
    for debuggee in debuggees:
        await debuggee.listen()
    sys.stdout.write(json.dumps({"port": await ScriptedDashboard(debuggees).serve()}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(debuggee.close() for debuggee in debuggees))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
