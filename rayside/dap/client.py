"""DAP client of one debuggee: connected to pydevd behind our own listener, or to debugpy's adapter.

Our listener (rayside/worker/handshake.py) asks for a proof that the client knows the
cluster's token; debugpy's adapter, in processes that we did not prepare, asks nobody for anything.

Two habits of that adapter shape this module. One connect-and-close on its port, or a client that leaves
while an `evaluate` is in flight, and nobody can attach to that process any more (microsoft/debugpy
#974, #1308). And `terminateDebuggee: true` kills a Ray worker, upon which Ray runs the task again.
So a port is dialled only to attach, requests are drained before leaving, and leaving lets the
debuggee run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayside.dap.channel import DRAIN_TIMEOUT, Channel, OnEvent, Tables, body_of
from rayside.dap.framing import Message
from rayside.errors import AttachFailed, DebuggerGone, RequestFailed
from rayside.worker.handshake import AUTHORIZE, CHALLENGE, DEBUG

ATTACH_TIMEOUT = 20.0  # seconds

# These options stop in the user's own frame, on Python 3.11 as on 3.12. Plain `justMyCode: true` never stops
# in a Ray task on 3.11, because the call that stops is made from a file that isn't the user's; `false`
# stops inside Ray on 3.12.
STOP_IN_USER_CODE: dict[str, Any] = {
    "justMyCode": True,
    # One thread stops, the others run on: what answers Serve's health checks, beats, feeds a queue.
    "stopAllThreadsOnSuspend": False,
    "steppingResumesAllThreads": False,
    "rules": [{"module": "ray.util.debugpy", "include": True}],
}

# pydevd sends each answer in two writes, so Nagle's algorithm and delayed acknowledgement hold every
# answer back for 40 ms. The attribute is private: where it is missing, requests are just slower.
_NO_DELAY = "__import__('pydevd').get_global_debugger().writer.sock.setsockopt(6, 1, 1)"

# We evaluate in this context of DAP's while a debuggee runs. In `repl`, debugpy exchanges the process's
# standard output meanwhile, and a thread that prints in that moment may crash the process (1.8.22:
# endless recursion in pydevd_io). The values of `clipboard` are never cut either.
QUIETLY = "clipboard"

SourceBreakpoint = dict[str, Any]
Configure = Callable[[], Awaitable[None]]
# Makes the proof, in hex, that "client" or "debuggee" knows the secret of debuggees: by the role, the
# debuggee's nonce and the client's, and the host and port that were dialled.
Prove = Callable[[str, tuple[str, str], tuple[str, int]], str]


@dataclass(frozen=True)
class Origin:
    """Job and user that a debuggee reports (unauthenticated); each is empty if it knows none.

    Attributes:
        job_id: Ray's id of the job that it works for.
        submission_id: that of the job's submission.
        user: the name of the user whose job that is, or of who had the debugger opened.
    """

    job_id: str = ""
    submission_id: str = ""
    user: str = ""


# Is told the origin of a debuggee that knows the token, before it is anybody's. What it raises ends the
# attaching.
Meet = Callable[[Origin], Awaitable[None]]


@dataclass(frozen=True)
class Introduction:
    """Introduction to a debuggee that several people may debug; `user` is the name that others are shown.

    Attributes:
        children: whether the processes that it starts are to open debugger ports of their own.
    """

    user: str
    meet: Meet
    children: bool = False


class AlreadyDebugged(AttachFailed):
    """Somebody else's debugger has the process; `user` is the name that they gave, if any."""

    def __init__(self, message: str, *, hint: str, user: str) -> None:
        super().__init__(message, hint=hint)
        self.user = user


