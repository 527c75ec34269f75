"""Connection to one debuggee: requests and evaluations, version of its package, tracing."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import math
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec

from rayside.dap.channel import OnEvent
from rayside.dap.client import QUIETLY, Client, Introduction
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay import messages
from rayside.relay.debuggee import Debuggee
from rayside.worker import evaluated, tracing
from rayside.worker.evaluated import compiled
from rayside.worker.evaluated.thread_stacks import interrupt

# Timeout in seconds of an editor's request to a debuggee, which then counts as frozen.
PATIENCE = 15.0
# Timeout in seconds of requests that a debuggee answers within milliseconds unless it is frozen.
SOON = 2.0
# Seconds for an evaluation to end by itself before its thread resumes.
GRACE = 0.5
# Timeout in seconds of each request while the relay detaches: the cluster has to continue.
DETACHING = 0.6
# Timeout in seconds of pending requests when the relay detaches: an earlier disconnect breaks the debuggee
# (see `client`), and while a thread evaluates, it can't resume anyway.
DRAINING = 60.0
# Timeout in seconds of requests while the relay attaches. Waiting costs nothing, and an early disconnect
# would break the debuggee.
ATTACHING = 600.0

# Without a mapping, debugpy reports that a file which the editor can't see does not exist; with one that
# matches nothing, it serves the text.
_NOWHERE = {"localRoot": "/rayside/nowhere", "remoteRoot": "/rayside/nowhere"}

# Limit in characters of a result that is parsed as Python, which takes up to a hundred times its memory. One
# string costs little, so it may be longer: large answers are JSON in a string. Its escapes are removed before
# it is matched: a pattern that also matches them takes a hundred times the memory.
_LONGEST = 200_000
_ESCAPE = re.compile(r"\\.")
_ONE_TEXT = re.compile(r"""\['[^'\\\n]*'\]|\["[^"\\\n]*"\]""")

# Upper bound of PROTOCOL. It is printed, and Python refuses to print an integer of thousands of digits.
_PROTOCOLS = 10**6

_P = ParamSpec("_P")


