"""Provides fakes for the debugger's unit tests: they play a script, and fail on anything that isn't in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayside.client.events import JobState
from rayside.console import Console, Style
from rayside.dap.channel import OnEvent
from rayside.dap.client import Client
from rayside.dap.framing import Decoder, Message, encode


@dataclass
class Turn:
    """One request that is expected, and what follows it.

    `holds` are arguments it must have (others may be there too). `answer` is the body; a string is a
    refusal; None is no answer at all. `events` follow the answer, and `then` is called last.
    """

    command: str
    holds: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] | str | None = field(default_factory=dict)
    events: Sequence[Message] = ()
    then: Callable[[], None] | None = None


def stopped(reason: str = "breakpoint", **body: Any) -> Message:
    return {"event": "stopped", "body": {"reason": reason, "threadId": 1, **body}}


def task_stopped(
    thread: int = 1,
    task: str = "my_task",
    reason: str = "breakpoint",
    *,
    job: str = "raysubmit_1",
    **body: Any,
) -> Message:
    """Returns the event, as the relay sends it."""
    ray = {
        "task": task,
        "workerId": f"w{thread}",
        "nodeIp": "127.0.0.9",
        "pid": 100 + thread,
        "jobId": "01000000",
        "submissionId": job,
    }
    return stopped(reason, threadId=thread, allThreadsStopped=False, ray=ray, **body)


def thread_exited(thread: int = 1, **more: Any) -> Message:
    return {"event": "thread", "body": {"reason": "exited", "threadId": thread, **more}}


def stack(*frames: tuple[str, str, int], thread: int = 1) -> Turn:
    """Answers frames as (function, path, line), innermost first; ids count from 1, in thread 2 from 101."""
    return Turn(
        "stackTrace",
        {"threadId": thread},
        {
            "stackFrames": [
                {"id": number, "name": function, "source": {"path": path}, "line": line}
                for number, (function, path, line) in enumerate(frames, 1 + 100 * (thread - 1))
            ]
        },
    )


def value(result: Any, expression: str | None = None, frame: int = 1) -> Turn:
    """Answers an evaluation; `result` is a value, of which the `repr` is answered."""
    holds: dict[str, Any] = {"frameId": frame}
    if expression is not None:
        holds["expression"] = expression
    return Turn("evaluate", holds, {"result": repr(result)})


class Elsewhere:
    """The socket of a connection to another machine, whose processes nobody here knows."""

    def setsockopt(self, *option: int) -> None: ...

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.1", 5678

    getsockname = getpeername


class ScriptedDebuggee(asyncio.Transport):
    """Plays both ends of a connection without a socket; knows the handshake of `attach` by itself.

    Attributes:
        surprises: what was asked and not in the script; `check` fails when there is any.
    """

    def __init__(self, *script: Turn, after_attach: Sequence[Message] = (stopped(),)) -> None:
        super().__init__()
        self.script = list(script)
        self.surprises: list[str] = []
        self.requests: list[Message] = []
        self.connections = 0
        self._after_attach = after_attach
        self._decoder = Decoder()
        self._attach_seq = 0
        self._client: Client | None = None
        self._ended = False

    async def connect(self, host: str, port: int, *, on_event: OnEvent | None = None) -> Client:
        self.connections += 1
        self._client, self._ended = Client(name=f"{host}:{port}", on_event=on_event), False
        self._client.connection_made(self)
        return self._client

    def check(self) -> None:
        assert self.surprises == []
        assert [turn.command for turn in self.script] == []

    # --- what asyncio.Transport has ------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return Elsewhere() if name == "socket" else default

    def write(self, data: Any) -> None:
        for message in self._decoder.feed(data):
            self.requests.append(message)
            if message["type"] == "request":
                self._answer(message)

    def close(self) -> None:
        self.end()

    def get_write_buffer_size(self) -> int:
        return 0  # it takes everything at once

    # --- the debuggee's side -------------------------------------------------------------

    def say(self, message: Message) -> None:
        assert self._client is not None
        data = encode({"seq": 0, "type": "event", **message})
        asyncio.get_running_loop().call_soon(self._client.data_received, data)

    def end(self) -> None:
        """Ends the debuggee."""
        if self._client is not None and not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._client.connection_lost, None)

    def last(self, command: str) -> dict[str, Any]:
        """Returns the arguments of the last request of that name."""
        requests = [request for request in self.requests if request["command"] == command]
        return dict(requests[-1].get("arguments", {}))

    def respond(self, request: Message, answer: dict[str, Any] | str) -> None:
        refused = isinstance(answer, str)
        self.say(
            {
                "type": "response",
                "request_seq": request["seq"],
                "command": request["command"],
                "success": not refused,
                **({"message": answer} if refused else {"body": answer}),
            }
        )

    def _answer(self, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments", {})
        if command == "initialize":
            self.respond(request, {})
        elif command == "attach":
            self._attach_seq = request["seq"]
            self.say({"event": "initialized"})
        elif command == "setExceptionBreakpoints" or "setsockopt" in arguments.get("expression", ""):
            self.respond(request, {})
        elif command == "configurationDone":
            self.respond(request, {})
            self.respond({"seq": self._attach_seq, "command": "attach"}, {})
            for event in self._after_attach:
                self.say(event)
        elif command == "disconnect":
            if arguments.get("terminateDebuggee") is not False:
                self.surprises.append("a disconnect that may end the debuggee")
            self.respond(request, {})
            self.end()
        else:
            self._play(request, command, arguments)

    def _play(self, request: Message, command: str, arguments: dict[str, Any]) -> None:
        turn = self.script[0] if self.script else None
        fits = turn is not None and turn.command == command
        if turn is None or not fits or any(arguments.get(k) != v for k, v in turn.holds.items()):
            self.surprises.append(f"{command} {arguments}, expected {turn}")
            self.respond(request, f"not in the script: {command}")
            return
        del self.script[0]
        if turn.answer is not None:
            self.respond(request, turn.answer)
        for event in turn.events:
            self.say(event)
        if turn.then is not None:
            turn.then()


def way_lost() -> Message:
    """Returns the event by which a forward tells that its way to the relay is lost."""
    body = {"category": "console", "output": "The connection is lost.\n", "ray": {"reason": "waiting"}}
    return {"event": "output", "body": body}


def session_ended(reason: str, **more: Any) -> Message:
    """Returns the event by which a relay, or a forward, ends a session."""
    return {"event": "terminated", "body": {"ray": {"reason": reason}, **more}}


class ScriptedRelay(ScriptedDebuggee):
    """Plays a relay with a script for each thread, and under 0 one for what belongs to no thread.

    Ids are as `stack` gives them: of thread 1 up to 100, of thread 2 up to 200.
    """

    def __init__(
        self, scripts: Mapping[int, Sequence[Turn]], *, after_attach: Sequence[Message] = (task_stopped(),)
    ) -> None:
        super().__init__(after_attach=after_attach)
        self.scripts = {thread: list(turns) for thread, turns in scripts.items()}

    def check(self) -> None:
        assert self.surprises == []
        assert {at: [turn.command for turn in left] for at, left in self.scripts.items() if left} == {}

    def _play(self, request: Message, command: str, arguments: dict[str, Any]) -> None:
        number = arguments.get("frameId") or arguments.get("variablesReference") or 0
        thread = arguments.get("threadId") or (number + 99) // 100
        self.script = self.scripts.setdefault(thread, [])
        super()._play(request, command, arguments)


class ScriptedJob:
    """A `JobWatch`, whose attributes a test changes as the story goes."""

    def __init__(self) -> None:
        self.state = JobState("raysubmit_1", "RUNNING", ended=False)
        self.failure: Exception | None = None

    def job(self) -> JobState | None:
        if self.failure is not None:
            raise self.failure
        return self.state

    def end(self, status: str = "SUCCEEDED") -> None:
        self.state = JobState("raysubmit_1", status, ended=True)


class ScriptedConsole(Console):
    """A console whose user types these lines; an exception is raised in place of a line.

    Attributes:
        lines: all that was shown, results and events, in order.
        typed_at: whether they type it at a terminal.
    """

    typed_at = True

    def __init__(self, *typed: str | type[BaseException]) -> None:
        super().__init__()
        self.typed = list(typed)
        self.lines: list[str] = []

    @property
    def colour(self) -> bool:
        return False

    def ask(self, prompt: str) -> str:
        assert self.typed, f"asked for more than the script has, after {self.lines}"
        answer = self.typed.pop(0)
        if not isinstance(answer, str):
            raise answer
        self.lines.append(prompt + answer)
        return answer

    def result(self, text: str = "", style: Style = "") -> None:
        self.lines.append(text)

    def event(self, text: str) -> None:
        self.lines.append(text)

    @property
    def shown(self) -> str:
        return "\n".join(self.lines)
