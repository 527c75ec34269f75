"""Channel for DAP messages with a server: requests and their responses, and events."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from rayside.dap.framing import Decoder, FramingError, Message, encode
from rayside.errors import DebuggerGone, RequestFailed, StrangerListens
from rayside.loopback import require_own

# Timeouts in seconds. The relay reports within 24 s that a debuggee does not answer, even if it first ends
# evaluations; its clients get that error before their own timeout.
REQUEST_TIMEOUT = 25.0
CONNECT_TIMEOUT = 10.0
DRAIN_TIMEOUT = 5.0
# Limit in bytes that the other side has not read, after which it counts as gone.
MOST_UNREAD = 8 * 1024 * 1024
_REQUEST_SEQ = re.compile(rb'"request_seq"\s*:\s*(\d{1,9})\b')

OnEvent = Callable[[Message], None]
Own = TypeVar("Own", bound="Channel")


class Tables(Protocol):
    """Schemas for an untrusted server; `LONGEST` is the limit of its messages, in bytes."""

    @property
    def LONGEST(self) -> int: ...  # noqa: N802 (a module is one)

    def event(self, message: Message) -> Message | None:
        """Returns the known fields of an event; None if it is unknown."""

    def response(self, command: str, message: Message) -> Message:
        """Returns the known fields of a response."""


class Channel(asyncio.Protocol):
    """Connection to a DAP server, made by `connect`.

    It is an asyncio protocol and no pair of streams: a reading task would add two rounds of the event loop
    to each answer.

    Attributes:
        events: DAP events in order of arrival; `None` once the connection has ended. Unused with `on_event`,
            which is called with each event instead, in the event loop.
        closed: set once the connection has ended, on either side.
    """

    def __init__(self, *, name: str, on_event: OnEvent | None = None, tables: Tables | None = None) -> None:
        self.name = name
        self._tables = tables
        self._decoder = Decoder()
        if tables is not None:
            self._decoder = Decoder(content_limit=tables.LONGEST, on_skipped=self._skipped)
        self.events: asyncio.Queue[Message | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._refused: OSError | StrangerListens | None = None
        self._lost = asyncio.Event()  # set once the socket is closed
        self._on_event = on_event or self.events.put_nowait
        self._seq = 0
        self._pending: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self._initialized = asyncio.Event()
        self._ended_by = "the connection was closed"

    @classmethod
    async def connect(
        cls: type[Own],
        host: str,
        port: int,
        *,
        timeout: float = CONNECT_TIMEOUT,
        on_event: OnEvent | None = None,
        tables: Tables | None = None,
    ) -> Own:
        """Connects to a debuggee; `attach` has to follow: a connection without it breaks the debuggee.

        `tables` are schemas for an untrusted server: other messages and fields are dropped.

        Raises:
            DebuggerGone: nothing listens there, or it did not answer in time.
            StrangerListens: another user of this machine listens there; nothing was sent.
        """
        name = f"{host}:{port}"
        dialling = asyncio.get_running_loop().create_connection(
            lambda: cls(name=name, on_event=on_event, tables=tables), host, port
        )
        hint = "The task has probably ended; see which tasks are paused with ./invokew breakpoints."
        try:
            _, channel = await asyncio.wait_for(dialling, timeout)
        except (OSError, asyncio.TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise DebuggerGone(f"no debugger answers at {name}: {why}", hint=hint) from error
        if isinstance(channel._refused, OSError):
            why = f"the debugger at {name} closed the connection at once"
            raise DebuggerGone(why, hint=hint) from channel._refused
        if channel._refused is not None:
            raise channel._refused
        return channel

    # --- callbacks of asyncio --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Ray's actors run on uvloop, whose transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        socket_ = transport.get_extra_info("socket")
        # Nothing is read before the check: data from another user's program never is.
        try:
            socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            require_own(socket_)
        except (OSError, StrangerListens) as error:
            self._refused = error
            self._end("it was refused")
        self._closing = asyncio.ensure_future(self._close_with_the_loop())

    async def _close_with_the_loop(self) -> None:
        """Closes the socket if the event loop ends first, which cancels this task."""
        try:
            await self._lost.wait()
        finally:
            self._end("the event loop has ended")

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if self.closed.is_set():  # the handler of an earlier message may have closed it
                    return
                self._receive(message)
        except FramingError as error:
            self._end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        reason = f" ({getattr(error, 'strerror', None) or error})" if error is not None else ""
        self._end(f"the debuggee has ended{reason}")
        self._lost.set()

    # --- requests --------------------------------------------------------------------------

    async def request(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_TIMEOUT
    ) -> Message:
        """Sends a request; returns the body of the adapter's response, `{}` if it has none.

        Raises:
            RequestFailed: the adapter refused (its own message), or did not answer within `timeout` seconds.
            DebuggerGone: the connection ended before the answer came.
        """
        return body_of(command, await self.answer(command, arguments, timeout=timeout))

    async def answer(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_TIMEOUT
    ) -> Message:
        """Sends a request; returns the adapter's whole response, also an error response.

        Raises:
            RequestFailed: it did not answer within `timeout` seconds.
            DebuggerGone: the connection ended before the answer came.
        """
        return await self.within(timeout, command, self.asked(command, arguments))

    async def within(self, timeout: float, command: str, answer: asyncio.Future[Message]) -> Message:
        """Waits for an answer with a timeout. Raises as `answer`; the future stays pending."""
        # The future is not canceled: a late answer still comes, and `disconnect` waits for it.
        done, _ = await asyncio.wait({answer}, timeout=timeout)
        if not done:
            raise RequestFailed(
                f"the debugger at {self.name} did not answer `{command}` within {timeout:g} s",
                hint="The task may be busy in code that Python can't interrupt; try again.",
            )
        return answer.result()

    async def drain(self, timeout: float = DRAIN_TIMEOUT) -> bool:
        """Waits until no request is pending; returns False if one still is after `timeout` seconds.

        A pending `attach` does not count: it is answered only after `configurationDone`.
        """
        if waiting := self._in_flight():
            await asyncio.wait(waiting, timeout=timeout)
        return not self._in_flight()

    def _in_flight(self) -> list[asyncio.Future[Message]]:
        return [future for name, future in self._pending.values() if name != "attach" and not future.done()]

    def close(self) -> None:
        """Drops the connection immediately; use `disconnect` for a debuggee that lives."""
        self._end("the connection was closed here")

    def asked(self, command: str, arguments: Mapping[str, Any] | None) -> asyncio.Future[Message]:
        """Sends a request; returns its answer, which may never come. Raises DebuggerGone."""
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

    def _skipped(self, length: int, head: bytes) -> None:
        """Fails the request whose response was too long; the connection stays."""
        seq = _REQUEST_SEQ.search(head)
        assert self._tables is not None, "there is no limit for others"
        why = f"it has {length:,} bytes, and {self._tables.LONGEST:,} are taken: ask for a part of it"
        if seq is not None:
            self._receive(
                {"type": "response", "request_seq": int(seq[1]), "message": f"the answer is too long: {why}"}
            )

    def _write(self, message: Message) -> None:
        self._transport.write(encode(message))
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._end("it reads nothing any more")
            self._transport.abort()  # a close would wait until the buffer is read

    def _receive(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "response":
            seq = message.get("request_seq")
            command, answer = self._pending.pop(seq, ("", None)) if isinstance(seq, int) else ("", None)
            if answer is not None and not answer.done():
                answer.set_result(self._tables.response(command, message) if self._tables else message)
        elif kind == "event":
            known = self._tables.event(message) if self._tables else message
            if known is None:
                return
            if known.get("event") == "initialized":
                self._initialized.set()
            self._on_event(known)
        elif kind == "request":
            # A reverse request, such as runInTerminal: the adapter waits for an answer, so it gets one.
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
                answer.exception()  # nothing may wait for this answer, so its error counts as read
        self._pending.clear()
        self.events.put_nowait(None)
        self._transport.close()

    async def wait_closed(self) -> None:
        """Waits until the socket is closed."""
        await self._lost.wait()

    def _gone(self) -> DebuggerGone:
        return DebuggerGone(
            f"the debugger at {self.name} went away: {self._ended_by}",
            hint="The task may have ended or its worker died; see ./invokew breakpoints and ./invokew logs.",
        )


def body_of(command: str, response: Message) -> Message:
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
    """Returns the reason in an error response."""
    body = response.get("body")
    error = body.get("error") if isinstance(body, dict) else None
    text = error.get("format") if isinstance(error, dict) else None
    return str(text or response.get("message") or "no reason was given")