class Client(Channel):
    """Represents a connection that attaches, made by `Client.connect`.

    Attributes:
        capabilities: the body of the adapter's answer to `initialize`; empty before `attach`.
        attached: the body of its answer to `attach`.
        children: `pid` and `port` of each child that it has had so far, where they are wanted.
    """

    def __init__(self, *, name: str, on_event: OnEvent | None = None, tables: Tables | None = None) -> None:
        super().__init__(name=name, on_event=on_event, tables=tables)
        self.capabilities: Message = {}
        self.attached: Message = {}
        self.children: list[Message] = []
        self._leaving = False

    async def attach(
        self,
        *,
        breakpoints: Mapping[str, Sequence[SourceBreakpoint]] | None = None,
        exception_filters: Sequence[str] | None = (),
        options: Mapping[str, Any] | None = None,
        no_delay: bool = True,
        configure: Configure | None = None,
        prove: Prove | None = None,
        introduction: Introduction | None = None,
        timeout: float = ATTACH_TIMEOUT,
    ) -> Message:
        """Attaches and lets the debuggee reach its `breakpoint()`; `stopped` comes as an event.

        Args:
            breakpoints: DAP SourceBreakpoints by path, set before the debuggee runs.
            exception_filters: debugpy's filters, such as `userUnhandled`; None leaves them to `configure`.
            options: further `attach` arguments of debugpy; they win over `STOP_IN_USER_CODE`.
            no_delay: whether to turn Nagle's algorithm off inside the debuggee, which makes each
                request 40 ms faster.
            configure: awaited when the debuggee takes requests and does not run yet. What it raises
                ends the attaching: the debuggee then waits on, for the next client.
            prove: makes the proof for a debuggee that asks for one; without it, such a debuggee refuses.
            introduction: how a debuggee that asks for a proof is met before it is ours.
            timeout: seconds for everything together.

        Returns:
            The bodies of the `setBreakpoints` answers by path.

        Raises:
            AlreadyDebugged: another debugger has it; it may be tried again at any time.
            AttachFailed: the adapter refused, most often because it has another client already.
            DebuggerGone: the connection ended, or it took longer than `timeout`.
        """

        async def attached() -> Message:
            self.capabilities, delays = await self._initialize(), no_delay
            challenge = self.capabilities.get(CHALLENGE)
            if isinstance(challenge, dict) and prove is not None:
                await self._authorize(str(challenge.get("nonce")), prove, introduction)
                # Only now is it pydevd that answers, which has TCP_NODELAY set.
                self.capabilities, delays = await self._initialize(), False
            # The arguments are never empty: debugpy takes that for a request to launch. And `subProcess` is
            # never left on: children of a Ray worker would wait for a debugger of their own.
            arguments: dict[str, Any] = {**STOP_IN_USER_CODE, "subProcess": False, **(options or {})}
            # The answer to `attach` comes only after `configurationDone`.
            answer = self.asked("attach", arguments)
            initialized = asyncio.ensure_future(self._initialized.wait())
            either: set[asyncio.Future[Any]] = {answer, initialized}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                initialized.cancel()
            if answer.done():
                body_of("attach", answer.result())  # raises where it was refused
            if delays:
                with contextlib.suppress(RequestFailed):
                    await self.request("evaluate", {"expression": _NO_DELAY, "context": QUIETLY})
            if configure is not None:
                await configure()
            verified: Message = {}
            for path, lines in (breakpoints or {}).items():
                verified[path] = await self.set_breakpoints(path, lines)
            if exception_filters is not None:
                await self.request("setExceptionBreakpoints", {"filters": list(exception_filters)})
            await self.request("configurationDone")
            self.attached = body_of("attach", await answer)
            return verified

        try:
            return await asyncio.wait_for(attached(), timeout)
        except asyncio.TimeoutError as error:
            raise DebuggerGone(
                f"the debugger at {self.name} did not finish attaching within {timeout:g} s",
                hint="Another debugger may have spoilt it; cancel the job, and submit it again.",
            ) from error
        except RequestFailed as error:
            raise AttachFailed(
                f"the debugger at {self.name} refused to attach: {error.message}",
                hint="Another debugger may be attached to this task already; leave that one first.",
            ) from error

    async def _initialize(self) -> Message:
        arguments = {
            "clientID": "rayside",
            "clientName": "Rayside",
            "adapterID": "python",
            "pathFormat": "path",
            "linesStartAt1": True,
            "columnsStartAt1": True,
            "supportsVariableType": True,
        }
        return await self.request("initialize", arguments, timeout=ATTACH_TIMEOUT)

    async def _authorize(self, nonce: str, prove: Prove, introduction: Introduction | None) -> None:
        """Makes each side prove that it knows the token, and makes the debuggee ours.

        Raises AlreadyDebugged, RequestFailed, DebuggerGone, and what `meet` raises.
        """
        host, port, *_ = self._transport.get_extra_info("peername")
        nonces = nonce, secrets.token_hex(32)
        proof = prove("client", nonces, (host, port))
        name = {"user": introduction.user} if introduction else {}
        body = await self.request(AUTHORIZE, {"nonce": nonces[1], "proof": proof, **name})
        expected = prove("debuggee", nonces, (host, port))
        if not hmac.compare_digest(str(body.get("proof")).encode("utf-8", "replace"), expected.encode()):
            raise RequestFailed(
                f"what listens at {self.name} does not know Ray's token",
                hint="Somebody else has taken the port of a task that has ended.",
            )
        # An earlier version's package names no job, and makes the process ours with this answer.
        if introduction is None or "job" not in body:
            return
        ids = str(body["job"]), str(body.get("submission") or "")
        await introduction.meet(Origin(*ids, str(body.get("user") or "")))
        answer = await self.request(DEBUG, {"children": True} if introduction.children else None)
        self.children = answer.get("children") or []
        if answer.get("taken") is not True:
            user = str(answer.get("user") or "")
            raise AlreadyDebugged(
                f"{user or 'somebody else'} debugs it",
                hint="It is free again when they have left.",
                user=user,
            )

    async def set_breakpoints(
        self,
        path: str,
        breakpoints: Sequence[SourceBreakpoint],
        *,
        source: Mapping[str, Any] | None = None,
    ) -> Message:
        """Makes these the breakpoints of that file; returns the body of the answer.

        `source` has more of DAP's Source, such as checksums.
        """
        source = {"path": path, "name": path.rpartition("/")[2], **(source or {})}
        return await self.request("setBreakpoints", {"source": source, "breakpoints": [*breakpoints]})

    async def disconnect(self, *, timeout: float = DRAIN_TIMEOUT, drain: float | None = None) -> None:
        """Disconnects, and lets the debuggee run on; harmless when the connection has ended already.

        Args:
            timeout: seconds for the debuggee's answer.
            drain: seconds for the answers to earlier requests (default: `timeout`).
        """
        if not self.closed.is_set() and not self._leaving:
            self._leaving = True
            await self.drain(timeout if drain is None else drain)
            with contextlib.suppress(RequestFailed, DebuggerGone):
                await self.request("disconnect", {"terminateDebuggee": False}, timeout=timeout)
        self.close()
        try:
            await asyncio.wait_for(self.wait_closed(), timeout)
        except asyncio.TimeoutError:  # it does not read what is left
            self._transport.abort()
