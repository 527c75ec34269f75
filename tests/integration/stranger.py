"""Unauthenticated client of a debugger port; this file is also run unchanged in a pod."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from rayside.dap.framing import Decoder, FramingError, Message, encode


def exchange(
    address: tuple[str, int], data: bytes, patience: float = 20.0, *, stays: bool = False
) -> list[Message]:
    """Sends exactly `data`; returns the answers until the end, or until `patience` seconds of silence.

    `stays`: keeps its sending half open, as if more data may come.
    """
    decoder, messages = Decoder(), list[Message]()
    # If the other side closes with unread data, the connection is reset.
    with socket.create_connection(address, timeout=patience) as connection, suppress(OSError, FramingError):
        connection.sendall(data)
        if not stays:
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            messages += decoder.feed(piece)
    return messages


def request(command: str, **arguments: Any) -> bytes:
    return encode({"seq": 1, "type": "request", "command": command, "arguments": arguments})


INITIALIZE = request("initialize", adapterID="python", pathFormat="path")
ATTACH = request("attach", justMyCode=False) + request("configurationDone")


def evaluates(address: tuple[str, int]) -> bool:
    """Returns whether the listener runs code of an unauthenticated client, as debugpy does."""
    code = request("evaluate", expression="6 * 7", context="clipboard")
    try:
        answers = exchange(address, INITIALIZE + ATTACH + code, patience=2.0, stays=True)
    except OSError:  # The listener has gone meanwhile.
        return False
    return any(answer.get("body", {}).get("result") == "42" for answer in answers)
