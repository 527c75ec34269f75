"""One editor's connection to the relay: requests come in, responses and events go out."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from bootstrap.debug.dap import Decoder, FramingError, Message, encode

# An editor sends no source text; the longest is a condition or an expression.
LONGEST_REQUEST = 8 * 1024 * 1024
# What an editor may leave unread before it counts as gone.
MOST_UNREAD = 64 * 1024 * 1024


class Editor:
    """A connection that a client of the relay opened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.gone = False
        # What it attached with; None before that.
        self.arguments: Message | None = None
        # From then on it is told what happens.
        self.configured = False
        self._reader, self._writer = reader, writer
        self._seq = itertools.count(1)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def requests(self) -> AsyncIterator[Message]:
        """Each request, well formed, until the editor has gone; what is malformed gets an error response."""
        decoder = Decoder(content_limit=LONGEST_REQUEST)
        try:
            while data := await self._reader.read(64 * 1024):
                for message in decoder.feed(data):
                    if _is_request(message):
                        yield message
                    elif message.get("type") != "response":  # the answer to a request that we never send
                        self.refuse(message, "not a DAP request: it needs type, seq, command and arguments")
        except FramingError as error:
            # Nothing after it can be told apart, so this is the last answer.
            self.refuse({}, f"not DAP: {error}")
        except OSError:
            pass

    def respond(self, request: Message, body: Message | None = None) -> None:
        self._respond(request, {"success": True, **({} if body is None else {"body": body})})

    def refuse(self, request: Message, reason: str) -> None:
        """An error response; editors show the body's text, or the short one."""
        error = {"id": 1, "format": reason, "showUser": True}
        self._respond(request, {"success": False, "message": reason, "body": {"error": error}})

    def event(self, name: str, body: Message | None = None) -> None:
        self._send({"type": "event", "event": name, **({} if body is None else {"body": body})})

    def say(self, text: str) -> None:
        """A line that editors show, in their debug console."""
        self.event("output", {"category": "important", "output": f"{text}\n"})

    async def close(self, timeout: float = 1.0) -> None:
        """Sends what is left, for at most `timeout` seconds, and closes."""
        self.gone = True
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), timeout)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def _respond(self, request: Message, rest: Message) -> None:
        seq, command = request.get("seq"), request.get("command")
        head: dict[str, Any] = {
            "type": "response",
            "request_seq": seq if isinstance(seq, int) else 0,
            "command": command if isinstance(command, str) else "",
        }
        self._send({**head, **rest})

    def _send(self, message: Message) -> None:
        if self.gone or self._writer.is_closing():
            return
        self._writer.write(encode({"seq": next(self._seq), **message}))
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD:
            self._writer.transport.abort()


class CurrentEditor:
    """The one that is told what happens.

    Attributes:
        editor: the one that has attached last, None where it has gone.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.editor: Editor | None = None
        self._log = log

    @property
    def listens(self) -> bool:
        """DAP wants no event about debuggees before `configurationDone`."""
        return self.editor is not None and self.editor.configured

    def event(self, name: str, body: Message) -> None:
        if self.editor is not None and self.listens:
            self.editor.event(name, body)

    def say(self, text: str) -> None:
        self._log(text)
        if self.editor is not None and self.listens:
            self.editor.say(text)


def _is_request(message: Message) -> bool:
    return (
        message.get("type") == "request"
        and isinstance(message.get("seq"), int)
        and isinstance(message.get("command"), str)
        and isinstance(message.get("arguments", {}), dict | None)
    )
