"""Editor's connection to a relay over an unreliable network; the editor is told about its state.

Heartbeats inside the DAP connection show this side that the network is lost, and the relay that the
editor's machine sleeps or has gone. Meanwhile the editor's own connection stays open; once a relay answers,
the editor is asked to attach again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from rayside.dap.additions import BEAT, FORWARD_ENDED, LEFT, RELAY_GONE, WAY_BACK, WAY_LOST
from rayside.dap.framing import Decoder, FramingError, Message, encode
from rayside.errors import RaysideError
from rayside.event_loop import within
from rayside.plain import line
from rayside.reach.editor_state import Exchange, answer, end, is_relay_ending, waiting
from rayside.reach.patience import Pace, Patience

# Protocol of a forward's target.
Speaks = Literal["http", "https", "dap"]

# Timeout in seconds for a relay's first answer, and pause between two tries to reconnect.
_ANSWER, _PAUSE = 5.0, 1.0
# Timeout in seconds for the relay to close the connection after the editor left, and for the editor to leave.
_GOODBYE = 5.0
# The same if the forward ends: its process has to end within one second.
_SOON = 0.4
_CHUNK = 65_536
# Limit: characters of the reason of a lost connection, which the other side may have chosen.
_LONGEST = 300


class Way(Protocol):
    """Byte stream to the relay's port."""

    async def read(self) -> bytes:
        """Returns the next bytes; empty at the end. Raises RaysideError, OSError."""

    async def send(self, data: bytes, /) -> None:
        """Raises RaysideError, OSError."""

    async def close(self) -> None: ...


