"""Connection to one debuggee: what is asked there, whether it has our package, whether it is traced."""

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

# Seconds for a debuggee's answer to an editor's request, before the debuggee counts as frozen.
PATIENCE = 15.0
# Seconds for what a debuggee answers within milliseconds unless it is frozen.
SOON = 2.0
# Seconds that an evaluation has to end by itself before its thread resumes.
GRACE = 0.5
# Seconds for each answer while the relay detaches: the cluster is to run on.
DETACHING = 0.6
# Seconds for what is in flight when the relay detaches: whoever leaves earlier spoils the debuggee (see
# `client`), and while a thread evaluates, it can't resume anyway.
DRAINING = 60.0
# Seconds for a debuggee that does not answer while it is attached to. Waiting costs nobody anything, and
# detaching in haste would spoil it.
ATTACHING = 600.0

# Without a mapping, debugpy says that a file which the editor can't see isn't there; with one that
# matches nothing, it serves the text.
_NOWHERE = {"localRoot": "/rayside/nowhere", "remoteRoot": "/rayside/nowhere"}

# The most characters of a result that is read as Python: they take up to a hundred times their memory. One
# text costs little, so it may be longer: large answers are JSON in a text. Its escapes are left out before it
# is matched: an expression that also matches them takes a hundred times the memory.
_LONGEST = 200_000
_ESCAPE = re.compile(r"\\.")
_ONE_TEXT = re.compile(r"""\['[^'\\\n]*'\]|\["[^"\\\n]*"\]""")

# No PROTOCOL is as high. It is shown, and Python refuses to show an integer of thousands of digits.
_PROTOCOLS = 10**6

_P = ParamSpec("_P")


