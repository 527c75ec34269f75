"""Single request to a DAP server on this machine, without an event loop."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import Any

from rayside.dap.framing import Decoder, FramingError, Message, encode
from rayside.errors import DebuggerGone, RequestFailed, StrangerListens
from rayside.loopback import require_own

_CHUNK = 65536


def ask(
    port: int, command: str, arguments: Mapping[str, Any], *, host: str = "127.0.0.1", timeout: float = 2.0
) -> Message:
    """Returns the body of the response; `{}` if it has none.

    It must not be used with a debuggee, which a connection without `attach` would break.

    `timeout` is in seconds, for the whole exchange.

    Raises:
        RequestFailed: the server refused (its own message).
        DebuggerGone: nothing listens there, or it sent something else, or nothing in time.
        StrangerListens: another user of this machine listens there; nothing was sent.
    """
    deadline = time.monotonic() + timeout
    request = {"seq": 1, "type": "request", "command": command, "arguments": dict(arguments)}
    try:
        with contextlib.closing(socket.create_connection((host, port), timeout=timeout)) as connection:
            require_own(connection)
            connection.sendall(encode(request))
            answer = _answer(connection, deadline)
    except TimeoutError:
        raise _gone(f"leads to nothing that answers within {timeout:g} s") from None
    except FramingError as error:
        raise _gone(f"gets no answer of a debugger: {error}") from None
    except OSError:
        raise _gone("is not open yet, or nothing listens behind it") from None
    if answer.get("success") is not True:
        raise RequestFailed(
            f"{command}: {answer.get('message') or 'the relay gave no reason'}",
            hint="./invokew status shows what runs; ./invokew up repairs it",
        )
    return dict(answer.get("body") or {})


def no_answer(port: int, *, timeout: float = 2.0) -> str:
    """Returns why no DAP server answers `initialize` at this port; empty if one does.

    A refusal is no answer: a forward refuses while it reconnects to the relay.

    `timeout` is in seconds.
    """
    try:
        ask(port, "initialize", {"adapterID": "rayside"}, timeout=timeout)
    except RequestFailed as error:
        return f"refuses {error.message}"
    except (DebuggerGone, StrangerListens) as error:
        return error.message
    return ""


def _answer(connection: socket.socket, deadline: float) -> Message:
    decoder = Decoder()
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        data = connection.recv(_CHUNK)
        if not data:
            raise ConnectionResetError
        for message in decoder.feed(data):
            if message.get("type") == "response" and message.get("request_seq") == 1:
                return message
    raise TimeoutError


def _gone(why: str) -> DebuggerGone:
    return DebuggerGone(why, hint="./invokew up repairs it")