class EditorConnection:
    """Serves one editor, in `run`.

    Args:
        open_way: opens a connection to the relay's port; raises RaysideError, OSError, or TimeoutError after
            some seconds.
        log: called with a line for each event.
        pace: backoff that all editors of the port share.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        open_way: Callable[[], Awaitable[Way]],
        *,
        log: Callable[[str], None],
        patience: Patience,
        pace: Pace,
    ) -> None:
        self._reader, self._writer, self._open_way = reader, writer, open_way
        self._log, self._patience, self._pace = log, patience, pace
        self._exchange = Exchange()
        self._seq = itertools.count(1)
        self._way: Way | None = None
        # The editor's message that is being sent; it never ends if the relay reads nothing.
        self._sending: asyncio.Future[None] | None = None
        self._missed = 0
        self._attached = asyncio.Event()
        self._attached_at = 0.0  # by the event loop's clock
        # Whether this side waits for the editor to read: then it reads nothing more from the relay.
        self._stuck = False

    async def run(self) -> None:
        """Serves the editor to its end; the caller closes its streams. Raises as `open_way`."""
        way = self._way = await self._open_way()
        reading = asyncio.create_task(self._read_editor())
        try:
            lost = await self._carried(way, reading)
            if lost and self._exchange.outlasts:
                self._log(f"the way of an editor is lost: {line(lost, _LONGEST)}")
                await self._outlasted(lost, reading)
        except asyncio.CancelledError:
            if self._exchange.outlasts:
                self._tell(*end("Rayside's forward to the debug relay has ended.", FORWARD_ENDED))
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    # --- while connected -------------------------------------------------------------------

    async def _carried(self, way: Way, reading: asyncio.Task[None]) -> str:
        """Copies in both directions; returns why the connection was lost, or "" if the editor has left."""
        down = asyncio.create_task(self._read_way(way))
        beating = asyncio.create_task(self._beat(way))
        try:
            await asyncio.wait({down, beating, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return down.result() if down.done() else beating.result()
            await self._leave(way, down, _GOODBYE)
            return ""
        except asyncio.CancelledError:
            if self._attached.is_set():
                await self._leave(way, down, _SOON)
            raise
        finally:
            self._way = None
            if self._sending is not None:
                self._sending.cancel()
            for task in (down, beating):
                task.cancel()
            try:
                await asyncio.gather(down, beating, return_exceptions=True)
            finally:  # even if the forward is cancelled now
                await way.close()

    async def _leave(self, way: Way, down: asyncio.Task[str], seconds: float) -> None:
        """Reports to the relay that the editor does not come back; waits until it closes the connection."""

        async def left() -> None:
            if self._attached.is_set():
                with contextlib.suppress(OSError, RaysideError):
                    await way.send(_event(LEFT))
            await asyncio.wait({down})

        with contextlib.suppress(asyncio.TimeoutError):
            await within(seconds, left())

    async def _read_editor(self) -> None:
        """Forwards the editor's messages, or answers them while disconnected, until the editor leaves."""
        decoder = Decoder()
        with contextlib.suppress(OSError, FramingError):
            while data := await self._reader.read(_CHUNK):
                for message in decoder.feed(data):
                    if (way := self._way) is None:
                        self._answer(message)
                        continue
                    self._exchange.asked(message)
                    # If it can't be sent, it is answered when the connection counts as lost.
                    sending = self._sending = asyncio.ensure_future(way.send(encode(message)))
                    await asyncio.wait({sending})
                    with contextlib.suppress(OSError, RaysideError, asyncio.CancelledError):
                        sending.result()

    async def _read_way(self, way: Way) -> str:
        """Forwards the relay's messages; returns why they ended."""
        decoder, data = Decoder(), b""
        try:
            while data := await way.read():
                self._missed = 0
                for message in decoder.feed(data):
                    if message.get("event") == BEAT:
                        continue
                    if is_relay_ending(message) and self._exchange.attached:
                        return "the debug relay has ended"
                    self._exchange.answered(message)
                    self._writer.write(encode(message))
                    if self._exchange.attached and not self._attached.is_set():
                        self._attached_at = asyncio.get_running_loop().time()
                        self._attached.set()
                self._stuck = True
                with contextlib.suppress(ConnectionError):  # The editor has gone, which its reader notices.
                    await self._writer.drain()
                self._stuck = False
        except RaysideError as error:
            return error.message
        except FramingError:
            self._writer.write(data)  # The client sees the foreign answer.
            return "what answers there is no debug relay"
        except OSError as error:
            return error.strerror or str(error)
        return "the connection was closed"

    async def _beat(self, way: Way) -> str:
        """Sends heartbeats once the editor is attached; returns why the connection counts as lost."""
        await self._attached.wait()
        every, most = self._patience.every, self._patience.most_missed
        # It counts heartbeats: the clock may advance while this machine sleeps, without any being missed.
        while self._missed <= most:
            if not self._stuck:
                self._missed += 1
            with contextlib.suppress(OSError, RaysideError, asyncio.TimeoutError):
                await within(every, way.send(_event(BEAT)))
            await asyncio.sleep(every)
        return f"nothing has come from there for {every * most:g} s"

    # --- while the connection is lost ------------------------------------------------------

    async def _outlasted(self, lost: str, reading: asyncio.Task[None]) -> None:
        """Keeps the editor until a relay answers, to attach again; or ends its session with the reason."""
        patience = self._patience
        pause = self._pace.after(asyncio.get_running_loop().time() - self._attached_at)
        self._tell(
            waiting(
                f"The connection to the cluster is lost: {line(lost, _LONGEST)}. Rayside looks for it for at "
                f"most {_time(patience.lost)}. What is stopped there waits for up to {_time(patience.away)}."
            ),
            *self._exchange.unanswered("the connection to the cluster was lost"),
        )
        await asyncio.wait({reading}, timeout=pause)
        reason = await self._relay_again(reading)
        if reading.done():
            return
        self._log(f"an editor that had lost its way: {reason}")
        if reason == WAY_BACK:
            text = "The cluster is there again: the debugger attaches again."
            self._tell(*end(text, reason, self._exchange.restart))
        elif reason == RELAY_GONE:
            text = "The cluster is there again without its debug relay, so this session ends."
            self._tell(*end(f"{text} `connect`, in a clone `up`, begins a relay; then attach again.", reason))
        else:
            text = f"The cluster was not reached for {_time(patience.lost)}, so this session ends."
            self._tell(*end(f"{text} `status` shows when it is there again.", reason))
        await asyncio.wait({reading}, timeout=_GOODBYE)

    async def _relay_again(self, reading: asyncio.Task[None]) -> str:
        """Retries the connection; returns WAY_BACK, RELAY_GONE or WAY_LOST. Ends if the editor leaves."""
        clock = asyncio.get_running_loop().time
        until, absent_until = clock() + self._patience.lost, 0.0
        while not reading.done() and clock() < until:
            try:
                is_there = await _answers(await self._open_way())
            except (RaysideError, OSError, asyncio.TimeoutError):
                absent_until = 0.0
            else:
                if is_there:
                    return WAY_BACK
                absent_until = absent_until or clock() + self._patience.absent
                if clock() >= absent_until:
                    return RELAY_GONE
            await asyncio.wait({reading}, timeout=min(_PAUSE, self._patience.absent))
        return WAY_LOST

    def _answer(self, message: Message) -> None:
        reply = answer(message, "the connection to the cluster is lost; Rayside looks for it")
        if reply is not None:
            self._tell(reply)
        if message.get("command") == "disconnect":
            self._writer.close()

    def _tell(self, *messages: Message) -> None:
        """Sends this side's own messages to the editor."""
        for message in messages:
            self._writer.write(encode({"seq": next(self._seq), **message}))


async def _answers(way: Way) -> bool:
    """Returns whether a relay answers on this connection; closes it. Raises TimeoutError."""

    async def answered() -> bool:
        await way.send(encode({"seq": 1, "type": "request", "command": "initialize", "arguments": {}}))
        decoder = Decoder()
        while data := await way.read():
            if any(message.get("type") == "response" for message in decoder.feed(data)):
                return True
        return False

    try:
        return await within(_ANSWER, answered())
    except asyncio.TimeoutError:  # This comes first: it is an OSError, too, from Python 3.11 on.
        raise
    except (RaysideError, OSError, FramingError):
        return False
    finally:
        await way.close()


def _event(name: str) -> bytes:
    return encode({"seq": 0, "type": "event", "event": name})


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
