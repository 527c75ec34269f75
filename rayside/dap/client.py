"""DAP client of one debuggee: connected to pydevd through our own listener, or to debugpy's adapter.

Our listener (rayside/worker/handshake.py) requires a proof that the client knows the
cluster's token; debugpy's adapter, in processes that we did not prepare, authenticates nobody.

Two bugs of that adapter shape this module. After one connect-and-close on its port, or a disconnect
during an `evaluate`, no client can attach to that process any more (microsoft/debugpy #974, #1308).
And `terminateDebuggee: true` kills a Ray worker, after which Ray runs the task again.
So a port is opened only to attach, pending requests are drained before a disconnect, and the debuggee
continues after it.
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

# With these options threads stop in the user's own frame, on Python 3.11 and 3.12. Plain `justMyCode: true`
# never stops in a Ray task on 3.11, because a file that isn't the user's calls the debugger; `false` stops
# inside Ray on 3.12.
STOP_IN_USER_CODE: dict[str, Any] = {
    "justMyCode": True,
    # One thread stops, the others continue: they answer Serve's health checks, send heartbeats, feed queues.
    "stopAllThreadsOnSuspend": False,
    "steppingResumesAllThreads": False,
    "rules": [{"module": "ray.util.debugpy", "include": True}],
}

# pydevd sends each answer in two writes, so Nagle's algorithm and delayed acknowledgement delay every
# answer by 40 ms. The attribute is private: without it, requests are only slower.
_NO_DELAY = "__import__('pydevd').get_global_debugger().writer.sock.setsockopt(6, 1, 1)"

# DAP's context of our evaluations while a debuggee runs. In `repl`, debugpy replaces the process's
# standard output meanwhile, and a thread that prints at that moment may crash the process (1.8.22:
# endless recursion in pydevd_io). With `clipboard`, values are never cut either.
QUIETLY = "clipboard"

SourceBreakpoint = dict[str, Any]
Configure = Callable[[], Awaitable[None]]
# Returns the proof, in hex, that "client" or "debuggee" knows the token: from that role, the debuggee's and
# the client's nonce, and the host and port of the connection.
Prove = Callable[[str, tuple[str, str], tuple[str, int]], str]


@dataclass(frozen=True)
class Origin:
    """Job and user that a debuggee reports (unauthenticated); each is empty if it knows none.

    Attributes:
        job_id: Ray's id of the job that it works for.
        submission_id: the job's submission id.
        user: name of the job's user, or of the user who had the debugger port opened.
    """

    job_id: str = ""
    submission_id: str = ""
    user: str = ""


# Called with the origin of an authenticated debuggee, before the client claims it. An exception ends the
# attachment.
Meet = Callable[[Origin], Awaitable[None]]


@dataclass(frozen=True)
class Introduction:
    """Introduction to a debuggee that several people may debug; `user` is the name that others see.

    Attributes:
        children: whether its child processes open debugger ports of their own.
    """

    user: str
    meet: Meet
    children: bool = False


class AlreadyDebugged(AttachFailed):
    """Another debugger has the process; `user` is the name of its user, if known."""

    def __init__(self, message: str, *, hint: str, user: str) -> None:
        super().__init__(message, hint=hint)
        self.user = user


class Client(Channel):
    """Connection to a debuggee that attaches, made by `Client.connect`.

    Attributes:
        capabilities: the body of the adapter's answer to `initialize`; empty before `attach`.
        attached: the body of its answer to `attach`.
        children: `pid` and `port` of each child process so far, if requested.
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
        """Attaches, and lets the debuggee run to its `breakpoint()`; `stopped` comes as an event.

        Args:
            breakpoints: DAP SourceBreakpoints by path, set before the debuggee runs.
            exception_filters: debugpy's filters, such as `userUnhandled`; None leaves them to `configure`.
            options: further `attach` arguments of debugpy; they override `STOP_IN_USER_CODE`.
            no_delay: whether to turn Nagle's algorithm off inside the debuggee, which makes each
                request 40 ms faster.
            configure: awaited when the debuggee takes requests and does not run yet. An exception ends
                the attachment: the debuggee continues to wait for a client.
            prove: returns the proof for a debuggee that requires one; without it, such a debuggee refuses.
            introduction: introduction to a debuggee that requires a proof, before the client claims it.
            timeout: in seconds, for all steps together.

        Returns:
            The bodies of the `setBreakpoints` answers by path.

        Raises:
            AlreadyDebugged: another debugger has it; a retry is possible at any time.
            AttachFailed: the adapter refused, most often because it has another client already.
            DebuggerGone: the connection ended, or it took longer than `timeout`.
        """

        async def attached() -> Message:
            self.capabilities, delays = await self._initialize(), no_delay
            challenge = self.capabilities.get(CHALLENGE)
            if isinstance(challenge, dict) and prove is not None:
                await self._authorize(str(challenge.get("nonce")), prove, introduction)
                # From here on pydevd answers, which has TCP_NODELAY set.
                self.capabilities, delays = await self._initialize(), False
            # The arguments are never empty, since debugpy would launch a program. And `subProcess` is off by
            # default: otherwise, children of a Ray worker would wait for a debugger of their own.
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
                body_of("attach", answer.result())  # raises if it was refused
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
        """Authenticates both sides with the token, and claims the debuggee.

        Raises AlreadyDebugged, RequestFailed, DebuggerGone, and the exceptions of `meet`.
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
        # Older packages report no job, and with this answer the process is claimed already.
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
        """Replaces the breakpoints of a file; returns the body of the answer.

        `source` has further fields of DAP's Source, such as checksums.
        """
        source = {"path": path, "name": path.rpartition("/")[2], **(source or {})}
        return await self.request("setBreakpoints", {"source": source, "breakpoints": [*breakpoints]})

    async def disconnect(self, *, timeout: float = DRAIN_TIMEOUT, drain: float | None = None) -> None:
        """Disconnects, and lets the debuggee continue; harmless when the connection has ended already.

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
        except asyncio.TimeoutError:  # the other side does not read the buffer
            self._transport.abort()