class Connection:
    """Connection to one debuggee.

    Attributes:
        patience: timeout in seconds: long until the debuggee runs, since all has to be set by then.
        protocol: the PROTOCOL of the debuggee's package; None if it can't import the package, or its answer
            is invalid.
    """

    def __init__(self, debuggee: Debuggee, on_event: OnEvent) -> None:
        self.patience = ATTACHING
        self.protocol: int | None = None
        self._debuggee, self._on_event = debuggee, on_event
        self._client: Client | None = None
        # Pending evaluations of an editor, and the relay's own that run user code.
        self._users: set[asyncio.Future[Message]] = set()
        self._ours: set[asyncio.Future[Message]] = set()
        self._name = secrets.token_hex(8)

    @property
    def client(self) -> Client:
        """Returns the debugpy client. Raises DebuggerGone before the relay has attached."""
        if self._client is None:
            raise DebuggerGone(f"{self._debuggee.title} is not attached", hint="Wait for it to be listed.")
        return self._client

    async def attach(
        self,
        options: Mapping[str, Any],
        configure: Callable[[], Awaitable[None]],
        introduction: Introduction | None = None,
    ) -> None:
        """Attaches; `configure` is awaited before the debuggee runs.

        Raises AlreadyDebugged, AttachFailed, DebuggerGone, and the exceptions of the introduction.
        """
        debuggee = self._debuggee
        client = self._client = await Client.connect(
            debuggee.host, debuggee.port, on_event=self._on_event, tables=messages
        )
        try:
            await client.attach(
                options={**options, "pathMappings": [_NOWHERE]},
                configure=configure,
                exception_filters=None,
                prove=debuggee.prove,
                introduction=introduction,
                timeout=ATTACHING,
            )
        except BaseException:
            await client.disconnect(timeout=DETACHING)
            raise

    async def begin(self) -> None:
        """Asks whether the debuggee can import our package, of this version. Raises DebuggerGone."""
        found = await self.literal(self.begins, timeout=ATTACHING)
        self.protocol = found if type(found) is int and 0 <= found < _PROTOCOLS else None

    @property
    def begins(self) -> str:
        """Returns an expression for the debuggee's PROTOCOL, with the value None for any other `rayside`.

        Importing another `rayside` would run it: it may be the user's program.
        """
        package, _, module = evaluated.__name__.partition(".")
        found = f"__import__('importlib.util').util.find_spec({package!r})"
        places = f"getattr({found}, 'submodule_search_locations', None) or ()"
        file = f"each + '/{module.replace('.', '/')}/__init__.py'"
        is_ours = f"any(__import__('os.path').path.isfile({file}) for each in {places})"
        return f"{call(evaluated.begin, self._name)} if {is_ours} else None"

    @property
    def has_package(self) -> bool:
        """Returns whether our functions can be called in the debuggee; otherwise it has only debugpy."""
        return self.protocol == evaluated.PROTOCOL

    async def detach(self, give_back: Callable[[], Awaitable[None]]) -> None:
        """Detaches after `give_back`: the debuggee continues."""
        if self._client is None:
            return
        with contextlib.suppress(DebuggerGone):
            await self._interrupt_all()
            await give_back()
        await self._client.disconnect(timeout=DETACHING, drain=DRAINING)

    async def answer(self, command: str, arguments: Message, timeout: float = PATIENCE) -> Message:
        """Sends a request; returns the debuggee's whole response. Raises as `Client.answer`."""
        if command != "evaluate":
            return await self.client.answer(command, arguments, timeout=timeout)
        return await self._evaluated(arguments, timeout, self._users)

    async def _evaluated(
        self, arguments: Message, timeout: float, evaluations: set[asyncio.Future[Message]]
    ) -> Message:
        """Evaluates; it stays one of `evaluations` until the response, also after a timeout."""
        evaluation = self.client.asked("evaluate", arguments)
        evaluations.add(evaluation)
        evaluation.add_done_callback(evaluations.discard)
        try:
            return await self.client.within(timeout, "evaluate", evaluation)
        except RequestFailed:  # timeout
            await self.interrupt()
            raise

    async def interrupt(self) -> None:
        """Interrupts the evaluations in the debuggee's threads; some code can't be interrupted."""
        with contextlib.suppress(RequestFailed, DebuggerGone):
            await self.tell(SOON, interrupt)

    async def end_evaluations(self) -> None:
        """Ends evaluations before threads resume: those that do not end within GRACE are interrupted."""
        if evaluations := self._users | self._ours:
            await asyncio.wait(evaluations, timeout=GRACE)
        await self._interrupt_all()

    async def _interrupt_all(self) -> None:
        """Interrupts until no evaluation is left: queued ones start when another ends."""
        while evaluations := self._users | self._ours:
            await self.interrupt()
            ended, _ = await asyncio.wait(evaluations, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                return

    async def is_free(self, timeout: float) -> bool:
        """Waits for the editor's evaluations; returns whether all have ended within the timeout."""
        if self._users:
            await asyncio.wait(self._users, timeout=timeout)
        return not self._users

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        """Evaluates an expression of the relay; returns the body. Raises RequestFailed, DebuggerGone."""
        arguments: Message = {"expression": expression, "context": QUIETLY}
        arguments |= {} if frame is None else {"frameId": frame}
        return await self.client.request("evaluate", arguments, timeout=timeout)

    async def literal(self, expression: str, frame: int | None = None, *, timeout: float = SOON) -> object:
        """Returns the value of an expression whose result is a literal; None if it raised."""
        with contextlib.suppress(RequestFailed):
            return _literal(await self.run(f"[{expression}]", timeout, frame))
        return None

    async def ask(
        self,
        timeout: float,
        function: Callable[_P, object],
        *arguments: _P.args,
        **named: _P.kwargs,
    ) -> object:
        """Calls a function of our package in the debuggee, and returns its result.

        Returns None if the function raised, or the debuggee lacks the package. Raises DebuggerGone.
        """
        if not self.has_package:
            return None
        return await self.literal(call(function, *arguments, **named), timeout=timeout)

    async def tell(
        self,
        timeout: float,
        function: Callable[_P, object],
        *arguments: _P.args,
        **named: _P.kwargs,
    ) -> None:
        """Calls a function of our package if the debuggee has it. Raises RequestFailed, DebuggerGone."""
        if self.has_package:
            await self.run(call(function, *arguments, **named), timeout)

    async def users_literal(self, expression: str, frame: int, *, timeout: float) -> object:
        """Evaluates user code as `literal` does, but interrupts it after the timeout.

        Raises RequestFailed, DebuggerGone.
        """
        arguments = {"expression": f"[{expression}]", "frameId": frame, "context": QUIETLY}
        response = await self._evaluated(arguments, timeout, self._ours)
        return _literal(response.get("body") or {})


def _literal(body: Message) -> object:
    result = str(body.get("result", ""))
    if len(result) > _LONGEST and not _ONE_TEXT.fullmatch(_ESCAPE.sub("", result)):
        return None
    try:
        return ast.literal_eval(result)[0]
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
        return None


def call(function: Callable[_P, object], *arguments: _P.args, **named: _P.kwargs) -> str:
    """Returns an expression that imports a function in the debuggee, and calls it with literals."""
    given = [*map(_written, arguments), *(f"{name}={_written(value)}" for name, value in named.items())]
    return (
        f"__import__('importlib').import_module({function.__module__!r})"
        f".{function.__qualname__}({', '.join(given)})"
    )


def _written(value: object) -> str:
    """Returns an expression for a value; `repr` would write NaN and infinity as undefined names."""
    match value:
        case float() if not math.isfinite(value):
            return f"float('{value}')"
        case dict():
            return f"{{{', '.join(f'{_written(key)}: {_written(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case tuple():
            return f"({''.join(f'{_written(item)}, ' for item in value)})"
    return repr(value)


_SWITCH = "RAYSIDE_COMPILED_BREAKPOINTS"  # environment variable of the relay; 0: pydevd's breakpoints only


class Tracing:
    """Turns a debuggee's tracing on and off, also if Ray opened its debugger port and not `submit --debug`.

    It calls functions of rayside/worker/tracing.py in the debuggee. They are harmless in every process with
    debugpy, on every Python version, however often they are called.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._awake: bool | None = None
        self._compiles = False  # whether breakpoints are compiled into the code

    async def notice_lines(self) -> None:
        """Prepares for line breakpoints: they are compiled into the code, or else the code is traced."""
        if os.environ.get(_SWITCH) == "0":
            await self.wake()
            return
        if self._compiles or self._awake:
            return
        compiles = await self._connection.ask(self._connection.patience, compiled.begin)
        self._compiles = compiles is True
        if compiles is False:
            self._awake = True
        await self.wake()

    async def wake(self) -> None:
        """Turns tracing on, so that the debuggee stops at breakpoints."""
        await self._trace(True, self._connection.patience)

    async def sleep(self) -> None:
        """Turns tracing off, for full speed; a `breakpoint()` call still stops."""
        await self._trace(False, self._connection.patience)

    async def give_back(self) -> None:
        """Turns tracing off if the relay turned it on, so that the debuggee runs at full speed."""
        if self._awake:
            await self._trace(False, DETACHING)

    def resumed(self) -> None:
        """Marks the state as unknown when a thread resumes: a `breakpoint()` or a step also turns it on."""
        self._awake = self._awake or None

    async def _trace(self, awake: bool, timeout: float) -> None:
        if self._awake is awake or (awake and self._compiles):
            return
        self._awake = awake
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it only runs slower
            await self._connection.tell(timeout, tracing.wake if awake else tracing.sleep)
