"""Holds the relay's connection to one debuggee: what is asked there, and the code of ours that it has."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from bootstrap.dap.channel import OnEvent
from bootstrap.dap.client import QUIETLY, Client, Introduction
from bootstrap.dap.framing import Message
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.relay import messages
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.sent import INTERRUPTION, Sent

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


class Connection:
    """Asks one debuggee.

    Attributes:
        patience: seconds for an answer: many before the debuggee runs, for all has to be set by then.
    """

    def __init__(self, debuggee: Debuggee, on_event: OnEvent) -> None:
        self.patience = ATTACHING
        self._debuggee, self._on_event = debuggee, on_event
        self._client: Client | None = None
        self._evaluations: set[asyncio.Future[Message]] = set()
        self._sending: dict[Sent, asyncio.Future[Message]] = {}

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
                path_mappings=[_NOWHERE],
                options=options,
                configure=configure,
                exception_filters=None,
                prove=debuggee.prove,
                introduction=introduction,
                timeout=ATTACHING,
            )
        except BaseException:
            await client.disconnect(timeout=DETACHING)
            raise

    async def detach(self, give_back: Callable[[], Awaitable[None]]) -> None:
        """Detaches, after `give_back`: the debuggee runs on without us."""
        if self._client is None:
            return
        with contextlib.suppress(DebuggerGone):
            if self._evaluations:
                await self.interrupt()
            await give_back()
        await self._client.disconnect(timeout=DETACHING, drain=DRAINING)

    async def answer(self, command: str, arguments: Message, timeout: float = PATIENCE) -> Message:
        """Sends a request; returns the debuggee's whole response. Raises as `Client.answer`."""
        if command != "evaluate":
            return await self.client.answer(command, arguments, timeout=timeout)
        evaluation = asyncio.ensure_future(self.client.answer(command, arguments, timeout=timeout))
        self._evaluations.add(evaluation)
        try:
            return await evaluation
        except RequestFailed:  # it takes too long
            await self.interrupt()
            raise
        finally:
            self._evaluations.discard(evaluation)

    async def interrupt(self) -> None:
        """Ends what is evaluated in its threads; what can't be interrupted runs on."""
        with contextlib.suppress(RequestFailed, DebuggerGone):
            await self.run(INTERRUPTION.value("interrupt"), SOON)

    async def end_evaluations(self) -> None:
        """Makes its threads ready to resume: what does not end by itself soon is interrupted."""
        if self._evaluations:
            await asyncio.wait(self._evaluations, timeout=GRACE)
        if self._evaluations:
            await self.interrupt()
            await asyncio.wait(self._evaluations, timeout=SOON)

    async def send_once(self, module: Sent) -> None:
        """Has one of our modules in the debuggee; it is sent anew for each connection.

        Who comes while it is being sent waits for it. Raises RequestFailed, DebuggerGone; the next call tries
        again.
        """
        sending = self._sending.get(module)
        if sending is None:
            sending = asyncio.ensure_future(self.run(module.anew(), self.patience))
            self._sending[module] = sending
            sending.add_done_callback(partial(self._sent, module))
        # Others may wait for the same.
        await asyncio.shield(sending)

    def _sent(self, module: Sent, sending: asyncio.Future[Message]) -> None:
        if sending.cancelled() or sending.exception() is not None:
            self._sending.pop(module, None)

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        """Evaluates an expression of ours; returns the answer's body. Raises RequestFailed, DebuggerGone."""
        arguments: Message = {"expression": expression, "context": QUIETLY}
        arguments |= {} if frame is None else {"frameId": frame}
        return await self.client.request("evaluate", arguments, timeout=timeout)

    async def literal(self, expression: str, frame: int | None = None, *, timeout: float = SOON) -> object:
        """Returns the value of an expression that gives a literal; None where it raised."""
        # The expression is put into a list: of a string alone debugpy gives the text, and of None nothing.
        try:
            body = await self.run(f"[{expression}]", timeout, frame)
            return ast.literal_eval(str(body.get("result", "")))[0]
        except (RequestFailed, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
            return None
