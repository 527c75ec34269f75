"""Connects to a debugger port as a stranger would; it is also run as it stands, in a pod."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from rayside.dap.framing import Decoder, FramingError, Message, encode


def exchange(
    address: tuple[str, int], data: bytes, patience: float = 20.0, *, stays: bool = False
) -> list[Message]:
    """Returns what a stranger who sends exactly that gets, until the end or `patience` seconds of silence.

    `stays`: it may say more, for all that the other side knows.
    """
    decoder, messages = Decoder(), list[Message]()
    # An end with what was sent unread is a reset.
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
    """Returns whether the listener lets a stranger run code, as debugpy does."""
    code = request("evaluate", expression="6 * 7", context="clipboard")
    try:
        answers = exchange(address, INITIALIZE + ATTACH + code, patience=2.0, stays=True)
    except OSError:  # it has gone meanwhile
        return False
    return any(answer.get("body", {}).get("result") == "42" for answer in answers)
