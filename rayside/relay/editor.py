"""Connection from one editor to the relay: requests come in, responses and events go out."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

from rayside.dap.additions import AGENT, BEAT, LEFT, RESTART, RESTARTS, TICKET
from rayside.dap.framing import Decoder, FramingError, Message, encode
from rayside.plain import line
from rayside.relay.capabilities import Presence

# Limit of a request, in bytes. The longest are conditions, expressions, and edited files.
LONGEST_REQUEST = 8 * 1024 * 1024
# Limits in bytes that an editor has not read: the relay drops the connection, or leaves output out.
MOST_UNREAD, MOST_OUTPUT_UNREAD = 16 * 1024 * 1024, 4 * 1024 * 1024
# Size in bytes of the socket's send buffer. The default takes megabytes, which would delay answers and hide
# from the relay how much is unread.
_SENT_AHEAD = 64 * 1024
# Both limits for unauthenticated clients.
LONGEST_UNAUTHENTICATED = MOST_UNREAD_UNAUTHENTICATED = 64 * 1024

# TCP keepalive, in seconds, to detect that the other machine sleeps or the tunnel is broken.
_QUIET, _PROBES, _APART = 10, 3, 5
_KEEPALIVE = {
    "TCP_KEEPIDLE": _QUIET,
    "TCP_KEEPCNT": _PROBES,
    "TCP_KEEPINTVL": _APART,
    "TCP_USER_TIMEOUT": 1000 * (_QUIET + _PROBES * _APART),  # milliseconds until sent data is acknowledged
}
_LONGEST_NAME = 60
# Seconds until lines left out for a slow editor are reported.
TELLING = 1.0
# Timeout in seconds for VS Code to request the threads; with an open window it does within 0.2 s.
ANSWERING = 1.5
# Seconds after which a request counts as waiting for a task, not for the relay.
LONG_ASKED = 1.0


class Editor:
    """Connection from a client of the relay."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, presence: Presence | None = None
    ) -> None:
        self.gone = False
        self.presence = presence or Presence()
        # Whether the client is authenticated.
        self.admitted = False
        # Arguments of `attach`; None before it.
        self.arguments: Message | None = None
        self.is_agent = False
        # Whether `configurationDone` has come, after which events are sent.
        self.configured = False
        # The client's name, and the time of its `attach`, ISO 8601 in UTC.
        self.name = self.since = ""
        # Identifies this editor when it attaches again through another connection.
        self.ticket = secrets.token_hex(16)
        self._asks_for_threads = False
        # Lines of output that were left out, and not yet reported.
        self.lines_left_out = 0
        self._telling: asyncio.TimerHandle | None = None
        self._heard = asyncio.Event()
        # Arrival of each pending request, in the loop's time, by its number.
        self._asked: dict[int, float] = {}
        self._answering = asyncio.Event()
        # Held while a long answer is sent, until the editor has read it.
        self.turn = asyncio.Lock()
        self._reader, self._writer = reader, writer
        self._seq = itertools.count(1)
        socket_ = writer.get_extra_info("socket")
        socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # macOS lacks two of them
                socket_.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def requests(self) -> AsyncIterator[Message]:
        """Yields well-formed requests until the connection ends; malformed ones get an error response."""
        decoder = Decoder(content_limit=LONGEST_UNAUTHENTICATED)
        try:
            while data := await self._reader.read(64 * 1024):
                if self.admitted:
                    decoder.content_limit = LONGEST_REQUEST
                for message in decoder.feed(data):
                    if _is_request(message):
                        self._heard.set()
                        self._asked[message["seq"]] = asyncio.get_running_loop().time()
                        yield message
                    elif self._is_of_forward(message):
                        if self.presence.left:
                            return
                    elif message.get("type") != "response":  # the answer to a request that we never send
                        self.refuse(message, "not a DAP request: it needs type, seq, command and arguments")
        except FramingError as error:
            # No later message can be parsed, so this is the last answer.
            self.refuse({}, f"not DAP: {error}")
        except OSError:
            pass

    def _is_of_forward(self, message: Message) -> bool:
        """Handles an event from the editor's forward; returns whether the message is one."""
        event = message.get("event") if message.get("type") == "event" else None
        if event == BEAT:
            self.presence.beat()
            self.event(BEAT)
        elif event == LEFT:
            self.presence.left = True
        return event in (BEAT, LEFT)

    @property
    def may_come_back(self) -> bool:
        """Returns whether the connection broke between forward and relay: the editor may still be there."""
        return self.presence.by_forward and not self.presence.left and not self.gone

    def respond(self, request: Message, body: Message | bytes | None = None) -> None:
        """Answers a request; `body` may be bytes of JSON."""
        if isinstance(body, bytes):
            self._respond(request, {"success": True}, body)
        else:
            self._respond(request, {"success": True, **({} if body is None else {"body": body})})

    async def answered(self, fewer_than: int, patience: float) -> None:
        """Waits until fewer than `fewer_than` requests are pending, for at most `patience` seconds.

        Requests older than LONG_ASKED do not count: they wait for a task, not for the relay.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while not self.gone and self._asked_since(loop.time() - LONG_ASKED) >= fewer_than:
            self._answering.clear()
            try:
                await asyncio.wait_for(self._answering.wait(), end - loop.time())
            except asyncio.TimeoutError:
                return

    def _asked_since(self, moment: float) -> int:
        return sum(asked > moment for asked in self._asked.values())

    async def taken(self) -> None:
        """Waits while the editor leaves too much data unread."""
        with contextlib.suppress(OSError):  # the connection has ended
            await self._writer.drain()

    def refuse(
        self, request: Message, reason: str, ray: Message | None = None, *, is_for_users: bool = True
    ) -> None:
        """Sends an error response; editors show the body's text, or `message`. `ray` is for programs."""
        body: Message = {"error": {"id": 1, "format": reason, "showUser": is_for_users}}
        if ray is not None:
            body["ray"] = ray
        self._respond(request, {"success": False, "message": reason, "body": body})

    def introduced(self, arguments: Message) -> None:
        """Reads the arguments of `initialize`."""
        # VS Code requests the threads after each `thread` event.
        self._asks_for_threads = arguments.get("clientID") == "vscode"
        name = arguments.get("clientName") or arguments.get("clientID")
        self.name = line(name, _LONGEST_NAME) if isinstance(name, str) else ""

    def attached(self, arguments: Message) -> None:
        """Marks the editor as attached, with these arguments of `attach`."""
        self.arguments = arguments
        if arguments.get(AGENT) is True:
            self.is_agent, self.name = True, "A coding agent"
        self.since = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")

    def is_again(self, arguments: Message) -> bool:
        """Returns whether these arguments of `attach` are a reconnect of this editor."""
        restart = arguments.get(RESTART)
        ticket = restart.get(TICKET) if isinstance(restart, dict) else None
        return isinstance(ticket, str) and hmac.compare_digest(
            ticket.encode("utf-8", "replace"), self.ticket.encode()
        )

    async def is_alive(self, thread: int) -> bool:
        """Returns whether the editor is in use: a closed browser tab leaves its connection open.

        `thread` is the id of the row that is always listed.
        """
        if self.presence.is_silent:
            return False
        if self.gone or not (self._asks_for_threads and self.configured):
            return not self.gone
        self._heard.clear()
        self.event("thread", {"reason": "started", "threadId": thread})
        try:
            await asyncio.wait_for(self._heard.wait(), ANSWERING)
        except asyncio.TimeoutError:
            return False
        return True

    def terminated(self, reason: str, *, again: bool = False) -> None:
        """Sends `terminated`; with `again`, the editor may reconnect by itself."""
        self.event("terminated", {"ray": {"reason": reason}, **({"restart": RESTARTS} if again else {})})

    def event(self, name: str, body: Message | None = None) -> None:
        if name == "output" and body is not None and not self._has_room(body):
            return
        self._send({"type": "event", "event": name, **({} if body is None else {"body": body})})

    def say(self, text: str) -> None:
        """Sends a line that editors show in their debug console."""
        # The category is not `important`, which Emacs' dape does not show.
        self.event("output", {"category": "console", "output": f"{text}\n"})

    def drop(self) -> None:
        """Closes the connection immediately."""
        self.gone = True
        self._writer.transport.abort()

    async def close(self, timeout: float = 1.0) -> None:
        """Sends buffered data, for at most `timeout` seconds, and closes the connection."""
        self.gone = True
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), timeout)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def _respond(self, request: Message, rest: Message, body: bytes | None = None) -> None:
        seq, command = request.get("seq"), request.get("command")
        if isinstance(seq, int):
            self._asked.pop(seq, None)
        self._answering.set()
        head: dict[str, Any] = {
            "type": "response",
            "request_seq": seq if isinstance(seq, int) else 0,
            "command": command if isinstance(command, str) else "",
        }
        self._send({**head, **rest}, body)

    def _send(self, message: Message, body: bytes | None = None) -> None:
        if self.gone or self._writer.is_closing():
            return
        self._writer.write(encode({"seq": next(self._seq), **message}, body))
        if self._unread > (MOST_UNREAD if self.admitted else MOST_UNREAD_UNAUTHENTICATED):
            self.drop()

    @property
    def _unread(self) -> int:
        """Returns the bytes that the editor has not read."""
        return self._writer.transport.get_write_buffer_size()

    def _has_room(self, output: Message) -> bool:
        """Returns whether an `output` event can be sent; if not, counts its lines as left out."""
        is_away = self.gone or self._writer.is_closing()
        if not is_away and self._unread <= MOST_OUTPUT_UNREAD:
            return True
        self.lines_left_out += str(output.get("output", "")).count("\n")
        if not is_away and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TELLING, self.tell_left_out)
        return False

    def tell_left_out(self) -> None:
        """Reports how many lines were left out; later, if too much is unread now."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self.gone or not self.lines_left_out:
            return
        if self._unread > MOST_OUTPUT_UNREAD:
            self._telling = asyncio.get_running_loop().call_later(TELLING, self.tell_left_out)
            return
        lines, self.lines_left_out = self.lines_left_out, 0
        self.say(
            f"{lines:,} lines were left out here, for this editor did not take them in time, or its"
            " connection was lost. What tasks print is all in the job's own output: `logs` shows it."
        )


class CurrentEditor:
    """Editor of a session, and editors that only watch: all get the session's events.

    Attributes:
        editor: the editor that debugs; None after it has disconnected.
        watchers: the editors that only watch.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.editor: Editor | None = None
        self.watchers: list[Editor] = []
        self._log = log

    @property
    def is_empty(self) -> bool:
        return self.editor is None and not self.watchers

    @property
    def listens(self) -> bool:
        """Returns whether the editor takes events: on debuggees, DAP has none before `configurationDone`."""
        return self.editor is not None and self.editor.configured

    def event(self, name: str, body: Message) -> None:
        for editor in self._who_listen():
            editor.event(name, body)

    def tell_watchers(self, name: str, body: Message) -> None:
        """Sends an event to watchers only: the editor itself gets the answer to its request."""
        for editor in self.watchers:
            if editor.configured:
                editor.event(name, body)

    def say(self, text: str) -> None:
        self._log(text)
        for editor in self._who_listen():
            editor.say(text)

    def _who_listen(self) -> list[Editor]:
        return [e for e in (self.editor, *self.watchers) if e is not None and e.configured]


def _is_request(message: Message) -> bool:
    return (
        message.get("type") == "request"
        and isinstance(message.get("seq"), int)
        and isinstance(message.get("command"), str)
        and isinstance(message.get("arguments", {}), dict | None)
    )


# Answers one request of an editor: the request, and its arguments.
Handler = Callable[[Editor, Message, Message], Awaitable[None]]