class Connection:
    """Asks one debuggee.

    Attributes:
        patience: seconds for an answer: many before the debuggee runs, for all has to be set by then.
        protocol: the PROTOCOL of the package that the debuggee has; None where it can't import it, and where
            it answers anything else.
    """

    def __init__(self, debuggee: Debuggee, on_event: OnEvent) -> None:
        self.patience = ATTACHING
        self.protocol: int | None = None
        self._debuggee, self._on_event = debuggee, on_event
        self._client: Client | None = None
        # Those that an editor asked for, and those of ours that run the user's code.
        self._users: set[asyncio.Future[Message]] = set()
        self._ours: set[asyncio.Future[Message]] = set()
        self._name = secrets.token_hex(8)

    @property
    def client(self) -> Client:
        """Returns the connection. Raises DebuggerGone before it is attached."""
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

        Raises AlreadyDebugged, AttachFailed, DebuggerGone, and what the introduction raises.
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
        """Learns whether the debuggee can import our package, of this version. Raises DebuggerGone."""
        found = await self.literal(self.begins, timeout=ATTACHING)
        self.protocol = found if type(found) is int and 0 <= found < _PROTOCOLS else None

    @property
    def begins(self) -> str:
        """Returns an expression that gives the debuggee's PROTOCOL; None where it has another `rayside`.

        To import that would run it: it may be the program.
        """
        package, _, module = evaluated.__name__.partition(".")
        found = f"__import__('importlib.util').util.find_spec({package!r})"
        places = f"getattr({found}, 'submodule_search_locations', None) or ()"
        file = f"each + '/{module.replace('.', '/')}/__init__.py'"
        is_ours = f"any(__import__('os.path').path.isfile({file}) for each in {places})"
        return f"{call(evaluated.begin, self._name)} if {is_ours} else None"

    @property
    def has_package(self) -> bool:
        """Returns whether our functions can be called there; without them it is plain debugpy's."""
        return self.protocol == evaluated.PROTOCOL

    async def detach(self, give_back: Callable[[], Awaitable[None]]) -> None:
        """Detaches, after `give_back`: the debuggee runs on without us."""
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
        """Evaluates; until the response has come it is one of these evaluations, also where nobody waits."""
        evaluation = self.client.asked("evaluate", arguments)
        evaluations.add(evaluation)
        evaluation.add_done_callback(evaluations.discard)
        try:
            return await self.client.within(timeout, "evaluate", evaluation)
        except RequestFailed:  # it takes too long
            await self.interrupt()
            raise

    async def interrupt(self) -> None:
        """Ends what is evaluated in its threads; what can't be interrupted runs on."""
        with contextlib.suppress(RequestFailed, DebuggerGone):
            await self.tell(SOON, interrupt)

    async def end_evaluations(self) -> None:
        """Makes its threads ready to resume: what does not end by itself soon is interrupted."""
        if evaluations := self._users | self._ours:
            await asyncio.wait(evaluations, timeout=GRACE)
        await self._interrupt_all()

    async def _interrupt_all(self) -> None:
        """Interrupts until nothing is evaluated: what is queued begins once another has ended."""
        while evaluations := self._users | self._ours:
            await self.interrupt()
            ended, _ = await asyncio.wait(evaluations, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                return

    async def is_free(self, timeout: float) -> bool:
        """Waits for what an editor has evaluated here; returns whether nothing of that is left."""
        if self._users:
            await asyncio.wait(self._users, timeout=timeout)
        return not self._users

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        """Evaluates an expression of ours; returns the answer's body. Raises RequestFailed, DebuggerGone."""
        arguments: Message = {"expression": expression, "context": QUIETLY}
        arguments |= {} if frame is None else {"frameId": frame}
        return await self.client.request("evaluate", arguments, timeout=timeout)

    async def literal(self, expression: str, frame: int | None = None, *, timeout: float = SOON) -> object:
        """Returns the value of an expression that gives a literal; None where it raised."""
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
        """Returns what a function of our package returns there; None where it raised, or is not there.

        Raises DebuggerGone.
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
        """Calls a function of our package there, if it has that. Raises RequestFailed, DebuggerGone."""
        if self.has_package:
            await self.run(call(function, *arguments, **named), timeout)

    async def users_literal(self, expression: str, frame: int, *, timeout: float) -> object:
        """Evaluates as `literal` does, but code of the user, which is interrupted when it takes too long.

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
    """Returns an expression that imports a function of the package there, and calls it with literals."""
    given = [*map(_written, arguments), *(f"{name}={_written(value)}" for name, value in named.items())]
    return (
        f"__import__('importlib').import_module({function.__module__!r})"
        f".{function.__qualname__}({', '.join(given)})"
    )


def _written(value: object) -> str:
    """Returns an expression for a value; `repr` writes NaN and infinity as names, which nothing there has."""
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


_SWITCH = "RAYSIDE_COMPILED_BREAKPOINTS"  # in the relay's environment; 0 leaves it all to pydevd


class Tracing:
    """Turns a debuggee's tracing off and on, whichever of `submit --debug` and Ray opened its port.

    It calls functions of rayside/worker/tracing.py there. They are harmless in every process that debugpy is
    in, on every Python, however often they are called.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._awake: bool | None = None
        self._compiles = False  # whether it decides by itself

    async def notice_lines(self) -> None:
        """Makes it stop at breakpoints set from now on: they are compiled in, or else it is traced."""
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
        """Makes it trace its code, so that it stops at what is set."""
        await self._trace(True, self._connection.patience)

    async def sleep(self) -> None:
        """Lets its code run at full speed; a `breakpoint()` call stops all the same."""
        await self._trace(False, self._connection.patience)

    async def give_back(self) -> None:
        """Ends what we have begun: without us it runs at full speed."""
        if self._awake:
            await self._trace(False, DETACHING)

    def resumed(self) -> None:
        """Notes that a thread resumed: a `breakpoint()` call, or a step, has it trace its code, too."""
        self._awake = self._awake or None

    async def _trace(self, awake: bool, timeout: float) -> None:
        if self._awake is awake or (awake and self._compiles):
            return
        self._awake = awake
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it is just slower
            await self._connection.tell(timeout, tracing.wake if awake else tracing.sleep)
