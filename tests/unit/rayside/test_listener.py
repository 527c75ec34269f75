"""Tests who is ended where many connections wait at a process's debugger port."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from rayside.worker.listener import _MOST_CHOOSING, Listener


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Pairs of sockets, the listener's and the debugger's, of one debugger more than may choose at once."""
    with contextlib.ExitStack() as stack:
        made = [socket.socketpair() for _ in range(_MOST_CHOOSING + 1)]
        for pair in made:
            for end in pair:
                stack.enter_context(end)
        yield made


def is_ended(debugger: socket.socket) -> bool:
    debugger.setblocking(False)
    try:
        return debugger.recv(1) == b""
    except BlockingIOError:
        return False


def test_who_took_the_process_gets_its_answer_first(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    listener = Listener(b"")
    listener._introduced(pairs[0][0])
    assert listener._takes(pairs[0][0], "anna")
    for own, _ in pairs[1:]:
        listener._introduced(own)
    assert not any(is_ended(debugger) for _, debugger in pairs)
