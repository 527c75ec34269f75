"""Holds one DAP connection to one debuggee: to pydevd behind our own listener, or to debugpy's adapter.

Our listener (bootstrap/hook/rayside_hook/handshake.py) asks for a proof that the client knows the
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
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bootstrap.dap import messages
from bootstrap.dap.debuggee import Prove
from bootstrap.dap.framing import Decoder, FramingError, Message, encode
from bootstrap.errors import AttachFailed, DebuggerGone, RequestFailed, StrangerListens
from bootstrap.loopback import require_own

REQUEST_TIMEOUT = 10.0  # seconds
ATTACH_TIMEOUT = 20.0
DRAIN_TIMEOUT = 5.0

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

# The longest message of a debuggee that is taken, in bytes: it may hold a value that is copied whole. A list
# of a hundred million would be copied, too, and the relay has 256 MiB for everything.
LONGEST_OF_DEBUGGEE = 4 * 1024 * 1024
# The bytes that a debuggee may leave unread before it counts as gone.
MOST_UNREAD = 8 * 1024 * 1024
_REQUEST_SEQ = re.compile(rb'"request_seq"\s*:\s*(\d{1,9})\b')

SourceBreakpoint = dict[str, Any]
OnEvent = Callable[[Message], None]
Configure = Callable[[], Awaitable[None]]


class Client:
    """Represents a connection, made by `Client.connect`.

    Attributes:
        events: DAP events in the order they came; `None` once the connection has ended. Unused when
            `on_event` was given, which then is called with each event instead, from the event loop.
        capabilities: the body of the adapter's answer to `initialize`; empty before `attach`.
        closed: set once the connection has ended, whoever ended it.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        name: str,
        on_event: OnEvent | None = None,
        of_stranger: bool = False,
    ) -> None:
        self.name = name
        self._of_stranger = of_stranger
        self.events: asyncio.Queue[Message | None] = asyncio.Queue()
        self.capabilities: Message = {}
        self.closed = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._on_event = on_event or self.events.put_nowait
        self._seq = 0
        self._pending: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self._initialized = asyncio.Event()
        self._leaving = False
        self._ended_by = "the connection was closed"
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        timeout: float = REQUEST_TIMEOUT,
        on_event: OnEvent | None = None,
        of_stranger: bool = False,
    ) -> Client:
        """Dials a debuggee; `attach` has to follow, for a connection that only closes spoils the debuggee.

        `of_stranger` says whether what comes from there is taken only as far as `messages` knows it.

        Raises:
            DebuggerGone: nothing listens there, or it did not answer in time.
            StrangerListens: it is on this machine and another user's; it was sent nothing.
        """
        name = f"{host}:{port}"
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout)
        except (OSError, asyncio.TimeoutError) as error:
            raise DebuggerGone(
                f"no debugger answers at {name}: {str(error) or 'no answer in time'}",
                hint="The task has probably ended; see which tasks are paused with ./invokew breakpoints.",
            ) from error
        socket_ = writer.get_extra_info("socket")
        try:
            socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            require_own(socket_)
        except OSError as error:
            writer.close()
            raise DebuggerGone(
                f"the debugger at {name} closed the connection at once",
                hint="The task has probably ended; see which tasks are paused with ./invokew breakpoints.",
            ) from error
        except StrangerListens:
            writer.close()
            raise
        return cls(reader, writer, name=name, on_event=on_event, of_stranger=of_stranger)

    async def request(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_TIMEOUT
    ) -> Message:
        """Sends a request; returns the body of the adapter's response, `{}` where the response has none.

        Raises:
            RequestFailed: the adapter said no (its own message), or did not answer within `timeout` seconds.
            DebuggerGone: the connection ended before the answer came.
        """
        return _body(command, await self.answer(command, arguments, timeout=timeout))

    async def answer(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_TIMEOUT
    ) -> Message:
        """Sends a request; returns the adapter's whole response, which may say no.

        Raises:
            RequestFailed: it did not answer within `timeout` seconds.
            DebuggerGone: the connection ended before the answer came.
        """
        answer = self._send(command, arguments)
        # The future is not cancelled: an answer that is late still comes, and `disconnect` waits for it.
        done, _ = await asyncio.wait({answer}, timeout=timeout)
        if not done:
            raise RequestFailed(
                f"the debugger at {self.name} did not answer `{command}` within {timeout:g} s",
                hint="The task may be busy in code that Python can't interrupt; try again.",
            )
        return answer.result()

    async def attach(
        self,
        *,
        breakpoints: Mapping[str, Sequence[SourceBreakpoint]] | None = None,
        exception_filters: Sequence[str] | None = (),
        path_mappings: Sequence[Mapping[str, str]] = (),
        options: Mapping[str, Any] | None = None,
        no_delay: bool = True,
        configure: Configure | None = None,
        prove: Prove | None = None,
        timeout: float = ATTACH_TIMEOUT,
    ) -> Message:
        """Attaches and lets the debuggee reach its `breakpoint()`; `stopped` comes as an event.

        Args:
            breakpoints: DAP SourceBreakpoints by path, set before the debuggee runs.
            exception_filters: debugpy's filters, such as `userUnhandled`; None leaves them to `configure`.
            path_mappings: debugpy's mappings, `{"localRoot", "remoteRoot"}` each.
            options: further `attach` arguments of debugpy; they win over `STOP_IN_USER_CODE`.
            no_delay: whether to turn Nagle's algorithm off inside the debuggee, which makes each
                request 40 ms faster.
            configure: awaited when the debuggee takes requests and does not run yet. What it raises
                ends the attaching: the debuggee then waits on, for the next client.
            prove: makes the proof for a debuggee that asks for one; without it, such a debuggee refuses.
            timeout: seconds for everything together.

        Returns:
            The bodies of the `setBreakpoints` answers by path.

        Raises:
            AttachFailed: the adapter refused, most often because it has another client already.
            DebuggerGone: the connection ended, or it took longer than `timeout`.
        """
        try:
            return await asyncio.wait_for(
                self._attach(
                    *(breakpoints or {}, exception_filters, path_mappings, options or {}),
                    *(no_delay, configure, prove),
                ),
                timeout,
            )
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

    async def _attach(
        self,
        breakpoints: Mapping[str, Sequence[SourceBreakpoint]],
        exception_filters: Sequence[str] | None,
        path_mappings: Sequence[Mapping[str, str]],
        options: Mapping[str, Any],
        no_delay: bool,
        configure: Configure | None,
        prove: Prove | None,
    ) -> Message:
        self.capabilities = await self._initialize()
        challenge = self.capabilities.get("rayside")
        if isinstance(challenge, dict) and prove is not None:
            await self._authorize(str(challenge.get("nonce")), prove)
            # Only now is it pydevd that answers, which has TCP_NODELAY set.
            self.capabilities, no_delay = await self._initialize(), False
        # The arguments are never empty: debugpy takes that for a request to launch. And `subProcess` is never
        # left on: children of a Ray worker would wait for a debugger of their own.
        arguments: dict[str, Any] = {**STOP_IN_USER_CODE, "subProcess": False, **options}
        if path_mappings:
            arguments["pathMappings"] = [dict(mapping) for mapping in path_mappings]
        # The answer to `attach` comes only after `configurationDone`.
        attached = self._send("attach", arguments)
        initialized = asyncio.ensure_future(self._initialized.wait())
        either: set[asyncio.Future[Any]] = {attached, initialized}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            initialized.cancel()
        if attached.done():
            _body("attach", attached.result())  # raises where it was refused
        if no_delay:
            with contextlib.suppress(RequestFailed):
                await self.request("evaluate", {"expression": _NO_DELAY, "context": QUIETLY})
        if configure is not None:
            await configure()
        verified: Message = {}
        for path, lines in breakpoints.items():
            verified[path] = await self.set_breakpoints(path, lines)
        if exception_filters is not None:
            await self.request("setExceptionBreakpoints", {"filters": list(exception_filters)})
        await self.request("configurationDone")
        _body("attach", await attached)
        return verified

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

    async def _authorize(self, nonce: str, prove: Prove) -> None:
        """Has each side prove that it knows the token. Raises RequestFailed, DebuggerGone."""
        host, port, *_ = self._writer.get_extra_info("peername")
        nonces = nonce, secrets.token_hex(32)
        proof = prove("client", nonces, (host, port))
        body = await self.request("raysideAuthorize", {"nonce": nonces[1], "proof": proof})
        expected = prove("debuggee", nonces, (host, port))
        if not hmac.compare_digest(str(body.get("proof")).encode("utf-8", "replace"), expected.encode()):
            raise RequestFailed(
                f"what listens at {self.name} does not know Ray's token",
                hint="Somebody else has taken the port of a task that has ended.",
            )

    async def set_breakpoints(
        self,
        path: str,
        breakpoints: Sequence[SourceBreakpoint],
        *,
        source: Mapping[str, Any] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Message:
        """Makes these the breakpoints of that file; returns the body of the answer.

        `source` has more of DAP's Source, such as checksums.
        """
        name = os.path.basename(path)  # noqa: PTH119 (a remote path)
        return await self.request(
            "setBreakpoints",
            {
                "source": {"path": path, "name": name, **(source or {})},
                "breakpoints": [dict(breakpoint_) for breakpoint_ in breakpoints],
            },
            timeout=timeout,
        )

    async def drain(self, timeout: float = DRAIN_TIMEOUT) -> bool:
        """Waits until no request is in flight; returns False where some still is after `timeout` seconds."""
        waiting = [future for _, future in self._pending.values() if not future.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)
        return not self._pending

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
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), timeout)

    def close(self) -> None:
        """Drops the connection at once; `disconnect` is the way to leave a debuggee that lives."""
        self._reading.cancel()
        self._end("the connection was closed here")

    def _send(self, command: str, arguments: Mapping[str, Any] | None) -> asyncio.Future[Message]:
        if self.closed.is_set():
            raise self._gone()
        self._seq += 1
        message: Message = {"seq": self._seq, "type": "request", "command": command}
        if arguments is not None:
            message["arguments"] = dict(arguments)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[self._seq] = (command, answer)
        self._write(message)
        return answer

    async def _read(self) -> None:
        decoder = Decoder()
        if self._of_stranger:
            decoder = Decoder(content_limit=LONGEST_OF_DEBUGGEE, on_skipped=self._skipped)
        why = "the debuggee has ended"
        try:
            while data := await self._reader.read(64 * 1024):
                for message in decoder.feed(data):
                    self._receive(message)
        except FramingError as error:
            why = str(error)
        except OSError as error:
            why = f"the debuggee has ended ({error.strerror or error})"
        finally:
            self._end(why)

    def _skipped(self, length: int, head: bytes) -> None:
        """Answers for a message that was too long to be taken: its request fails; nothing else is lost."""
        seq = _REQUEST_SEQ.search(head)
        why = f"it has {length:,} bytes, and {LONGEST_OF_DEBUGGEE:,} are taken: ask for a part of it"
        if seq is not None:
            self._receive(
                {"type": "response", "request_seq": int(seq[1]), "message": f"the answer is too long: {why}"}
            )

    def _write(self, message: Message) -> None:
        self._writer.write(encode(message))
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD:
            self._end("it reads nothing any more")

    def _receive(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "response":
            seq = message.get("request_seq")
            command, answer = self._pending.pop(seq, ("", None)) if isinstance(seq, int) else ("", None)
            if answer is not None and not answer.done():
                answer.set_result(messages.response(command, message) if self._of_stranger else message)
        elif kind == "event":
            known = messages.event(message) if self._of_stranger else message
            if known is None:
                return
            if known.get("event") == "initialized":
                self._initialized.set()
            self._on_event(known)
        elif kind == "request":
            # It is a reverse request, such as runInTerminal: the adapter waits for an answer, so it gets one.
            self._seq += 1
            refusal = {
                "seq": self._seq,
                "type": "response",
                "request_seq": message.get("seq", 0),
                "command": message.get("command", ""),
                "success": False,
                "message": "not supported",
            }
            self._write(refusal)

    def _end(self, why: str) -> None:
        if self.closed.is_set():
            return
        self._ended_by = why
        self.closed.set()
        for _, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._gone())
                answer.exception()  # not every answer has somebody waiting for it
        self._pending.clear()
        self.events.put_nowait(None)
        self._writer.close()

    def _gone(self) -> DebuggerGone:
        return DebuggerGone(
            f"the debugger at {self.name} went away: {self._ended_by}",
            hint="The task may have ended or its worker died; see ./invokew breakpoints and ./invokew logs.",
        )


def _body(command: str, response: Message) -> Message:
    if not response.get("success"):
        raise RequestFailed(
            reason(response),
            hint=f"The debugger refused `{command}`; correct what was asked, or leave and attach again.",
            ray=_of_the_relay(response),
        )
    body = response.get("body")
    return body if isinstance(body, dict) else {}


def _of_the_relay(response: Message) -> Message:
    body = response.get("body")
    ray = body.get("ray") if isinstance(body, dict) else None
    return ray if isinstance(ray, dict) else {}


def reason(response: Message) -> str:
    """Returns why a request was refused."""
    body = response.get("body")
    error = body.get("error") if isinstance(body, dict) else None
    text = error.get("format") if isinstance(error, dict) else None
    return str(text or response.get("message") or "no reason was given")
